"""The compiled row path; the C sources are in ``rows``.

Only `gateway.routing.row.native` and `gateway.routing.short_transactions` use it.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypedDict

INTERFACE: Final[str]
CONVERSIONS: Final[dict[str, int]]
"""Codes of the conversions that are there, by their names in schemas/types.toml."""
KEY_FORMS: Final[dict[str, int]]
"""Codes of the canonical forms of keys, likewise."""

class TargetTable(TypedDict):
    """A target; C parses it by these names, in ``table.c``."""

    topic: str
    partitions: int
    key_prefix: bytes
    value_prefix: bytes
    counter: object
    skips_origins: bool
    feed: int
    number: int

class RouteTable(TypedDict):
    """A projection with its targets, likewise; a field is (code, index, scale, identity)."""

    row: tuple[tuple[int, int, int, bool], ...]
    names: tuple[bytes, ...]
    key: tuple[tuple[int, int, int, bool], ...] | None
    key_is_union: bool
    canonical: tuple[tuple[int, int, int, bool], ...] | None
    table_part: bytes
    surely_fits: int
    tombstones: bool
    targets: tuple[TargetTable, ...]
    conditions: tuple[tuple[object, ...], ...]
    inserting: tuple[object, ...]
    updating: tuple[object, ...]
    deleting: tuple[object, ...]

class Rows:
    def __new__(
        cls,
        oid: int,
        columns: int,
        is_alone: bool,
        unchanged: object,
        is_read: bytes,
        groups: tuple[RouteTable, ...],
    ) -> Rows: ...
    def run(
        self,
        frames: Sequence[bytes],
        place: int,
        at: int,
        shared: tuple[object, ...],
        seq: int,
        total_order: int,
        orders: tuple[int, ...],
        enough: int,
        most_bytes: int,
        out: list[tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes]]]],
        touched: list[object],
        /,
    ) -> tuple[int, int]: ...
    def copy(
        self,
        lines: list[object],
        place: int,
        tails: tuple[bytes, ...],
        headers: list[tuple[str, bytes]],
        out: list[tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes]]]],
        touched: list[object],
        /,
    ) -> int: ...

class Series:
    def __new__(cls, gateway_part: bytes, feeds: tuple[tuple[str, str, bytes], ...]) -> Series: ...
    def run(
        self,
        frames: list[bytes],
        place: int,
        rows_of: Callable[[int], Rows | None],
        ts_ms: int,
        least_lsn: int,
        enough: int,
        most_records: int,
        most_bytes: int,
        out: list[tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes]]]],
        ended: dict[str, int],
        changed: list[tuple[int, int]],
        /,
    ) -> tuple[int, int]: ...
    def end(
        self,
        counters: list[object],
        common: bytes,
        end_lsn: int,
        headers: list[tuple[str, bytes]],
        out: list[tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes]]]],
        ended: dict[str, int],
        /,
    ) -> None: ...
