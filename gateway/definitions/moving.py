"""Tables of a plan whose filters read other tables, and what they need of a subscription. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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

__all__ = [
    "formula_of",
    "formulas_of",
    "inner_oids",
    "read_columns",
    "why_not_followed",
]


def formula_of(clauses: Iterable[FilterClause]) -> Formula | None:
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
        if (formula := formula_of(copy.filters)) is not None:
            found[copy.subscription, copy.target_oid] = formula
    return found


def inner_oids(clauses: Iterable[FilterClause]) -> set[int]:
    """Return the OIDs of the tables that some clauses read beside their own."""
    return {oid for clause in clauses for oid in inner_columns(clause.formula)}


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


def why_not_followed(
    subscription: SubscriptionDefinition,
    copy: TableCopy,
    publishes: Iterable[Publish],
    tables: Mapping[int, Table],
    masks: Iterable[str] = (),
) -> str | None:
    """Return why a filter over other tables cannot be followed for a subscription, or None.

    Args:
        subscription: The subscription.
        copy: Copy of a table with such a filter.
        publishes: How it publishes the table.
        tables: Tables by OID, with those of the sub-selects.
        masks: Columns that any subscription masks, as `Definitions.masks` names them.
    """
    table = tables[copy.target_oid]
    if not subscription.copy_data:
        return "it needs copy_data = true: rows that enter are those of a known state of the table"
    if subscription.origin == "none":
        return "it is not followed with origin = none: nobody knows the origin of a row that enters"
    if subscription.binary:
        return "it is not followed with binary = true"
    for oid in (table.oid, *sorted(inner_oids(copy.filters))):
        each = tables[oid]
        if each.kind == "p" or each.ancestors:
            return f"{each} is partitioned, or a partition, which is not followed"
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
    for clause in copy.filters:
        for oid, names in inner_columns(clause.formula).items():
            for name in sorted(names):
                if any(mask.endswith(f".{tables[oid]}.{name}") for mask in masks):
                    return f"column {name} of {tables[oid]} is masked, and sets have its values"
    masked = {name for name, _ in copy.masks}
    decides = {name for clause in copy.filters for name in read_columns(clause)}
    if hidden := sorted(masked & (decides | set(key))):
        return f"column {hidden[0]} is masked, and the filter or the key has it"
    return None
