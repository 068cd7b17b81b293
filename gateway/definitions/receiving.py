"""How one subscription receives each table: operations, filters and columns of changes and copy.

The rules are those of pgoutput and of a native subscriber's table synchronization.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gateway.definitions.column_lists import (
    Different,
    column_list,
    copied_columns,
    publishes_generated,
)
from gateway.definitions.identity import find_identity_problems, identity_gap
from gateway.definitions.masks import PlannedMasks
from gateway.definitions.membership import Entry, Membership
from gateway.definitions.model import (
    Definitions,
    FilterClause,
    Operation,
    Publication,
    Publish,
    SubscriptionDefinition,
    Table,
    TableCopy,
)
from gateway.definitions.moving import inner_oids

__all__ = [
    "copy_of",
    "copying_publications",
    "masked_columns",
    "published_relations",
    "publishes_of",
    "without_identity",
]


def published_relations(members: Membership) -> list[Table]:
    """Return the relations whose changes are decoded: plain tables and leaves."""
    return [table for table in members.tables.values() if table.kind == "r"]


def publishes_of(
    members: Membership,
    subscription: SubscriptionDefinition,
    publications: Sequence[Publication],
    left_out: Collection[int],
    masks: PlannedMasks,
) -> Iterator[Publish]:
    """Yield how the changes of each relation reach a subscription, without tables in `left_out`."""
    for table in published_relations(members):
        entry = members.entry(publications, table)
        if entry is None or not entry.operations or entry.target.oid in left_out:
            continue
        generated = publishes_generated(members, entry.publications, entry.target)
        assert generated is not None
        columns = column_list(members, entry.publications, entry.target, generated=generated)
        assert not isinstance(columns, Different)
        publish = Publish(
            subscription=subscription.name,
            relation_oid=table.oid,
            target_oid=entry.target.oid,
            operations=entry.operations,
            filters={
                operation: _filters(members, entry, operation)
                for operation in Operation
                if operation in entry.operations and operation is not Operation.TRUNCATE
            },
            columns=columns,
            generated=generated and columns is None,
        )
        yield masks.masked(publish, entry.target)


def _filters(members: Membership, entry: Entry, operation: Operation) -> tuple[FilterClause, ...]:
    """Combine the filters of one operation with OR; none if one publication has no filter.

    Source: pgoutput_row_filter_init in pgoutput.c.
    """
    concerned = [p for p in entry.publications if operation in p.operations]
    return _any_of(members, concerned, entry.target)


def _any_of(
    members: Membership, publications: Sequence[Publication], target: Table
) -> tuple[FilterClause, ...]:
    clauses: dict[str, FilterClause] = {}
    for publication in publications:
        clause = members.clause(publication, target)
        if clause is None:
            return ()
        clauses.setdefault(clause.text, clause)
    return tuple(clauses.values())


def copying_publications(
    members: Membership, publications: Sequence[Publication], table: Table
) -> list[Publication]:
    """Return the publications that would each copy `table` if subscribed to alone."""
    return [p for p in publications if members.copies(p, table.oid)]


def copy_of(
    members: Membership,
    subscription: SubscriptionDefinition,
    publications: Sequence[Publication],
    table: Table,
    masks: PlannedMasks,
) -> TableCopy:
    """Plan the copy of one table; filters apply whichever operations their publications publish.

    Source: fetch_remote_table_info in tablesync.c.
    """
    listing = copying_publications(members, publications, table)
    columns = copied_columns(members, listing, table)
    assert columns is not None
    return TableCopy(
        subscription=subscription.name,
        target_oid=table.oid,
        filters=_any_of(members, listing, table),
        columns=columns,
        masks=masks.on(subscription.name, table, columns),
        masked_as=masks.masked_as(subscription.name, table),
    )


def without_identity(
    members: Membership, definitions: Definitions, publishes: list[Publish]
) -> tuple[list[Publish], list[str]]:
    """Remove the operations that the source could not publish, with a warning for each table."""
    kept: list[Publish] = []
    warnings: dict[str, None] = {}
    names = {s.name: s.publications for s in definitions.subscriptions}
    for publish in publishes:
        table = members.tables[publish.relation_oid]
        publications = [members.publications[name] for name in names[publish.subscription]]
        for operation, error in find_identity_problems(members, publications, table, ""):
            lacking = identity_gap(table) is not None
            publish = replace(
                publish,
                operations=publish.operations - {operation},
                omitted=publish.omitted | ({operation} if lacking else set()),
                filters={o: f for o, f in publish.filters.items() if lacking or o != operation},
            )
            reason = error.hint.partition(" Set [")[0] if error.hint else ""
            warnings[
                f'subscription "{publish.subscription}": {operation.value}s of table {table} are '
                f"not published, PostgreSQL would say: {error.message}. {reason}"
            ] = None
        if publish.operations:
            kept.append(publish)
    return kept, list(warnings)


def masked_columns(
    definitions: Definitions,
    tables: Mapping[int, Table],
    copies: Iterable[TableCopy],
    masks: PlannedMasks,
) -> frozenset[tuple[int, str]]:
    """Return OID and name of the columns that any subscription masks.

    Only of tables that have filters over other tables, and of those that they read. A tree has the
    masks of its partitions as well: its rows are theirs.
    """
    found: set[int] = set()
    for copy in copies:
        if inner := inner_oids(copy.filters):
            found |= {copy.target_oid, *inner}
    return frozenset(
        (oid, name)
        for oid in found
        for table in (tables[each] for each in (oid, *tables[oid].leaves) if each in tables)
        for subscription in definitions.subscriptions
        for name, _ in masks.on(subscription.name, table, [column.name for column in table.columns])
    )
