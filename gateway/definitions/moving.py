"""Tables of a plan whose filters read other tables, and what they need of a subscription. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from gateway.core.formula import AnyOf, Formula, Plain
from gateway.definitions.model import (
    ALL_OPERATIONS,
    FilterClause,
    Operation,
    Plan,
    Publish,
    SubscriptionDefinition,
    Table,
    TableCopy,
    TableId,
)
from gateway.definitions.sql.expression import column_names
from gateway.definitions.sql.formulas import inner_columns, own_columns, own_tests
from gateway.definitions.tables.keys import key_of
from gateway.pgoutput.messages import ReplicaIdentity

__all__ = [
    "formulas_of",
    "inner_leaves",
    "inner_oids",
    "moving_leaves",
    "read_columns",
    "unlogged",
    "why_not_followed",
    "with_other_formulas",
]


def _formula_of(clauses: Iterable[FilterClause]) -> Formula | None:
    """Return the filter that clauses make together; None if none of them reads another table."""
    clauses = tuple(clauses)
    if all(clause.formula is None for clause in clauses):
        return None
    parts = tuple(clause.formula or Plain(clause.text) for clause in clauses)
    return parts[0] if len(parts) == 1 else AnyOf(parts)


def formulas_of(plan: Plan) -> dict[TableId, Formula]:
    """Return the filters of a plan that read other tables, by subscription and OID of the table."""
    found = {}
    for copy in plan.copies:
        if (formula := _formula_of(copy.filters)) is not None:
            found[copy.subscription, copy.target_oid] = formula
    return found


def with_other_formulas(plan: Plan, before: Mapping[TableId, TableCopy]) -> dict[TableId, str]:
    """Return the tables whose filters read other tables, or other columns of these, than before.

    Args:
        plan: The new plan.
        before: Copies that consumers have.

    Returns:
        Reasons for holding them.
    """
    found = {}
    for copy in plan.copies:
        table_id = (copy.subscription, copy.target_oid)
        was = before.get(table_id)
        if was is not None and _formula_of(was.filters) != _formula_of(copy.filters):
            found[table_id] = "a table that its filter reads is new"
    return found


def inner_oids(clauses: Iterable[FilterClause]) -> set[int]:
    """Return the OIDs of the tables that some clauses read beside their own."""
    return {oid for clause in clauses for oid in inner_columns(clause.formula)}


def moving_leaves(copies: Iterable[TableCopy], tables: Mapping[int, Table]) -> set[int]:
    """Return the leaves of partitioned tables whose filters read other tables, and of the latter.

    They are read by themselves: each announces its own replica identity, which has to have the
    columns that decide.
    """
    return {
        leaf
        for copy in copies
        if _formula_of(copy.filters) is not None
        for oid in (copy.target_oid, *inner_oids(copy.filters))
        for leaf in tables[oid].leaves
        if leaf in tables
    }


def inner_leaves(copies: Iterable[TableCopy], tables: Mapping[int, Table]) -> set[int]:
    """Return the leaves of the partitioned tables that filters read beside their own.

    They stay published when they are detached, so that no change is missed if they are attached
    again before anybody has looked.
    """
    read = {oid for copy in copies for oid in inner_oids(copy.filters)}
    return {leaf for oid in read for leaf in tables[oid].leaves if leaf in tables}


def read_columns(clause: FilterClause) -> frozenset[str]:
    """Return the columns of its own table that a clause reads."""
    return column_names(clause.text) if clause.formula is None else own_columns(clause.formula)


def _generated(
    formula: Formula | None,
    table: Table,
    tables: Mapping[int, Table],
    others: Iterable[str] = (),
) -> str | None:
    """Return a generated column that decides, outside or inside, or None."""
    read = {*others, *(() if formula is None else own_columns(formula))}
    for column in table.columns:
        if column.name in read and column.generated:
            return f"{table}.{column.name}"
    for test in own_tests(formula):
        inner = test.subselect
        found = _generated(inner.filter, tables[inner.table_oid], tables, inner.columns)
        if found is not None:
            return found
    return None


def unlogged(
    replica_identity: ReplicaIdentity, identity: Collection[str], needed: Collection[str]
) -> str | None:
    """Return a column that is needed of old rows and not logged of them, or None."""
    if replica_identity is ReplicaIdentity.FULL:
        return None
    return min(set(needed).difference(identity), default=None)


def why_not_followed(
    subscription: SubscriptionDefinition,
    copy: TableCopy,
    publishes: Iterable[Publish],
    tables: Mapping[int, Table],
) -> str | None:
    """Return why a filter over other tables cannot be followed for a subscription, or None.

    Args:
        subscription: The subscription.
        copy: Copy of a table with such a filter.
        publishes: How it publishes the table.
        tables: Tables by OID, with those of the sub-selects.
    """
    table = tables[copy.target_oid]
    if not subscription.copy_data:
        return "it needs copy_data = true: rows that enter are those of a known state of the table"
    if subscription.origin == "none":
        return "it is not followed with origin = none: nobody knows the origin of a row that enters"
    if subscription.binary:
        return "it is not followed with binary = true"
    for clause in copy.filters:
        if (name := _generated(clause.formula, table, tables)) is not None:
            return f"it reads {name}, which is a generated column"
    for publish in publishes:
        filters = [publish.filters.get(o, ()) for o in ALL_OPERATIONS - {Operation.TRUNCATE}]
        if publish.operations != ALL_OPERATIONS or any(
            set(found) != set(copy.filters) for found in filters
        ):
            return "all publications of the table must publish insert, update, delete and truncate"
    key = key_of(table, copy.columns)
    if not key:
        return "its key is not published, and rows that enter or leave are named by their keys"
    decides = {name for clause in copy.filters for name in read_columns(clause)}
    for leaf in (tables[oid] for oid in sorted(table.leaves) if oid in tables):
        if missing := unlogged(leaf.replica_identity, leaf.identity, {*decides, *key}):
            return f"column {missing} is not part of the replica identity of partition {leaf}"
    for clause in copy.filters:
        for oid, names in inner_columns(clause.formula).items():
            for leaf in (tables[each] for each in sorted(tables[oid].leaves) if each in tables):
                if missing := unlogged(leaf.replica_identity, leaf.identity, names):
                    return (
                        f"column {missing} is not part of the replica identity of {leaf}, a "
                        f"partition of {tables[oid]}, which its filter reads"
                    )
    return None
