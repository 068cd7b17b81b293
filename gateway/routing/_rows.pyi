"""The compiled row path; the C sources are in ``rows``. Only `gateway.routing.compiled` uses it."""

from collections.abc import Sequence
from typing import Final

INTERFACE: Final[int]

class Rows:
    def __new__(
        cls, oid: int, columns: int, unchanged: object, is_read: bytes, groups: tuple[object, ...]
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
