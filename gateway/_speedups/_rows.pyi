"""The compiled row path; the C sources are in ``rows``.

Only `gateway.routing.row.native` and `gateway.routing.short_transactions` use it.
"""

from collections.abc import Callable, Sequence
from typing import Final

INTERFACE: Final[str]

class Rows:
    def __new__(
        cls,
        oid: int,
        columns: int,
        is_alone: bool,
        unchanged: object,
        is_read: bytes,
        groups: tuple[object, ...],
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
