"""How much of a transaction is handed over at once.

A row becomes as many records as there are subscriptions that take it, each with a value of its own.
So a piece is bounded by its records and their bytes, and frames are routed in parts that cannot
become much more than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final

from gateway.records import Record

__all__ = ["PIECE_BYTES", "PIECE_RECORDS", "Piece", "parts_of"]

_VALUE: Final = itemgetter(3)
PIECE_RECORDS: Final = 1000
PIECE_BYTES: Final = 1 << 20
"""A piece ends with the part that reaches one of these."""


class Piece:
    """Records that are gathered; append to `records`."""

    __slots__ = ("_counted", "_size", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._counted = 0
        self._size = 0

    def is_full(self) -> bool:
        """Whether it is enough to be handed over."""
        records = self.records
        if len(records) >= PIECE_RECORDS:
            return True
        self._size += sum(map(len, filter(None, map(_VALUE, records[self._counted :]))))
        self._counted = len(records)
        return self._size >= PIECE_BYTES

    def take(self) -> list[Record]:
        """Return the records, and begin anew."""
        taken, self.records = self.records, []
        self._counted = self._size = 0
        return taken


def parts_of(frames: Sequence[bytes], subscriptions: int) -> Iterable[Sequence[bytes]]:
    """Return `frames` in parts that make a piece, more or less, when all subscriptions take all."""
    if subscriptions <= 1 or len(frames) == 1:
        return (frames,)  # chunks of frames are bounded alike
    return _parts(frames, subscriptions)


def _parts(frames: Sequence[bytes], subscriptions: int) -> Iterator[Sequence[bytes]]:
    most = max(1, PIECE_RECORDS // subscriptions)
    enough = PIECE_BYTES // subscriptions
    first = size = 0
    for place, frame in enumerate(frames):
        size += len(frame)
        if size >= enough or place + 1 - first >= most:
            yield frames[first : place + 1]
            first, size = place + 1, 0
    if first < len(frames):
        yield frames[first:]
