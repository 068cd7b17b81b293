"""The compiled row path; the C sources are in ``rows``.

Only `gateway.routing.row.native` and `gateway.routing.short_transactions` use it.
"""

from collections.abc import Callable, Sequence
from typing import Final

from gateway._speedups.layouts import Feed, Projection, Shared
from gateway.core.records import Header, Record

INTERFACE: Final[str]
CONVERSIONS: Final[dict[str, int]]
"""Codes of the conversions that are there, by their names in schemas/types.toml."""
KEY_FORMS: Final[dict[str, int]]
"""Codes of the canonical forms of keys, likewise."""

class Rows:
    def __new__(
        cls,
        oid: int,
        columns: int,
        is_alone: bool,
        unchanged: object,
        is_read: bytes,
        groups: tuple[Projection, ...],
    ) -> Rows: ...
    def run(
        self,
        frames: Sequence[bytes],
        place: int,
        at: int,
        shared: Shared,
        seq: int,
        total_order: int,
        orders: tuple[int, ...],
        enough: int,
        most_bytes: int,
        out: list[Record],
        touched: list[object],
        /,
    ) -> tuple[int, int]: ...
    def copy(
        self,
        lines: list[object],
        place: int,
        tails: tuple[bytes, ...],
        headers: list[Header],
        out: list[Record],
        touched: list[object],
        /,
    ) -> int: ...

class Series:
    def __new__(cls, gateway_part: bytes, feeds: tuple[Feed, ...]) -> Series: ...
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
        out: list[Record],
        ended: dict[str, int],
        changed: list[tuple[int, int]],
        /,
    ) -> tuple[int, int]: ...
    def end(
        self,
        counters: list[object],
        common: bytes,
        end_lsn: int,
        headers: list[Header],
        out: list[Record],
        ended: dict[str, int],
        /,
    ) -> None: ...
