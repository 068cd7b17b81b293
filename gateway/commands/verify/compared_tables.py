"""Tables to compare, and the rows of the source that they should hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gateway.definitions.model import FilterClause, Operation, Plan, Publish, Table
from gateway.definitions.tables.keys import key_of
from spark_consumer.names import part

__all__ = ["ComparedTable", "compared_tables"]

_ROW_OPERATIONS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """A subscriber table.

    Attributes:
        name: ``schema.table``, as manifests call it.
        table: The table of the source.
        columns: Published columns.
        key: Columns that identify a row; empty if the whole row does.
        filters: Filters, one of which must be true; if empty, all rows pass.
        reason: Reason it cannot be compared with the source, or None.
    """

    name: str
    table: Table
    columns: tuple[str, ...]
    key: tuple[str, ...]
    filters: tuple[FilterClause, ...]
    reason: str | None


def compared_tables(plan: Plan, subscription: str) -> list[ComparedTable]:
    """Return the tables of a subscription, by name."""
    by_oid: dict[int, list[Publish]] = {}
    for publish in plan.publishes:
        if publish.subscription == subscription:
            by_oid.setdefault(publish.target_oid, []).append(publish)
    copy_data = {one.name: one.copy_data for one in plan.subscriptions}[subscription]
    found = [
        _compared_table(plan.tables[oid], publishes, copy_data) for oid, publishes in by_oid.items()
    ]
    return sorted(found, key=lambda each: each.name)


def _compared_table(table: Table, publishes: Sequence[Publish], copy_data: bool) -> ComparedTable:
    columns = tuple(c.name for c in table.columns if publishes[0].publishes(c))
    filters = {frozenset(p.filters.get(o, ())) for p in publishes for o in _ROW_OPERATIONS}
    missing = sorted(
        o.value for o in _ROW_OPERATIONS if any(o not in p.operations for p in publishes)
    )
    reason = None
    if not copy_data:
        reason = "the subscription has copy_data = false"
    elif missing:
        reason = f"its publications do not publish {_listed(missing)}"
    elif len(filters) > 1:
        reason = "its publications filter INSERT, UPDATE and DELETE differently"
    return ComparedTable(
        name=f"{part(table.schema)}.{part(table.name)}",
        table=table,
        columns=columns,
        key=tuple(key_of(table, columns) or ()),
        filters=tuple(sorted(next(iter(filters)), key=lambda one: one.text)),
        reason=reason,
    )


def _listed(words: Iterable[str]) -> str:
    return " and ".join(words)
