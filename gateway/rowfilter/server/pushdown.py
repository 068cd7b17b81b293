"""Row-filter push-down: the walsender leaves out rows that no subscription wants.

The union (OR) of all filters on a table can be that of the gateway's own publication. The stream
then has only rows that some subscription wants: an UPDATE across the border of the union comes as
an INSERT or a DELETE, and the gateway evaluates each subscription's filter on it. For a filter f
that implies the union U, and with the old and the new row of an UPDATE:

    U(old)  U(new)  comes as   result of f              without push-down
    true    true    UPDATE     what it always makes     the same
    true    false   DELETE     DELETE if f(old)         the same: f(new) is false
    false   true    INSERT     INSERT if f(new)         the same: f(old) is false
    false   false   nothing    nothing                  the same: f is false for both

This holds if the same filter applies to INSERT, UPDATE and DELETE, and all three are published:
otherwise a converted change would be mistaken for another operation. If the server does not log
the old row, it asks about the new one alone; then the identity's columns, which are all that the
filters read, are byte for byte the same, and so are the results.

Any other possible difference keeps a table from being pushed down; `pushed` has the reason.
A filter that could raise would end the stream of all tables; a publication of the database can be
altered at any time, before the union could be widened; only a copy makes up for what a transaction
has changed before the union was widened, so that all subscriptions have to copy the table, by the
same filter.

Source: pgoutput_row_filter in pgoutput.c (15 to 18).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from gateway.core.errors import FilterError
from gateway.definitions.combine import alterable_relations
from gateway.definitions.model import (
    IDENTIFYING,
    Column,
    Definitions,
    FilterClause,
    Operation,
    Plan,
    Publish,
    Table,
)
from gateway.definitions.moving import inner_oids
from gateway.rowfilter.evaluation.compile import compile_filter
from gateway.rowfilter.expr import Expr, Or, can_raise

__all__ = ["LIMIT", "adds_to", "is_exact_on", "push_down", "pushed"]

LIMIT: Final = 50
"""Most alternatives of a union: the walsender tries them one by one, the gateway has an index."""

_FILTERED: Final = (Operation.INSERT, *IDENTIFYING)
_EXACT_SINCE: Final = {15: 150013, 16: 160009, 17: 170005}


def is_exact_on(version_num: int) -> bool:
    """Whether an altered filter applies from its place in the WAL on.

    Releases before May 2025 go on with the old one for a table that a transaction had changed
    before, and changes after, the alteration.

    Source: "Fix data loss in logical replication when DDL concurrently happens" (4909b38af).
    """
    return version_num >= _EXACT_SINCE.get(version_num // 10000, 180000)


def push_down(plan: Plan, definitions: Definitions) -> Plan:
    """Return `plan` with the filters of all tables that the server may narrow without a loss."""
    found = pushed(plan, definitions)
    return replace(
        plan,
        server_publications=tuple(
            replace(
                publication,
                filters={
                    oid: texts
                    for oid in publication.table_oids
                    if isinstance(texts := found.get(oid), tuple)
                },
            )
            for publication in plan.server_publications
        ),
    )


def pushed(plan: Plan, definitions: Definitions) -> dict[int, tuple[str, ...] | str]:
    """Return the union of the filters of each table that has any, or the objection, by OID.

    The union is in the order of the definitions, each filter once.
    """
    alterable = alterable_relations(definitions, plan.publishes)
    read = {oid for copy in plan.copies for oid in inner_oids(copy.filters)}
    by_relation: dict[int, list[Publish]] = {}
    for publish in plan.publishes:
        by_relation.setdefault(publish.relation_oid, []).append(publish)
    return {
        oid: "a filter over other tables reads all its rows"
        if oid in read
        else _union(plan, plan.tables[oid], publishes, alterable)
        for oid, publishes in by_relation.items()
        if any(clauses for publish in publishes for clauses in publish.filters.values())
    }


def _union(
    plan: Plan, table: Table, publishes: Sequence[Publish], alterable: Collection[int]
) -> tuple[str, ...] | str:
    if table.ancestors:
        return "it is a partition"
    if table.oid in alterable:
        return "its publication can be altered in the database"
    copied = {copy.subscription: copy for copy in plan.copies if copy.target_oid == table.oid}
    union: dict[str, None] = {}
    for publish in publishes:
        name = publish.subscription
        if not publish.operations.issuperset(_FILTERED):
            return f"subscription {name} does not publish inserts, updates and deletes"
        if name not in copied:
            return f"subscription {name} does not copy it"
        clauses = publish.filters[Operation.INSERT]
        if any(clause.formula for clause in clauses):
            return f"subscription {name} has a filter over other tables"
        texts = _texts(clauses)
        if not texts:
            return f"subscription {name} receives all its rows"
        others = [publish.filters[operation] for operation in IDENTIFYING]
        if any(_texts(other) != texts for other in (*others, copied[name].filters)):
            return f"subscription {name} filters its operations differently"
        union |= dict.fromkeys(clause.text for clause in clauses)
    count = 0
    for text in union:
        obstacle = _obstacle(table, text)
        if obstacle is not None:
            return obstacle
        count += len(_alternatives([text], table.columns))
    if count > LIMIT:
        return f"its filters have {count} alternatives, more than {LIMIT}"
    return tuple(union)


def _texts(clauses: Iterable[FilterClause]) -> frozenset[str]:
    return frozenset(clause.text for clause in clauses)


def _obstacle(table: Table, text: str) -> str | None:
    try:
        row_filter = compile_filter(text, table.columns)
    except FilterError:
        return "a filter is not evaluated by the gateway, and could fail"
    if can_raise(row_filter.expr):
        return "a filter can fail on a row"
    if not row_filter.columns.issubset(table.identity):
        return "a filter reads columns outside the replica identity"
    if any(column.generated for column in table.columns if column.name in row_filter.columns):
        return "a filter reads a generated column"
    return None


def adds_to(
    text: str, filters: Sequence[str], columns: Sequence[Column], *, or_leaves: bool
) -> bool:
    """Whether the union of `filters` has an alternative that the filter `text` lacks.

    Args:
        text: As the server prints it; its brackets, and some casts, need not be those of `filters`.
        filters: Each in the server's rendering.
        columns: Columns of the table.
        or_leaves: Whether an alternative of `text` that the union lacks counts as well.
    """
    try:
        there, wanted = _alternatives([text], columns), _alternatives(filters, columns)
    except FilterError:
        return True
    return any(one not in there for one in wanted) or (
        or_leaves and any(one not in wanted for one in there)
    )


def _alternatives(filters: Iterable[str], columns: Sequence[Column]) -> list[Expr]:
    return [one for text in filters for one in _flat(compile_filter(text, columns).expr)]


def _flat(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Or):
        for argument in expr.arguments:
            yield from _flat(argument)
    else:
        yield expr
