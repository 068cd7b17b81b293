"""Publication definitions by LSN, for transactions that span ALTER PUBLICATION.

A definition from a DDL message applies to the changes after the commit of its transaction in the
WAL. It does not apply to earlier changes, even if their transactions commit and are routed later:
PostgreSQL decodes each change with the catalog as of its position.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.definitions.model import Publish
from gateway.pgoutput.frames import XLOGDATA_HEADER
from gateway.transactions import Transaction

__all__ = [
    "PublicationHistory",
    "Publishes",
    "by_relation",
    "by_target",
    "first_change_from",
    "first_lsn",
]

Publishes = Mapping[int, Sequence[Publish]]

_LSN: Final = slice(1, 9)
_CHANGES: Final = b"IUDT"
_KEPT: Final = 32
"""Number of entries kept: alterations of publications to expect while a transaction is open."""


class PublicationHistory:
    """Commits that changed how relations are published, with the definitions before each."""

    def __init__(self) -> None:
        self._past: deque[tuple[Lsn, Publishes]] = deque(maxlen=_KEPT)

    def __bool__(self) -> bool:
        return bool(self._past)

    @property
    def last(self) -> Lsn:
        """Last of the commits; the current definitions apply to later changes."""
        return self._past[-1][0] if self._past else ZERO_LSN

    def add(self, commit_lsn: Lsn, before: Publishes) -> None:
        """Record how relations were published until a commit."""
        self._past.append((commit_lsn, before))

    def at(self, lsn: Lsn) -> tuple[Lsn, Publishes] | None:
        """Return the definitions that apply at `lsn`, after their end; None if they are current."""
        return next((each for each in self._past if lsn < each[0]), None)


def first_lsn(transaction: Transaction) -> Lsn:
    """Return the position of the first change of `transaction`, or of its commit if it has none."""
    for frames in transaction.frames():
        for frame in frames:
            if frame[XLOGDATA_HEADER] in _CHANGES:
                return Lsn(int.from_bytes(frame[_LSN]))
    return transaction.commit_lsn


def first_change_from(frames: Sequence[bytes], lsn: Lsn) -> int:
    """Return the index of the first change at or after `lsn`, or the number of frames."""
    for place, frame in enumerate(frames):
        if frame[XLOGDATA_HEADER] in _CHANGES and int.from_bytes(frame[_LSN]) >= lsn:
            return place
    return len(frames)


def by_relation(publishes: Sequence[Publish]) -> Publishes:
    """Group by the OID under which a change can arrive: the relation's own, or its tree's root."""
    found: dict[int, list[Publish]] = {}
    for publish in publishes:
        found.setdefault(publish.relation_oid, []).append(publish)
        if publish.target_oid != publish.relation_oid:
            found.setdefault(publish.target_oid, []).append(publish)
    return found


def by_target(publishes: Publishes) -> dict[int, set[int]]:
    """Return the OIDs under which the changes of each target can arrive."""
    found: dict[int, set[int]] = {}
    for oid, of_relation in publishes.items():
        for publish in of_relation:
            found.setdefault(publish.target_oid, set()).add(oid)
    return found
