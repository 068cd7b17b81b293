"""From where in the stream on relations are published otherwise, for what was open at that time.

A definition that the stream tells counts from the commit of its transaction on: for the changes
behind that commit in the WAL, and not for those before it, although they may belong to transactions
that commit later and are routed later. PostgreSQL decodes each change with the catalog of its
place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.definitions.model import Publish
from gateway.transactions import Transaction

__all__ = ["Moments", "Publishes", "first_behind", "first_lsn"]

Publishes = Mapping[int, Sequence[Publish]]

_LSN: Final = slice(1, 9)
_TAG_AT: Final = 25
_CHANGES: Final = b"IUDT"
_KEPT: Final = 32
"""So many are remembered; nobody alters publications more often while a transaction is open."""


class Moments:
    """The commits behind which relations were published otherwise than before."""

    def __init__(self) -> None:
        self._past: deque[tuple[Lsn, Publishes]] = deque(maxlen=_KEPT)

    def __bool__(self) -> bool:
        return bool(self._past)

    @property
    def last(self) -> Lsn:
        """Return the last of the commits: what is behind it is published as now."""
        return self._past[-1][0] if self._past else ZERO_LSN

    def add(self, commit_lsn: Lsn, before: Publishes) -> None:
        """Note how relations were published up to a commit."""
        self._past.append((commit_lsn, before))

    def at(self, lsn: Lsn) -> tuple[Lsn, Publishes] | None:
        """Return how relations were published at `lsn`, and up to where; None: as now."""
        return next((each for each in self._past if lsn < each[0]), None)


def first_lsn(transaction: Transaction) -> Lsn:
    """Return the position of its first change; of its commit when it has none."""
    for frames in transaction.frames():
        for frame in frames:
            if frame[_TAG_AT] in _CHANGES:
                return Lsn(int.from_bytes(frame[_LSN]))
    return transaction.commit_lsn


def first_behind(frames: Sequence[bytes], lsn: Lsn) -> int:
    """Return the place of the first change at or behind `lsn`; the number of frames if none is."""
    for place, frame in enumerate(frames):
        if frame[_TAG_AT] in _CHANGES and int.from_bytes(frame[_LSN]) >= lsn:
            return place
    return len(frames)
