"""Visibility of transactions in a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Snapshot"]

_EPOCH: Final = 1 << 32
_HALF: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A value of ``pg_current_snapshot()``: 64-bit transaction ids.

    Attributes:
        xmin: All below have ended.
        xmax: None from here on had been given out.
        running: Those in between that had not ended; None: it is not known which.
    """

    xmin: int
    xmax: int
    running: frozenset[int] | None

    @classmethod
    def parse(cls, text: str, *, in_recovery: bool = False) -> Snapshot:
        """Read `text`.

        Args:
            text: ``xmin:xmax:xip,xip``.
            in_recovery: On a standby the list is always empty.

        Source: GetSnapshotData in procarray.c, pg_current_snapshot in xid8funcs.c.
        """
        low, high, listed = text.split(":")
        running = frozenset(map(int, filter(None, listed.split(","))))
        return cls(int(low), int(high), None if in_recovery else running)

    def _full(self, xid: int) -> int:
        full = self.xmax - (self.xmax - xid) % _EPOCH
        return full + _EPOCH if self.xmax - full >= _HALF else full

    def precedes(self, xid: int) -> bool:
        """Whether it surely does not see a transaction: its id had not been given out."""
        return self._full(xid) >= self.xmax

    def sees(self, xid: int) -> bool:
        """Whether it sees the committed transaction `xid`; 32 bits as in the stream.

        If that is not known, the answer is no. This is allowed: the changes are then applied once
        more, in order, with the same result.

        The stream names top-level transactions, and so does a snapshot. The 64-bit id is the one
        nearest to xmax, as the server itself decides between two ids.
        """
        full = self._full(xid)
        if full < self.xmin:
            return True
        return self.running is not None and full < self.xmax and full not in self.running
