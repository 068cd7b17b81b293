"""Everything that filters over other tables need while the stream goes on, in one place. Pure.

For each transaction, in order: all its changes of inner tables (`inner`), then `apply`, then its
changes of outer tables, each judged for its candidates (`outer`, `candidates`), then `end`. Between
two transactions what was read is placed: sets here, rows by `moves`. `pop_parts` is committed with
the watermark, and `read_back` begins from it.

A set without records is built: until then its table's changes are noted for the read. A
subscription with a set that is not built is one whose table has to be copied again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from gateway.copy import Row, Snapshot
from gateway.core.errors import ProtocolError
from gateway.core.watermark import StatePart, StatePartKind
from gateway.rowfilter import Selection
from gateway.subselects.formula import Formula, Plain, RowView, Subselect, subselects_of
from gateway.subselects.moves.candidates import Candidates
from gateway.subselects.moves.state import MoveState, StoredMoves, read_back
from gateway.subselects.moves.table_moves import TableMoves
from gateway.subselects.moves.transaction import MoveTransaction
from gateway.subselects.sets.building import SetBuilder
from gateway.subselects.sets.changes import SetChange, SetDelta
from gateway.subselects.sets.leaves import MOST
from gateway.subselects.sets.member_index import MemberIndex
from gateway.subselects.sets.network import SetNetwork
from gateway.subselects.sets.records import StoredSet, removed
from gateway.subselects.sets.set_selection import SetSelection
from gateway.subselects.sets.value_set import MakeEntries, ValueSet, in_memory

__all__ = ["About", "FollowedTransaction", "Following", "OuterTable"]


About: TypeAlias = tuple[str, Callable[[str], str | None]]
"""Description of a table, and why one with another description may have other values."""

_SAME: Final[About] = ("", lambda about: None)


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
        about: Descriptions of inner tables, by OID, and why those with another one may have other
            values.
        most: Number of entries of a leaf.
        hidden: Sub-selects whose values are not to be stored: their sets are always built again.

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
    ) -> None:
        tables = list(outer)
        self.faults: list[str] = []
        self.has_built = False
        self.sets = SetNetwork((f for table in tables for f in table.formulas.values()), make)
        self._stored: dict[Subselect, StoredSet] = {}
        self._builders: dict[Subselect, SetBuilder] = {}
        for each in self.sets:
            if each.subselect in hidden:
                self._builders[each.subselect] = SetBuilder(each)
                continue
            text, why_other = about.get(each.subselect.table_oid, _SAME)
            self._stored[each.subselect] = StoredSet(
                each, most=most, about=text, why_other=why_other
            )
        self._removals = self._read_sets(parts.get("set", {}), broken)
        self.sets.recount()
        self._index = MemberIndex(self.sets, make)
        self._index.recount()
        self._inner: dict[int, SetSelection] = {}
        for oid in {each.subselect.table_oid for each in self.sets}:
            own = [each for each in self.sets if each.subselect.table_oid == oid]
            self._inner[oid] = SetSelection(own, partial(select, oid))
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
        for table in tables:
            self._read_moves(table, found[f"{table.oid}"])

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
            why = (
                "it does not agree with its table"
                if stored.target.subselect.table_oid in broken
                else stored.read_back(found)
            )
            if why is not None:
                if found:
                    self.faults.append(f"set {set_name}: {why}")
                    removals += [StatePart("set", *record) for record in removed(set_name, found)]
                target = stored.target
                self._builders[target.subselect] = SetBuilder(target)
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
        for name, formula in table.formulas.items():
            if not (is_known and self.is_built(formula)):
                moves.copy_again(name)
        self.moves[table.oid] = moves
        self._stored_moves[table.oid] = StoredMoves(table.oid, state)
        self._candidates[table.oid] = Candidates(moves, self._index)

    # Sets that are built

    @property
    def unbuilt(self) -> list[Subselect]:
        """The sub-selects whose tables have to be read."""
        return list(self._builders)

    def unbuilt_of(self, oid: int) -> set[Subselect]:
        """Return the sub-selects of an inner table whose sets are not built."""
        return {each for each in self._builders if each.table_oid == oid}

    def is_built(self, formula: Formula) -> bool:
        """Whether all sets of a filter are known."""
        return self._builders.keys().isdisjoint(subselects_of(formula))

    def forget(self, snapshot: Snapshot) -> None:
        """Drop the changes that every read of a set from now on sees."""
        for builder in self._builders.values():
            builder.forget(snapshot)

    def place_table(
        self, oid: int, snapshot: Snapshot, rows: Iterable[RowView], *, step: int = 10_000
    ) -> Iterator[None]:
        """Place a read of a table for its sets that are not built, as `SetBuilder` says.

        `finish_table` follows.

        Yields:
            Now and then; nothing else may happen to the sets until it is exhausted.
        """
        found = [each for each in self._builders if each.table_oid == oid]
        waiting = {each: self._builders[each].begin(snapshot) for each in found}
        for number, row in enumerate(rows, 1):
            for target in self.sets_of(oid, row):
                count = waiting.get(target.subselect)
                if count is not None and (entry := target.reduction.entry(row)) is not None:
                    count(entry)
            if number % step == 0:
                yield

    def may_place(self, oid: int, snapshot: Snapshot) -> bool:
        """Whether it is known of all noted changes of a table if `snapshot` sees them."""
        builders = (self._builders[each] for each in self.unbuilt_of(oid))
        return all(builder.is_sure(snapshot) for builder in builders)

    def finish_table(self, oid: int) -> None:
        """End the placing of a table, which takes time where it has many rows."""
        unbuilt = self.unbuilt_of(oid)
        found = [each for each in self.sets if each.subselect in unbuilt]
        for each in found:
            self._builders.pop(each.subselect).finish()
            if (stored := self._stored.get(each.subselect)) is not None:
                stored.note_built()
        # Nested sets come first, and those around them are found with them.
        around = {
            one.subselect: one for each in found for one in self.sets.recount_from(each.subselect)
        }
        self._index.recount_sets(around.values())
        self.has_built = True

    # The stream

    def begin(self, xid: int) -> FollowedTransaction:
        """Begin with a transaction of the source."""
        return FollowedTransaction(self, xid)

    def sets_of(self, oid: int, row: RowView) -> list[ValueSet]:
        """Return the sets that may count a row of an inner table."""
        return self._inner[oid].of(row)

    def all_sets_of(self, oid: int) -> list[ValueSet]:
        """Return the sets of an inner table."""
        return [each for each in self.sets if each.subselect.table_oid == oid]

    def apply(self, xid: int, deltas: Mapping[Subselect, SetDelta]) -> dict[Subselect, SetChange]:
        """Apply what a transaction did to the sets; return what has changed in them."""
        built: dict[Subselect, SetDelta] = {}
        for subselect, delta in deltas.items():
            builder = self._builders.get(subselect)
            if builder is not None:
                builder.note(xid, delta)
            else:
                built[subselect] = delta
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
        self.has_built = False
        for subselect, stored in self._stored.items():
            if subselect not in self._builders:
                parts += [StatePart("set", *record) for record in stored.pop_records()]
        for oid, moves in self.moves.items():
            state = moves.state.hidden() if oid in self._hidden else moves.state
            records = self._stored_moves[oid].pop_records(state)
            parts += [StatePart("moves", *record) for record in records]
        return tuple(parts)

    def close(self) -> None:
        """Give the files back."""
        self._index.close()
        self.sets.close()


class FollowedTransaction:
    """One transaction, until its `end`.

    Attributes:
        changes: Its changes of the sets, once applied.
    """

    __slots__ = ("_deltas", "_following", "_outer", "_xid", "changes")

    def __init__(self, following: Following, xid: int) -> None:
        self._following = following
        self._xid = xid
        self._deltas: dict[Subselect, SetDelta] = {}
        self._outer: dict[int, MoveTransaction] = {}
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

    def apply(self) -> None:
        """Change the sets, after all changes of inner tables and before those of outer ones."""
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
