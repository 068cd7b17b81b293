"""Everything that filters over other tables need while the stream goes on, in one place. Pure.

For each transaction, in order: all its changes of inner tables (`inner`), then `apply`, then its
changes of outer tables, each judged for its candidates (`outer`, `candidates`), then `end`. Between
two transactions what was read is placed: sets here, rows by `moves`. `pop_parts` is committed with
the watermark, and `read_back` begins from it.

A set without records is built: until then its table's changes are noted for the read. A
subscription with a set that is not built is one whose table has to be copied again. A stale set,
whose table has got or lost rows without a change, stays as it is until its table is read, and
changes then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple

from gateway.copy import Row, Snapshot
from gateway.core.errors import ProtocolError
from gateway.core.watermark import StatePart, StatePartKind
from gateway.rowfilter import Selection
from gateway.subselects.formula import Formula, Plain, RowView, Subselect, subselects_of
from gateway.subselects.moves.candidates import Candidates
from gateway.subselects.moves.state import MoveState, StoredMoves, read_back
from gateway.subselects.moves.table_moves import TableMoves
from gateway.subselects.moves.transaction import MoveTransaction
from gateway.subselects.sets.building import SetReread
from gateway.subselects.sets.changes import SetChange, SetDelta
from gateway.subselects.sets.leaves import MOST
from gateway.subselects.sets.member_index import MemberIndex
from gateway.subselects.sets.network import SetNetwork
from gateway.subselects.sets.records import StoredSet, removed
from gateway.subselects.sets.set_selection import SetSelection
from gateway.subselects.sets.unread import UnreadSets
from gateway.subselects.sets.value_set import MakeEntries, SetBrokenError, ValueSet, in_memory

__all__ = ["About", "FollowedTransaction", "Following", "OuterTable"]


class About(NamedTuple):
    """Description of an inner table.

    Attributes:
        text: The description, kept with the sets.
        why_other: Returns why a table with another one may have other values, or None.
        is_other_tree: Whether one for which that is None had other partitions.
    """

    text: str
    why_other: Callable[[str], str | None]
    is_other_tree: Callable[[str], bool]


_SAME: Final = About("", lambda about: None, lambda about: False)


@dataclass(frozen=True, slots=True)
class OuterTable:
    """A table with filters over other tables.

    Attributes:
        oid: OID of the table as which its rows are published.
        key: Positions of the key's columns in a row.
        formulas: Filter of each subscription.
        view: Makes what filters see of a row.
        hidden: Whether values of slices and keys are not to be stored: after a restart in the midst
            of a move the table is copied again.
    """

    oid: int
    key: tuple[int, ...]
    formulas: Mapping[str, Formula]
    view: Callable[[Row], RowView]
    hidden: bool = False


class Following:
    """Sets and moves of all outer tables. Not thread-safe.

    Args:
        outer: The outer tables.
        select: Returns the selection of a plain filter on the table with an OID; None for any row.
        parts: Parts of the state that were committed last.
        make: Makes stores of sets.
        broken: OIDs of inner tables whose sets are built again, whatever `parts` has.
        about: Descriptions of inner tables, by OID.
        most: Number of entries of a leaf.
        hidden: Sub-selects whose values are not to be stored: their sets are always built again.
        clock_ms: Milliseconds since 1970.

    Attributes:
        sets: All sets.
        moves: Moves by the OID of the outer table.
        faults: Why some sets are built and some tables copied again, where that is not expected.
        has_built: Whether sets were built since the last `pop_parts`, which takes time then.
    """

    def __init__(
        self,
        outer: Iterable[OuterTable],
        select: Callable[[int, Plain], Selection | None],
        parts: Mapping[StatePartKind, Mapping[str, bytes]],
        *,
        make: MakeEntries = in_memory,
        broken: Collection[int] = (),
        about: Mapping[int, About] = MappingProxyType({}),
        most: int = MOST,
        hidden: Collection[Subselect] = (),
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        tables = list(outer)
        self.faults: list[str] = []
        self.has_built = False
        self._clock_ms = clock_ms
        self.sets = SetNetwork((f for table in tables for f in table.formulas.values()), make)
        self._stored: dict[Subselect, StoredSet] = {}
        self._unread = UnreadSets(make)
        self._disagreed: set[int] = set()
        for each in self.sets:
            if each.subselect in hidden:
                self._unread.add(each, stale=False)
                continue
            text, why_other, is_other_tree = about.get(each.subselect.table_oid, _SAME)
            self._stored[each.subselect] = StoredSet(
                each, most=most, about=text, why_other=why_other, is_other_tree=is_other_tree
            )
        self._removals = self._read_sets(parts.get("set", {}), broken)
        self.sets.recount()
        self._index = MemberIndex(self.sets, make)
        self._index.recount()
        self._sets_of: dict[int, list[ValueSet]] = {}
        for each in self.sets:
            self._sets_of.setdefault(each.subselect.table_oid, []).append(each)
        self._inner = {
            oid: SetSelection(own, partial(select, oid)) for oid, own in self._sets_of.items()
        }
        self.moves: dict[int, TableMoves] = {}
        self._stored_moves: dict[int, StoredMoves] = {}
        self._hidden = {table.oid for table in tables if table.hidden}
        self._candidates: dict[int, Candidates] = {}
        found: dict[str, dict[str, bytes]] = {f"{table.oid}": {} for table in tables}
        for name, value in parts.get("moves", {}).items():
            if (own_records := found.get(name.partition("/")[0])) is not None:
                own_records[name] = value
            else:
                self._removals.append(StatePart("moves", name, None))
        self._filtered: dict[Subselect, list[TableMoves]] = {}
        for table in tables:
            self._read_moves(table, found[f"{table.oid}"])
        for subselect, stored in self._stored.items():
            # Markers have said so, also of a set that is built now.
            for moves in self._filtered[subselect] if stored.was_stale else ():
                moves.note_waited(subselect)
        for subselect in self._unread.stale:
            self._wait_for(subselect)

    def _read_sets(self, records: Mapping[str, bytes], broken: Collection[int]) -> list[StatePart]:
        """Read the sets back; return the removal of records that no filter needs any more."""
        known = {each.name: each for each in self._stored.values()}
        by_set: dict[str, dict[str, bytes]] = {name: {} for name in known}
        for name, value in records.items():
            by_set.setdefault(name.partition("/")[0], {})[name] = value
        removals: list[StatePart] = []
        for set_name, found in by_set.items():
            if (stored := known.get(set_name)) is None:
                removals += [StatePart("set", *record) for record in removed(set_name, found)]
                continue
            stored.look(found)
            why = (
                "it does not agree with its table"
                if stored.target.subselect.table_oid in broken
                else stored.read_back(found)
            )
            if why is not None:
                if found:
                    self.faults.append(f"set {set_name}: {why}")
                    removals += [StatePart("set", *record) for record in removed(set_name, found)]
                self._unread.add(stored.target, stale=False)
            elif stored.is_stale:
                self._unread.add(stored.target, stale=True)
        return removals

    def _read_moves(self, table: OuterTable, records: Mapping[str, bytes]) -> None:
        state, is_known = MoveState(), True
        try:
            state = read_back(table.oid, records)
        except ProtocolError as error:
            is_known = False
            self.faults.append(f"moves of the table with OID {table.oid}: {error.reason}")
            self._removals += [StatePart("moves", name, None) for name in records]
        moves = TableMoves(table.key, table.formulas, self.sets.__getitem__, table.view, state)
        for subselect in moves.filtered_by:
            self._filtered.setdefault(subselect, []).append(moves)
        for name, formula in table.formulas.items():
            if not (is_known and self.is_built(formula)):
                moves.copy_again(name)
        self.moves[table.oid] = moves
        self._stored_moves[table.oid] = StoredMoves(table.oid, state)
        self._candidates[table.oid] = Candidates(moves, self._index)

    # Sets that are built

    @property
    def unbuilt(self) -> list[Subselect]:
        """The sub-selects whose sets are not built."""
        return list(self._unread.unbuilt)

    @property
    def unread(self) -> UnreadSets:
        """The sets whose tables have to be read."""
        return self._unread

    def note_stale(self, oid: int, about: str | None = None) -> None:
        """Note that an inner table has got or lost rows without a change.

        Its sets stay as they are until it is read once more.

        Args:
            oid: OID of the table.
            about: Its description, if that is another one now.
        """
        self._unread.void_reads(oid)
        for each in self.all_sets_of(oid):
            if (stored := self._stored.get(each.subselect)) is not None:
                stored.note_stale(stored.about if about is None else about)
            self._unread.add(each, stale=True)
            if self._unread.is_stale(each.subselect):
                self._wait_for(each.subselect)

    def note_lost(self, oid: int, why: str) -> None:
        """Note that the changes of an inner table cannot be counted until there is another plan."""
        if self._unread.lose(oid, why):
            self.note_stale(oid)

    def note_unknown(self, xid: int, oid: int, why: str) -> None:
        """Note changes of an inner table as it was at another time than that of the plan."""
        if not self.is_unread(oid):
            self.note_lost(oid, why)
        self._unread.note_unknown(xid, oid)

    def is_unread(self, oid: int) -> bool:
        """Whether all sets of an inner table will be those of a read that is still to come."""
        return {each.subselect for each in self.all_sets_of(oid)} <= self._unread.of(oid).keys()

    def is_built(self, formula: Formula) -> bool:
        """Whether all sets of a filter are known."""
        return self._unread.unbuilt.isdisjoint(subselects_of(formula))

    def forget(self, snapshot: Snapshot) -> None:
        """Drop the changes that every read of a set from now on sees."""
        self._unread.forget(snapshot)

    def place_table(
        self, oid: int, snapshot: Snapshot, rows: Iterable[RowView], *, step: int = 10_000
    ) -> Iterator[None]:
        """Place a read of a table for its sets that are not built, or stale, as `SetBuilder` says.

        `finish_table` follows. A read that is void, or does not agree with the changes since,
        leaves stale sets as they are; one that was not built begins with it, and is stale. Either
        awaits another read.

        Yields:
            Now and then; nothing else may happen to the sets until it is exhausted.
        """
        builders, is_void = self._unread.of(oid), self._unread.awaits(oid)
        waiting = {each: builder.begin(snapshot) for each, builder in builders.items()}
        for number, row in enumerate(rows, 1):
            for target in self.sets_of(oid, row):
                count = waiting.get(target.subselect)
                if count is not None and (entry := target.reduction.entry(row)) is not None:
                    count(entry)
            if number % step == 0:
                yield
        try:
            for builder in () if is_void else builders.values():
                yield from builder.compare()
        except SetBrokenError:
            # Its owner can have changed it meanwhile so that the stream has not all of it.
            self._note_disagreement(oid)

    def may_place(self, oid: int, snapshot: Snapshot) -> bool:
        """Whether it is known of all noted changes of a table if `snapshot` sees them.

        A read that had begun when the table got or lost rows without a change is void. It is placed
        where a set is not built, so that partitions that come and go keep no copy from beginning.
        """
        return self._unread.may_place(oid, snapshot)

    def finish_table(self, oid: int) -> None:
        """End the placing of a table, which takes time where it has many rows."""
        deltas: dict[Subselect, SetDelta] = {}
        found: list[ValueSet] = []
        for subselect, builder in self._unread.of(oid).items():
            stored = self._stored.get(subselect)
            if self._unread.awaits(oid):
                if not isinstance(builder, SetReread):
                    self._begin_stale(subselect)
                    found.append(self.sets[subselect])
                continue
            builder.finish()
            self._unread.remove(subselect)
            for moves in self._filtered[subselect]:
                moves.end_wait(subselect)
            if isinstance(builder, SetReread):
                if stored is not None:
                    stored.note_read()
                if builder.delta is not None:
                    deltas[subselect] = builder.delta
                    continue
                self._copy_again(subselect)
            if stored is not None:
                stored.note_built()
            found.append(self.sets[subselect])
        # Nested sets come first, and those around them are found with them.
        around = {
            one.subselect: one for each in found for one in self.sets.recount_from(each.subselect)
        }
        if around:
            self._index.recount_sets(around.values())
        changes = self._apply(deltas)
        for moves in self.moves.values():
            moves.unsettle(changes)
        self.has_built = True

    def _begin_stale(self, subselect: Subselect) -> None:
        """Let a set begin with what was read, although its table is to be read once more."""
        self._unread.turn_stale(subselect)
        if (stored := self._stored.get(subselect)) is not None:
            stored.note_built()
            stored.note_stale(stored.about)
        self._wait_for(subselect)

    def _copy_again(self, subselect: Subselect) -> None:
        """Give up the rows of all subscriptions that are filtered by a set."""
        for moves in self._filtered[subselect]:
            for name in moves.filtered_by[subselect]:
                moves.copy_again(name)

    def _wait_for(self, subselect: Subselect) -> None:
        for moves in self._filtered[subselect]:
            moves.wait_for(subselect)

    # The stream

    def begin(self, xid: int) -> FollowedTransaction:
        """Begin with a transaction of the source."""
        return FollowedTransaction(self, xid)

    def sets_of(self, oid: int, row: RowView) -> list[ValueSet]:
        """Return the sets that may count a row of an inner table."""
        return self._inner[oid].of(row)

    def all_sets_of(self, oid: int) -> list[ValueSet]:
        """Return the sets of an inner table."""
        return self._sets_of.get(oid, [])

    def note_disagreements(self, deltas: Mapping[Subselect, SetDelta]) -> None:
        """Note as stale the sets that lack what a transaction removes.

        Not all changes of such a table were in the stream: it was detached or UNLOGGED for a while.
        """
        for each, delta in deltas.items():
            if not self._unread.has(each) and not self.sets[each].agrees(delta):
                self._note_disagreement(each.table_oid)

    def _note_disagreement(self, oid: int) -> None:
        self._disagreed.add(oid)
        self.note_stale(oid)

    def pop_disagreed(self) -> set[int]:
        """Return the OIDs of inner tables that their sets disagreed with since the last call."""
        found, self._disagreed = self._disagreed, set()
        return found

    def apply(self, xid: int, deltas: Mapping[Subselect, SetDelta]) -> dict[Subselect, SetChange]:
        """Apply what a transaction did to the sets; return what has changed in them."""
        unread = {each for each, delta in deltas.items() if self._unread.note(xid, each, delta)}
        return self._apply({each: delta for each, delta in deltas.items() if each not in unread})

    def _apply(self, built: Mapping[Subselect, SetDelta]) -> dict[Subselect, SetChange]:
        changes = self.sets.apply(built)
        self._index.apply(changes)
        for subselect, delta in built.items():
            if (stored := self._stored.get(subselect)) is not None:
                stored.note(delta)
        return changes

    def candidates_of(self, oid: int) -> Candidates:
        """Return the candidates of an outer table."""
        return self._candidates[oid]

    def candidates(
        self, oid: int, view: RowView, changes: Mapping[Subselect, SetChange]
    ) -> set[str]:
        """Return the subscriptions that may have a row of an outer table or want it."""
        return self._candidates[oid].of(view, changes)

    # The state

    def pop_parts(self) -> tuple[StatePart, ...]:
        """Return what has changed of the state since the last call; it is committed once."""
        parts, self._removals = self._removals, []
        unbuilt = self._unread.unbuilt
        self.has_built = False
        for subselect, stored in self._stored.items():
            if subselect not in unbuilt:
                parts += [StatePart("set", *record) for record in stored.pop_records()]
        now_ms = self._clock_ms()
        for oid, moves in self.moves.items():
            moves.note_progress(now_ms)
            state = moves.state.hidden() if oid in self._hidden else moves.state
            records = self._stored_moves[oid].pop_records(state)
            parts += [StatePart("moves", *record) for record in records]
        return tuple(parts)

    def close(self) -> None:
        """Give the files back."""
        self._unread.close()
        self._index.close()
        self.sets.close()


class FollowedTransaction:
    """One transaction, until its `end`.

    Attributes:
        changes: Its changes of the sets, once applied.
    """

    __slots__ = ("_deltas", "_following", "_outer", "_stale", "_unknown", "_xid", "changes")

    def __init__(self, following: Following, xid: int) -> None:
        self._following = following
        self._xid = xid
        self._deltas: dict[Subselect, SetDelta] = {}
        self._outer: dict[int, MoveTransaction] = {}
        self._stale: set[int] = set()
        self._unknown: dict[int, str] = {}
        self.changes: Mapping[Subselect, SetChange] = {}

    def inner(self, oid: int, old: RowView | None, new: RowView | None) -> None:
        """Note a change of an inner table; an UPDATE without an old row changes no set."""
        sets: dict[Subselect, ValueSet] = {}
        for row in (old, new):
            if row is not None:
                sets |= {each.subselect: each for each in self._following.sets_of(oid, row)}
        for subselect, each in sets.items():
            before = None if old is None else each.reduction.entry(old)
            after = None if new is None else each.reduction.entry(new)
            self._delta(subselect).change(before, after)

    def inner_truncate(self, oid: int) -> None:
        """Note a TRUNCATE of an inner table."""
        for each in self._following.all_sets_of(oid):
            self._delta(each.subselect).truncate()

    def inner_stale(self, oid: int) -> None:
        """Note that an inner table has lost rows without a change of each."""
        self._stale.add(oid)

    def inner_unknown(self, oid: int, why: str) -> None:
        """Note a change of an inner table that cannot be read by the plan, for that reason."""
        self._unknown[oid] = why

    def apply(self) -> None:
        """Change the sets, after all changes of inner tables and before those of outer ones."""
        # The table of a set that is wrong is read once more: an error would end the stream for all.
        self._following.note_disagreements(self._deltas)
        for oid in sorted(self._stale):
            self._following.note_stale(oid)
        for oid, why in sorted(self._unknown.items()):
            self._following.note_unknown(self._xid, oid, why)
        if self._deltas:
            self.changes = self._following.apply(self._xid, self._deltas)

    def outer(self, oid: int) -> MoveTransaction:
        """Return the transaction as that of an outer table."""
        if oid not in self._outer:
            moves = self._following.moves[oid]
            self._outer[oid] = MoveTransaction(moves, self._xid, self.changes)
        return self._outer[oid]

    def end(self) -> None:
        """End the transaction: slices become unsettled, in tables that it has not touched, too."""
        if self.changes:
            for moves in self._following.moves.values():
                moves.unsettle(self.changes)

    def _delta(self, subselect: Subselect) -> SetDelta:
        return self._deltas.setdefault(subselect, SetDelta())
