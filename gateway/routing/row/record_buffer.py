"""How much of a transaction is handed over at once.

A row becomes as many records as there are subscriptions that take it, each with a value of its own.
So a piece is bounded by its records and their bytes.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Final

from gateway.core.records import Record

__all__ = ["PIECE_BYTES", "PIECE_RECORDS", "Piece"]

_VALUE: Final = itemgetter(3)
PIECE_RECORDS: Final = 1000
PIECE_BYTES: Final = 1 << 20
"""A piece ends with the change that reaches one of these."""


class Piece:
    """Records that are gathered; append to `records`.

    Attributes:
        size: Bytes of their values when `is_full` was asked last.
    """

    __slots__ = ("_counted", "records", "size")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._counted = 0
        self.size = 0

    def is_full(self) -> bool:
        """Whether it is enough to be handed over."""
        records = self.records
        if len(records) >= PIECE_RECORDS:
            return True
        self.size += sum(map(len, filter(None, map(_VALUE, records[self._counted :]))))
        self._counted = len(records)
        return self.size >= PIECE_BYTES

    def take(self) -> list[Record]:
        """Return the records, and begin anew."""
        taken, self.records = self.records, []
        self._counted = self.size = 0
        return taken
