"""Bounded pieces of a transaction's records.

A row becomes a record for each subscription that receives it, each with a value of its own, so a
piece is bounded by the number and the size of records rather than by rows.
"""

from __future__ import annotations

from typing import Final

from gateway._speedups.layouts import value_of
from gateway.core.records import Record

__all__ = ["PIECE_BYTES", "PIECE_RECORDS", "Piece"]

PIECE_RECORDS: Final = 1000
PIECE_BYTES: Final = 1 << 20
"""Limits of a piece; the change that reaches one of them is its last."""


class Piece:
    """Buffer of records, which are appended to `records`.

    Attributes:
        size: Size of their values in bytes at the last call of `is_full`.
    """

    __slots__ = ("_counted", "records", "size")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._counted = 0
        self.size = 0

    def is_full(self) -> bool:
        """Whether the piece has reached one of its limits."""
        records = self.records
        if len(records) >= PIECE_RECORDS:
            return True
        self.size += sum(map(len, filter(None, map(value_of, records[self._counted :]))))
        self._counted = len(records)
        return self.size >= PIECE_BYTES

    def pop(self) -> list[Record]:
        """Return the records and start a new piece."""
        records, self.records = self.records, []
        self._counted = self.size = 0
        return records
