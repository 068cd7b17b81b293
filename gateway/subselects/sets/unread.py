"""Sets whose tables have to be read, and what happens to these tables until then.

A set that is not built has nothing. A stale one, whose table has got or lost rows without a change,
stays as it is until the read is placed.
"""

from __future__ import annotations

from collections.abc import Set

from gateway.copy import Snapshot
from gateway.subselects.formula import Subselect
from gateway.subselects.sets.building import SetBuilder, SetReread
from gateway.subselects.sets.changes import SetDelta
from gateway.subselects.sets.value_set import MakeEntries, ValueSet

__all__ = ["UnreadSets"]


class UnreadSets:
    """Builders of sets by sub-select. Not thread-safe.

    Args:
        make: Makes stores of sets.
    """

    def __init__(self, make: MakeEntries) -> None:
        self._make = make
        self._builders: dict[Subselect, SetBuilder] = {}
        self._awaiting: set[int] = set()
        self._lost: dict[int, str] = {}
        self._unpopped: list[int] = []

    def add(self, target: ValueSet, *, stale: bool) -> None:
        """Add a set; one that is there already goes on."""
        if target.subselect not in self._builders:
            reread = SetReread(target, self._make) if stale else SetBuilder(target)
            self._builders[target.subselect] = reread

    def turn_stale(self, subselect: Subselect) -> None:
        """Let a set that is not built go on as it is, until its table is read once more."""
        self._builders[subselect] = self._builders[subselect].as_stale(self._make)

    def remove(self, subselect: Subselect) -> None:
        """Remove a set whose table was read."""
        del self._builders[subselect]

    def close(self) -> None:
        """Give the files back."""
        for builder in self._builders.values():
            builder.close()

    @property
    def unbuilt(self) -> Set[Subselect]:
        """The sub-selects whose sets are not built, in order."""
        found = self._builders.items()
        return {each: None for each, b in found if not isinstance(b, SetReread)}.keys()

    @property
    def stale(self) -> Set[Subselect]:
        """The sub-selects whose sets are stale."""
        found = self._builders.items()
        return {each: None for each, b in found if isinstance(b, SetReread)}.keys()

    def has(self, subselect: Subselect) -> bool:
        """Whether the table of a set is to be read."""
        return subselect in self._builders

    def is_stale(self, subselect: Subselect) -> bool:
        """Whether a set is one of those."""
        return isinstance(self._builders.get(subselect), SetReread)

    @property
    def tables(self) -> set[int]:
        """OIDs of the tables to read."""
        return {each.table_oid for each in self._builders}

    def of(self, oid: int) -> dict[Subselect, SetBuilder]:
        """Return the builders of the sets of a table."""
        return {each: found for each, found in self._builders.items() if each.table_oid == oid}

    # Reads

    @property
    def awaiting(self) -> Set[int]:
        """OIDs of the tables that have to be read by a thread that begins after now."""
        return self._awaiting

    def awaits(self, oid: int) -> bool:
        """Whether a table is one of those, see `awaiting`."""
        return oid in self._awaiting

    def begin_reads(self) -> set[int]:
        """Return `tables`; the threads that read them begin now."""
        self._awaiting.clear()
        return self.tables

    def begin_read(self, oid: int) -> None:
        """Note that the thread that reads a table begins now."""
        self._awaiting.discard(oid)

    def void_reads(self, oid: int) -> None:
        """Note that a read of a table that has begun sees too little."""
        self._awaiting.add(oid)

    def may_place(self, oid: int, snapshot: Snapshot) -> bool:
        """Whether a read of a table can be placed, see `Following.may_place`."""
        builders = self.of(oid).values()
        if oid in self._lost:
            return False
        if oid in self._awaiting:
            return not all(isinstance(builder, SetReread) for builder in builders)
        return all(builder.is_sure(snapshot) for builder in builders)

    # The stream

    def note(self, xid: int, subselect: Subselect, delta: SetDelta) -> bool:
        """Note what a transaction did, if a set is to be read; return whether it is."""
        builder = self._builders.get(subselect)
        if builder is not None:
            builder.note(xid, delta)
        return builder is not None

    def note_unknown(self, xid: int, oid: int) -> None:
        """Note that nobody knows what a transaction did to a table."""
        for builder in self.of(oid).values():
            builder.note_unknown(xid)

    def forget(self, snapshot: Snapshot) -> None:
        """Drop the changes that every read from now on sees."""
        for builder in self._builders.values():
            builder.forget(snapshot)

    def lose(self, oid: int, why: str) -> bool:
        """Note that no change of a table can be counted; return False if that is known."""
        if oid in self._lost:
            return False
        self._lost[oid] = why
        self._unpopped.append(oid)
        return True

    def pop_lost(self) -> dict[int, str]:
        """Return the tables that were lost since the last call, with reasons."""
        found, self._unpopped = self._unpopped, []
        return {oid: self._lost[oid] for oid in found}
