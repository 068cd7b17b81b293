"""All that a plan's filters over other tables need: sets, moves, routes, and what is read of them.

Inner relations are checked as they are announced. A relation that is not as it was planned, so that
its changes cannot be counted, ends the stream by `InnerTableChangedError`; the next attempt makes a
plan from the catalog as it is, and builds the sets again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from gateway.core.errors import FilterError, TransientError
from gateway.core.formula import Formula, Plain, Subselect
from gateway.core.watermark import StatePart, StateParts
from gateway.definitions.model import Plan, Table, TableCopy, TableId
from gateway.definitions.moving import formulas_of, inner_oids
from gateway.definitions.tables.inner import describe_inner, why_other
from gateway.definitions.tables.keys import key_of
from gateway.pgoutput.messages import Relation, ReplicaIdentity
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
    "InnerTableChangedError",
    "OuterRows",
    "stale_sets",
    "unfollowed",
]


class InnerTableChangedError(TransientError):
    """The table of sub-selects is not as it was planned any more.

    Attributes:
        table_oid: OID of the table.
    """

    def __init__(self, table: Table, because: str) -> None:
        super().__init__(
            f"{table}, which filters over other tables read, has changed: {because}",
            hint="its sets are built again, and the tables that are filtered by them copied",
        )
        self.table_oid = table.oid


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
        hidden = hidden_parts(plan)
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
        self.changes = InnerChanges(self.following, self._inner_relation)

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

    def _rewritten(self, oids: Iterable[int]) -> None:
        """Note that tables were rewritten, by whose rows sets may be others.

        Raises:
            InnerTableChangedError: a set was built before that.
        """
        for oid in oids:
            inner = self.inner.get(oid)
            if inner is not None and self.following.unbuilt_of(oid) != {*inner.subselects}:
                raise InnerTableChangedError(inner.table, "its rows were written again")

    def _inner_relation(self, relation: Relation) -> InnerRelation | None:
        found = self.inner.get(relation.relation_oid)
        if found is None:
            return None
        if (why := _why_changed(found, relation)) is not None:
            if self.following.unbuilt_of(relation.relation_oid) == {*found.subselects}:
                return None  # from before the read that builds its sets, which sees it all
            raise InnerTableChangedError(found.table, why)
        names = [column.name for column in relation.columns]
        return found.table.oid, _inner_views(found.table, names, found.subselects)


def stale_sets(plan: Plan, parts: StateParts) -> tuple[StatePart, ...]:
    """Return the removal of the sets that no filter of a plan has."""
    formulas = formulas_of(plan).values()
    names = {each.name for formula in formulas for each in subselects_of(formula)}
    found = parts.get("set", {})
    return tuple(
        StatePart("set", name, None) for name in found if name.partition("/")[0] not in names
    )


def _about(inner: InnerTable) -> About:
    table, names = inner.table, inner.columns
    return describe_inner(table, names), lambda text: why_other(text, table, names)


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
    full = relation.replica_identity is ReplicaIdentity.FULL
    for name in inner.columns:
        if name not in sent:
            return f"column {name} is gone"
        if sent[name].type_oid != planned[name].type_oid:
            return f"column {name} has another type"
        if not full and not sent[name].is_key:
            return f"column {name} is not part of the replica identity any more"
    return None
