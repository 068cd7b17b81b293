"""Building of a set: one read of the inner table, placed in the stream.

The table is read in one transaction under a snapshot S; afterwards H is the server's WAL insert
position. The set is placed at any position P >= H between two transactions. Every transaction that
S sees has its commit record before H; so the entries at P are those that were read, and the changes
of all transactions before P that S does not see. Addition is commutative: neither keys nor the
order of rows matter. A TRUNCATE that S does not see voids what was read and what changed before it.

Changes published before this process began cannot be noted: the read waits for the transactions
that ran when the stream was begun, as a copy does (`gateway.copy`).

A set that is there and whose table has got or lost rows without a change (`SetReread`) stays as it
is until its table is read: the result is compared with it, and the difference is the change. If
that happens during the first read, the set begins with what was read (`as_stale`): the next read
may be void as well, and copies that wait for the set would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gateway.copy import Snapshot
from gateway.subselects.sets.changes import SetDelta
from gateway.subselects.sets.entries import all_of, place_of
from gateway.subselects.sets.value_set import (
    MOST_TOGGLED,
    MakeEntries,
    SetBrokenError,
    ValueSet,
)

__all__ = ["SetBuilder", "SetReread"]

_STEP: Final = 10_000


class SetBuilder:
    """Builder of one set, which is shown all changes of its table from the beginning on."""

    def __init__(self, target: ValueSet) -> None:
        self._target = target
        self._unseen: list[tuple[int, SetDelta]] = []
        self._unknown: list[int] = []
        self._missed = SetDelta()

    def note(self, xid: int, delta: SetDelta) -> None:
        """Note what the source's transaction `xid` did to the table."""
        self._unseen.append((xid, delta))

    def note_unknown(self, xid: int) -> None:
        """Note that nobody knows what the transaction `xid` did: a read has to see it."""
        self._unknown.append(xid)

    def forget(self, snapshot: Snapshot) -> None:
        """Drop the changes that `snapshot` sees, which no read from now on precedes."""
        self._unseen = [entry for entry in self._unseen if not snapshot.sees(entry[0])]
        self._unknown = [xid for xid in self._unknown if not snapshot.sees(xid)]

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
        """Whether it is known of all noted changes if `snapshot` sees them, or what they did.

        On a standby it is not of those that ended while an older transaction ran: made up for
        twice, they would count twice.
        """
        if not all(map(snapshot.sees, self._unknown)):
            return False
        return snapshot.running is not None or all(
            snapshot.sees(xid) or snapshot.precedes(xid) for xid, _ in self._unseen
        )

    def begin(self, snapshot: Snapshot) -> Callable[[bytes], None]:
        """Begin to fill the set, as `place` does; return what counts the entry of a row."""
        self._missed = self._unseen_by(snapshot)
        self._target.clear()
        target, is_void = self._target, self._missed.is_truncated

        def count(entry: bytes) -> None:
            if not is_void:
                target.fill(((entry, 1),))

        return count

    def compare(self) -> Iterator[None]:
        """Compare what was read with the changes that it has not seen; exhaust it.

        Raises:
            SetBrokenError: they do not agree.
        """
        yield from ()
        if not self._target.agrees(self._missed):
            raise SetBrokenError(self._target.subselect)

    def finish(self) -> None:
        """End with the changes that the read has not seen."""
        self._target.fill(self._missed.counts.items())
        self._unseen.clear()

    def close(self) -> None:
        """Give back what it has in files."""

    def as_stale(self, make: MakeEntries) -> SetReread:
        """Return the builder of a set that begins with a void read, and awaits another one.

        The set has what was read, and the changes that the read has not seen: a TRUNCATE alone
        would leave an empty set, by which NOT IN lets every row pass. A removal of a row that the
        read lacks counts for nothing.

        Args:
            make: Makes the store of what the other one reads.
        """
        have = self._target.entries.get
        missed = self._missed.counts.items()
        self._target.fill((entry, max(by, -have(entry))) for entry, by in missed)
        reread = SetReread(self._target, make)
        reread._unseen, reread._unknown = self._unseen, self._unknown
        return reread

    def _unseen_by(self, snapshot: Snapshot) -> SetDelta:
        missed = SetDelta()
        for xid, delta in self._unseen:
            if not snapshot.sees(xid):
                missed.add(delta)
        return missed


class SetReread(SetBuilder):
    """Builder of a set that stays as it is until the read is placed.

    Args:
        target: The set.
        make: Makes the store of what is read.

    Attributes:
        delta: Change of the set to what was read, after `compare`; None if it is a large one.
    """

    def __init__(self, target: ValueSet, make: MakeEntries) -> None:
        super().__init__(target)
        self._make = make
        self._found = make(place_of, None)
        self.delta: SetDelta | None = None

    def begin(self, snapshot: Snapshot) -> Callable[[bytes], None]:
        """Begin to read, as the other does; the set is left alone."""
        self._missed = self._unseen_by(snapshot)
        self._found.close()
        found = self._found = self._make(place_of, None)
        is_void = self._missed.is_truncated

        def count(entry: bytes) -> None:
            if not is_void:
                found.put(entry, found.get(entry) + 1)

        return count

    def compare(self) -> Iterator[None]:
        """Find `delta`, too."""
        found, entries = self._found, self._target.entries
        for entry, by in self._missed.counts.items():
            if (count := found.get(entry) + by) < 0:
                raise SetBrokenError(self._target.subselect)
            found.put(entry, count)
        self.delta = delta = SetDelta()
        for now, before in ((found, entries), (entries, found)):
            for number, (entry, count) in enumerate(all_of(now), 1):
                if (by := count - before.get(entry)) and entry not in delta.counts:
                    delta.counts[entry] = by if now is found else -by
                if len(delta.counts) > MOST_TOGGLED:
                    self.delta = None
                    return
                if number % _STEP == 0:
                    yield

    def finish(self) -> None:
        """Replace the whole set, where there is no `delta`, and give the store back."""
        if self.delta is None:
            self._target.clear()
            self._target.fill(all_of(self._found))
        self.close()

    def close(self) -> None:
        """Give the store back."""
        self._unseen.clear()
        self._found.close()
