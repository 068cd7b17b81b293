"""Building of a set: one read of the inner table, placed in the stream.

The table is read in one transaction under a snapshot S; afterwards H is the server's WAL insert
position. The set is placed at any position P >= H between two transactions. Every transaction that
S sees has its commit record before H; so the entries at P are those that were read, and the changes
of all transactions before P that S does not see. Addition is commutative: neither keys nor the
order of rows matter. A TRUNCATE that S does not see voids what was read and what changed before it.

Changes published before this process began cannot be noted: the read waits for the transactions
that ran when the stream was begun, as a copy does (`gateway.copy`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gateway.copy import Snapshot
from gateway.subselects.sets.changes import SetDelta
from gateway.subselects.sets.value_set import ValueSet

__all__ = ["SetBuilder"]


class SetBuilder:
    """Builder of one set, which is shown all changes of its table from the beginning on."""

    def __init__(self, target: ValueSet) -> None:
        self._target = target
        self._unseen: list[tuple[int, SetDelta]] = []
        self._missed = SetDelta()

    def note(self, xid: int, delta: SetDelta) -> None:
        """Note what the source's transaction `xid` did to the table."""
        self._unseen.append((xid, delta))

    def forget(self, snapshot: Snapshot) -> None:
        """Drop the changes that `snapshot` sees, which no read from now on precedes."""
        self._unseen = [entry for entry in self._unseen if not snapshot.sees(entry[0])]

    def place(self, snapshot: Snapshot, entries: Iterable[bytes]) -> None:
        """Fill the set; `SetNetwork.recount` has to follow once all sets are filled.

        Args:
            snapshot: Snapshot under which the table was read.
            entries: Entry of each row that has one.
        """
        count = self.begin(snapshot)
        for entry in entries:
            count(entry)
        self.finish()

    def is_sure(self, snapshot: Snapshot) -> bool:
        """Whether it is known of all noted changes if `snapshot` sees them.

        On a standby it is not of those that ended while an older transaction ran: made up for
        twice, they would count twice.
        """
        return snapshot.running is not None or all(
            snapshot.sees(xid) or snapshot.precedes(xid) for xid, _ in self._unseen
        )

    def begin(self, snapshot: Snapshot) -> Callable[[bytes], None]:
        """Begin to fill the set, as `place` does; return what counts the entry of a row."""
        self._missed = SetDelta()
        for xid, delta in self._unseen:
            if not snapshot.sees(xid):
                self._missed.add(delta)
        self._target.clear()
        target, is_void = self._target, self._missed.is_truncated

        def count(entry: bytes) -> None:
            if not is_void:
                target.fill(((entry, 1),))

        return count

    def finish(self) -> None:
        """End with the changes that the read has not seen."""
        self._target.fill(self._missed.counts.items())
        self._unseen.clear()
