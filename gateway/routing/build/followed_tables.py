"""All that a plan's filters over other tables need: sets, moves, routes, and what is read of them.

Inner relations are checked as they are announced. A relation that is not as it was planned, so that
its changes cannot be counted, holds the tables that are filtered by it; the next attempt makes a
plan from the catalog as it is, and builds the sets again. One whose rows were written again, and a
tree with other partitions, is read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from gateway.core.errors import FilterError, TransientError
from gateway.core.formula import Formula, Plain, Subselect
from gateway.core.watermark import StatePart, StateParts
from gateway.definitions.model import Plan, Table, TableCopy, TableId
from gateway.definitions.moving import formulas_of, inner_oids, unlogged
from gateway.definitions.tables.inner import (
    as_tree_of,
    describe_inner,
    has_other_partitions,
    is_other_tree,
    why_other,
)
from gateway.definitions.tables.keys import key_of
from gateway.pgoutput.messages import Relation
from gateway.routing.build.moving_tables import MovingTables, hidden_parts
from gateway.routing.row.inner_changes import InnerChanges, InnerRelation
from gateway.rowfilter import Selection, compile_filter, selection_of
from gateway.rowfilter.expr import can_raise
from gateway.subselects.following import About, Following, OuterTable
from gateway.subselects.formula import columns_of, plains_of, subselects_of
from gateway.subselects.sets.value_set import MakeEntries, in_memory
from gateway.subselects.views import TableViews

__all__ = [
    "FollowedTables",
    "InnerTable",
    "MaskedSinceError",
    "OuterRows",
    "stale_sets",
    "unfollowed",
]


class MaskedSinceError(TransientError):
    """State that the next attempt does not store has values of a column that is masked now."""


@dataclass(frozen=True, slots=True)
class InnerTable:
    """Columns that are read of the table of sub-selects.

    Attributes:
        columns: Columns that decide, in the table's order.
        subselects: Its sub-selects.
        views: Views of rows with `columns`.
        masked: Whether a subscription masks one of its columns.
    """

    table: Table
    columns: tuple[str, ...]
    subselects: tuple[Subselect, ...]
    views: TableViews
    masked: bool = False


@dataclass(frozen=True, slots=True)
class OuterRows:
    """Rows of the moves of one table.

    Attributes:
        columns: Columns of the rows, in the table's order.
        key: Columns of the key among them.
        copies: Copies of the subscriptions whose filters have sub-selects.
    """

    table: Table
    columns: tuple[str, ...]
    key: tuple[str, ...]
    copies: tuple[TableCopy, ...]


class FollowedTables:
    """Inner and outer tables of a plan.

    Args:
        plan: The plan.
        parts: Parts of the state that were committed last.
        make: Makes stores of sets.
        broken: OIDs of inner tables whose sets are built again, whatever was committed.

    Attributes:
        following: Sets and moves.
        inner: Tables of sub-selects, by OID.
        outer: Rows of the moves of each table, by its OID.
        moving: For the routes.
        changes: For the router.

    Raises:
        FilterError: the gateway does not evaluate a plain part of a filter.
    """

    def __init__(
        self,
        plan: Plan,
        parts: StateParts,
        *,
        make: MakeEntries = in_memory,
        broken: Collection[int] = (),
    ) -> None:
        formulas = formulas_of(plan)
        by_table: dict[int, dict[str, Formula]] = {}
        for (subscription, oid), formula in formulas.items():
            by_table.setdefault(oid, {})[subscription] = formula
        self.outer = {oid: _outer_rows(plan, oid, found) for oid, found in by_table.items()}
        self.inner = dict(_inner_tables(plan, formulas.values()))
        self._hidden = hidden = hidden_parts(plan)
        self.following = Following(
            [
                _outer_table(self.outer[oid], found, hidden=oid in hidden.outer)
                for oid, found in by_table.items()
            ],
            _selections(plan.tables),
            parts,
            make=make,
            broken=broken,
            about={oid: _about(each) for oid, each in self.inner.items()},
            hidden=hidden.sets,
        )
        self.moving = MovingTables(
            self.following, {oid: rows.columns for oid, rows in self.outer.items()}
        )
        self.moving.note_rewritten = self._rewritten
        self.moving.note_plan = self._learn_plan
        self.moving.note_trees = self._note_trees
        self.changes = InnerChanges(
            self.following, self._inner_relations, lambda oid: self.inner[oid].table.leaves
        )

    def __bool__(self) -> bool:
        return bool(self.outer)

    def is_ready(self, copy: TableCopy) -> bool:
        """Whether the sets are there by which the rows of a copy are chosen."""
        moves = self.following.moves.get(copy.target_oid)
        formula = None if moves is None else moves.formulas.get(copy.subscription)
        return formula is None or self.following.is_built(formula)

    def begin_copy(self, copy: TableCopy) -> None:
        """Note that the subscriber of a copy has no row of its table."""
        moves = self.following.moves.get(copy.target_oid)
        if moves is not None and copy.subscription in moves.formulas:
            moves.begin_copy(copy.subscription)

    def outer_of(self, inner_oid: int) -> list[TableCopy]:
        """Return the copies whose filters read a table."""
        return [
            copy
            for rows in self.outer.values()
            for copy in rows.copies
            if inner_oid in inner_oids(copy.filters)
        ]

    def pop_held(self) -> dict[TableId, str]:
        """Return the tables that are to be held since the last call, with reasons."""
        return {
            (copy.subscription, copy.target_oid): (
                f"{self.inner[oid].table}, which its filter reads, has changed: {why}"
            )
            for oid, why in self.following.unread.pop_lost().items()
            for copy in self.outer_of(oid)
        }

    def _rewritten(self, oids: Iterable[int]) -> None:
        """Note that tables were rewritten, by whose rows sets may be others."""
        named = {*oids}
        for oid, inner in self.inner.items():
            if not named.isdisjoint((oid, *inner.table.leaves)):
                self.following.note_stale(oid)

    def _note_trees(self, oids: Iterable[int]) -> None:
        """Note that partitions came or went: those that went again since are in no plan."""
        named = {*oids}
        for oid, inner in self.inner.items():
            if inner.table.kind == "p" and not named.isdisjoint((oid, *inner.table.ancestors)):
                self.following.note_stale(oid)

    def _learn_plan(self, plan: Plan) -> None:
        """Note which partitions inner tables have by now; those that came or went brought rows.

        Raises:
            MaskedSinceError: a value that would be stored is masked now, by a partition's mask.
        """
        hidden = hidden_parts(plan)
        ours = {each.subselect for each in self.following.sets}
        if (hidden.sets & ours) - self._hidden.sets or (
            hidden.outer & self.outer.keys()
        ) - self._hidden.outer:
            raise MaskedSinceError(
                "a column that decides about the rows of a filter over other tables is masked now",
                hint="nothing is lost: the rows are read again from the slot",
            )
        tables = plan.tables
        is_other = False
        for oid, inner in self.inner.items():
            now = tables.get(oid)
            if now is not None and has_other_partitions(inner.table, now):
                is_other = True
                self.inner[oid] = found = replace(inner, table=as_tree_of(inner.table, now))
                self.following.note_stale(oid, describe_inner(found.table, found.columns))
        if is_other:
            self.changes.learn_again()

    def _inner_relations(self, relation: Relation, committed: bool) -> list[InnerRelation]:
        found: list[InnerRelation] = []
        for oid, inner in self.inner.items():
            if relation.relation_oid not in (oid, *inner.table.leaves):
                continue
            if relation.relation_oid == oid and inner.table.kind == "p":
                # The identity of rows that come under the root is that of unknown partitions.
                found.append((oid, "it had no partition that was known"))
                continue
            if (why := _why_changed(inner, relation)) is not None:
                found.append((oid, why))
                if committed and not self.following.is_unread(oid):
                    # Otherwise it may be from before the read, which sees it all.
                    self.following.note_lost(oid, why)
                continue
            names = [column.name for column in relation.columns]
            found.append((oid, _inner_views(inner.table, names, inner.subselects)))
        return found


def stale_sets(plan: Plan, parts: StateParts, lost: Collection[int] = ()) -> tuple[StatePart, ...]:
    """Return the removal of the sets that no filter of a plan has, or that lack changes.

    `lost`: OIDs of inner tables of which changes are missing.
    """
    formulas = formulas_of(plan).values()
    names = {
        each.name
        for formula in formulas
        for each in subselects_of(formula)
        if each.table_oid not in lost
    }
    found = parts.get("set", {})
    return tuple(
        StatePart("set", name, None) for name in found if name.partition("/")[0] not in names
    )


def _about(inner: InnerTable) -> About:
    table, names = inner.table, inner.columns
    return About(
        describe_inner(table, names),
        lambda text: why_other(text, table, names),
        lambda text: is_other_tree(text, table),
    )


def unfollowed(plan: Plan) -> dict[TableId, FilterError]:
    """Return the tables whose filters over other tables have a plain part that is not followed.

    The gateway does not evaluate it, or it can fail on a row.
    """
    found: dict[TableId, FilterError] = {}
    checked: dict[tuple[int, str], FilterError | None] = {}
    for table_id, formula in formulas_of(plan).items():
        filters = [(table_id[1], formula)]
        filters += [(s.table_oid, s.filter) for s in subselects_of(formula) if s.filter is not None]
        parts = dict.fromkeys((oid, part.text) for oid, each in filters for part in plains_of(each))
        for part in parts:
            if part not in checked:
                checked[part] = _why_unfollowed(plan.tables[part[0]], part[1])
            if (error := checked[part]) is not None:
                found.setdefault(table_id, error)
    return found


def _why_unfollowed(table: Table, part: str) -> FilterError | None:
    about = f"a row filter over other tables: its part ({part}) on {table}"
    try:
        fails = can_raise(compile_filter(part, table.columns).expr)
    except FilterError as error:
        return FilterError(f"{about} is not evaluated by the gateway: {error.reason}")
    return FilterError(f"{about} can fail on a row, which is not followed") if fails else None


def _outer_rows(plan: Plan, oid: int, formulas: Mapping[str, Formula]) -> OuterRows:
    table = plan.tables[oid]
    copies = tuple(c for c in plan.copies if c.target_oid == oid and c.subscription in formulas)
    key = key_of(table, copies[0].columns) or ()
    wanted = {*key}.union(*(copy.columns for copy in copies), *map(columns_of, formulas.values()))
    columns = tuple(column.name for column in table.columns if column.name in wanted)
    return OuterRows(table, columns, tuple(key), copies)


def _outer_table(rows: OuterRows, formulas: Mapping[str, Formula], *, hidden: bool) -> OuterTable:
    views = TableViews(rows.table, rows.columns, formulas.values())
    key = tuple(map(rows.columns.index, rows.key))
    return OuterTable(rows.table.oid, key, formulas, views.of, hidden)


def _inner_tables(plan: Plan, formulas: Iterable[Formula]) -> Iterable[tuple[int, InnerTable]]:
    by_table: dict[int, dict[Subselect, None]] = {}
    for formula in formulas:
        for subselect in subselects_of(formula):
            by_table.setdefault(subselect.table_oid, {})[subselect] = None
    for oid, found in by_table.items():
        table, subselects = plan.tables[oid], tuple(found)
        needed = _columns_of(subselects)
        columns = tuple(column.name for column in table.columns if column.name in needed)
        views = _inner_views(table, columns, subselects)
        masked = any((oid, name) in plan.masked_columns for name in columns)
        yield oid, InnerTable(table, columns, subselects, views, masked)


def _columns_of(subselects: Iterable[Subselect]) -> Collection[str]:
    return {name for s in subselects for name in (*s.columns, *columns_of(s.filter))}


def _inner_views(table: Table, names: Iterable[str], subselects: Iterable[Subselect]) -> TableViews:
    subselects = list(subselects)
    return TableViews(
        table, tuple(names), [s.filter for s in subselects], {s.columns for s in subselects}
    )


def _selections(tables: Mapping[int, Table]) -> Callable[[int, Plain], Selection | None]:
    def select(oid: int, plain: Plain) -> Selection | None:
        return selection_of([compile_filter(plain.text, tables[oid].columns)])

    return select


def _why_changed(inner: InnerTable, relation: Relation) -> str | None:
    """Return why the changes of a relation cannot be counted, or None."""
    sent = {column.name: column for column in relation.columns}
    planned = {column.name: column for column in inner.table.columns}
    for name in inner.columns:
        if name not in sent:
            return f"column {name} is gone"
        if sent[name].type_oid != planned[name].type_oid:
            return f"column {name} has another type"
    keys = [name for name, column in sent.items() if column.is_key]
    if missing := unlogged(relation.replica_identity, keys, inner.columns):
        if relation.relation_oid == inner.table.oid:
            return f"column {missing} is not part of the replica identity any more"
        return f"column {missing} is not part of the replica identity of a partition"
    return None
