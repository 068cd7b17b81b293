"""``pgsluice explain``: which subscriptions take a row, filter by filter.

The source server is asked about each filter, in a transaction that only reads. So the answer is
PostgreSQL's own, also where the gateway evaluates the filter itself: it gives the same.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from gateway.commands.schemas import CollectedSchemas, routes_of
from gateway.config import Settings
from gateway.definitions.model import FilterClause, Operation, Plan, Publish, Table
from gateway.envelope.naming import topic_of
from gateway.errors import ConfigError
from gateway.routing.filters import Filters
from gateway.runtime.plan import read_definitions
from gateway.runtime.provision import known_plan
from gateway.source.connection import connect, server_facts

__all__ = ["explain"]

_PAIR: Final = re.compile(r"\s*([^=\s]+)\s*=\s*(.*?)\s*\Z", re.DOTALL)
_ROWS: Final = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the row comes from: a FROM item with the table's columns, and its parameters."""

    item: sql.Composable
    parameters: Sequence[str]


def explain(settings: Settings, name: str, row: str) -> int:
    """Print, for each subscription, whether it takes a row of a table, and why.

    Args:
        settings: Of the gateway.
        name: ``TABLE`` or ``SCHEMA.TABLE``.
        row: ``(1,NSW)``, PostgreSQL's own notation; ``{"a": 1}``, what is left out is NULL; or the
            key of a row that is there: ``1``, or ``a=1,c=NSW``.

    Raises:
        ConfigError: no such table or row, or `row` does not read.
        DefinitionError: the definitions cannot be served.
        TransientError: the source server cannot be reached.
    """
    definitions = read_definitions(settings)
    with connect(settings.source.dsn) as connection:
        facts = server_facts(connection)
        plan = known_plan(settings, connection, definitions, facts)
        routes = routes_of(connection, plan, facts, settings, CollectedSchemas())
        table = _table_named(plan, connection, name)
        with connection.transaction(force_rollback=True):
            connection.execute("SET TRANSACTION READ ONLY")
            source = _source_of(table, row)
            relation_oid, shown = _look(connection, table, source)
            print(f"{table}: {shown}")
            for line in _verdicts(
                connection, settings, plan, table, relation_oid, source, routes.filters
            ):
                print(line)
    sys.stdout.flush()
    return 0


def _table_named(plan: Plan, connection: psycopg.Connection, name: str) -> Table:
    row = connection.execute("SELECT to_regclass(%s)::oid", [name]).fetchone()
    oid = None if row is None else row[0]
    if oid is None:
        raise ConfigError(f"there is no table {name} in the source database")
    if oid not in plan.tables:
        raise ConfigError(
            f"no subscription publishes table {name}",
            hint="`pgsluice check` says what the definitions mean",
        )
    return plan.tables[oid]


def _source_of(table: Table, row: str) -> _Source:
    named = sql.Identifier(table.schema, table.name)
    text = row.strip()
    if text.startswith("("):
        return _Source(sql.SQL("(SELECT (%s::text::{0}).*)").format(named), [text])
    if text.startswith("{"):
        try:
            json.loads(text)
        except ValueError as error:
            raise ConfigError(f"the row is not JSON: {error}") from None
        item = sql.SQL("(SELECT (jsonb_populate_record(NULL::{0}, %s::text::jsonb)).*)")
        return _Source(item.format(named), [text])
    key = _key_of(table, text)
    types = {column.name: column.type_name for column in table.columns}
    conditions = sql.SQL(" AND ").join(
        # The type's name is the server's own print of it, from its catalog.
        sql.SQL("{} = %s::text::{}").format(sql.Identifier(name), sql.SQL(cast(Any, types[name])))
        for name in key
    )
    item = sql.SQL("(SELECT tableoid AS pgsluice_relation, * FROM {} WHERE {})")
    return _Source(item.format(named, conditions), list(key.values()))


def _key_of(table: Table, text: str) -> dict[str, str]:
    identity = table.primary_key or table.identity
    known = {column.name for column in table.columns}
    if "=" not in text:
        if len(identity) != 1:
            raise ConfigError(
                f"the key of {table} has {len(identity)} columns",
                hint="name them: " + ",".join(f"{name}=..." for name in identity or sorted(known)),
            )
        return {identity[0]: text}
    key = {}
    for part in text.split(","):
        pair = _PAIR.match(part)
        if pair is None or pair[1] not in known:
            raise ConfigError(f"{part.strip()!r} does not name a column of {table} and its value")
        key[pair[1]] = pair[2]
    return key


def _look(connection: psycopg.Connection, table: Table, source: _Source) -> tuple[int | None, str]:
    """Read the row; return the partition that holds it, where it is in the table, and its text."""
    from_key = "WHERE" in source.item.as_string(connection)
    relation = sql.SQL("pgsluice_relation::oid::bigint" if from_key else "NULL::bigint")
    columns = [column.name for column in table.columns]
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(n)) for n in columns)
    query = sql.SQL("SELECT {}, {} FROM {} AS r LIMIT 2").format(relation, texts, source.item)
    try:
        found: list[TupleRow] = connection.execute(query, source.parameters).fetchall()
    except psycopg.DataError as error:
        raise ConfigError(f"the row does not read: {error.diag.message_primary}") from None
    if not found:
        raise ConfigError(f"{table} has no row with this key now", hint="give the row itself")
    if len(found) > 1:
        raise ConfigError(f"{table} has more than one row with these values")
    values = zip(columns, found[0][1:], strict=True)
    return found[0][0], " ".join(f"{n}={'NULL' if v is None else v}" for n, v in values)


def _verdicts(
    connection: psycopg.Connection,
    settings: Settings,
    plan: Plan,
    table: Table,
    relation_oid: int | None,
    source: _Source,
    filters: Filters,
) -> Iterator[str]:
    for subscription in plan.subscriptions:
        published = [
            publish
            for publish in plan.publishes
            if publish.subscription == subscription.name
            and table.oid in (publish.relation_oid, publish.target_oid)
            and relation_oid in (None, publish.relation_oid)
        ]
        if not published:
            yield f"  {subscription.name}: does not publish it"
            continue
        # All leaves of a tree that is published under its root have the root's filters.
        yield from _verdict(connection, settings, plan, published[0], source, filters)


def _verdict(
    connection: psycopg.Connection,
    settings: Settings,
    plan: Plan,
    publish: Publish,
    source: _Source,
    filters: Filters,
) -> Iterator[str]:
    target = plan.tables[publish.target_oid]
    topic = topic_of(publish.subscription, target.schema, target.name, settings.topics.names)
    answers = {
        clause: _ask(connection, clause, source)
        for clauses in publish.filters.values()
        for clause in clauses
    }
    taken, filtered, unpublished = [], [], []
    for operation in _ROWS:
        clauses = publish.filters.get(operation)
        if clauses is None:
            unpublished.append(operation.name)
        elif not clauses or any(answers[clause] == "true" for clause in clauses):
            taken.append(operation.name)
        else:
            filtered.append(operation.name)
    parts = []
    if taken:
        parts.append(f"takes it ({', '.join(taken)}) as {topic}")
    if filtered:
        parts.append(f"does not take it ({', '.join(filtered)})")
    if unpublished:
        parts.append(f"does not publish {', '.join(unpublished)}")
    yield f"  {publish.subscription}: {'; '.join(parts)}"
    if not answers:
        yield "    no row filter"
    for clause, answer in answers.items():
        operations = [o.name for o in _ROWS if clause in publish.filters.get(o, ())]
        yield f"    {clause.publication} ({', '.join(operations)}): {clause.text} is {answer}"
        refused = filters.of(clause).refused
        by = "evaluated here" if refused is None else f"evaluated by the server: {refused.reason}"
        yield f"      {by}"


def _ask(connection: psycopg.Connection, clause: FilterClause, source: _Source) -> str:
    """Return what a filter says of the row: true, false, null, or the error that it raises."""
    # The filter is the server's own print of what it has accepted as one.
    condition = sql.SQL(cast(Any, clause.text.replace("%", "%%")))
    query = sql.SQL("SELECT ({}) FROM {} AS r").format(condition, source.item)
    try:
        with connection.transaction():
            row = connection.execute(query, source.parameters).fetchone()
    except psycopg.Error as error:
        return f"an error: {error.diag.message_primary}"
    assert row is not None
    return {True: "true", False: "false", None: "null, which does not pass"}[row[0]]
