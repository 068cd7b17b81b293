"""``pgsluice explain``: which subscriptions receive a row, filter by filter.

The source server evaluates each filter, in a read-only transaction. The answer is therefore
PostgreSQL's own, even if the gateway evaluates the filter itself, with the same result.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import psycopg
from psycopg import sql

from gateway.commands.asking import READING
from gateway.commands.schemas import CollectedSchemas, routes_of
from gateway.commands.table_names import find_table
from gateway.config import Settings
from gateway.core.display import said_if_slow, say, shown
from gateway.core.errors import ConfigError, UsageError
from gateway.core.names import topic_of
from gateway.definitions.model import Operation, Plan, Publish, Table
from gateway.pgtypes.records import split_record
from gateway.routing.row.filters import Filters
from gateway.runtime.planning.plan import read_definitions
from gateway.runtime.planning.setup import known_plan
from gateway.source.copy.key_columns import among, sorted_columns
from gateway.source.copy.literals import LiteralType, literal_types
from gateway.source.copy.relation_guard import lock
from gateway.source.session.connection import connect, server_facts
from gateway.source.session.server_errors import classify_server_error
from gateway.subselects.formula import Formula, set_tests_of, subselects_of
from gateway.subselects.text.render import sql_of

__all__ = ["explain"]

_PAIR: Final = re.compile(r"\s*([^=\s]+)\s*=\s*(.*?)\s*\Z", re.DOTALL)
_ROWS: Final = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


@dataclass(frozen=True, slots=True)
class _Source:
    """Origin of the row: a FROM item with the table's columns.

    Attributes:
        from_table: Whether it is read from the table, with the partition in ``pgsluice_relation``.
        left_out: Columns that are NULL because no value was given.
    """

    item: sql.Composable
    from_table: bool = False
    left_out: tuple[str, ...] = ()


def explain(settings: Settings, name: str, row: str) -> int:
    """Print, for each subscription, whether it receives a row of a table, and why.

    Args:
        settings: Settings of the gateway.
        name: ``TABLE`` or ``SCHEMA.TABLE``, of a published table or partition.
        row: ``(1,NSW)``, PostgreSQL's own notation; ``{"a": 1}``, what is left out is NULL; or the
            key of a row that is there: ``1``, or ``a=1,c=NSW``.

    Raises:
        ConfigError: no subscription publishes such a table, or it has no such row.
        UsageError: `row` cannot be parsed, or names a column that the table does not have.
        DefinitionError: the definitions cannot be served.
        TransientError: the source server cannot be reached.
    """
    definitions = read_definitions(settings)
    with connect(settings.source.dsn) as connection:
        with said_if_slow(READING):
            facts = server_facts(connection)
            plan = known_plan(settings, connection, definitions, facts)
            routes = routes_of(connection, plan, facts, settings, CollectedSchemas())
        table = _table_named(plan, name)
        with connection.transaction(force_rollback=True):
            connection.execute("SET TRANSACTION READ ONLY")
            source = _source_of(connection, table, row)
            relation_oid, shown = _look(connection, table, source)
            say(f"{table}: {shown}")
            if source.left_out:
                say(f"  not given, so NULL: {', '.join(source.left_out)}")
            for line in _verdicts(
                connection, settings, plan, table, relation_oid, source, routes.filters
            ):
                say(line)
    return 0


def _table_named(plan: Plan, name: str) -> Table:
    oids = {oid for one in plan.publishes for oid in (one.relation_oid, one.target_oid)}
    tables = {
        (table.schema, table.name): table for oid, table in plan.tables.items() if oid in oids
    }
    found = find_table(
        name,
        tables,
        absent="no subscription publishes a table",
        hint="`pgsluice check` says what the definitions mean",
    )
    return tables[found]


def _source_of(connection: psycopg.Connection, table: Table, row: str) -> _Source:
    text = row.strip()
    if text.startswith("("):
        return _from_record(connection, table, text)
    if text.startswith("{"):
        return _from_json(connection, table, text)
    key = _key_of(table, text)
    lock(connection, table)
    columns = sorted_columns(connection, table, list(key))
    condition = among(columns, [tuple(value.encode() for value in key.values())])
    item = sql.SQL("(SELECT tableoid AS pgsluice_relation, * FROM {} WHERE {})")
    named = sql.Identifier(table.schema, table.name)
    return _Source(item.format(named, condition), from_table=True)


def _from_record(connection: psycopg.Connection, table: Table, text: str) -> _Source:
    """A row in PostgreSQL's notation, each value as the type under its column's domains."""
    try:
        values = split_record(text)
    except ValueError as error:
        raise UsageError(f"the row does not read: {error}") from None
    names = [column.name for column in table.columns]
    if len(values) != len(names):
        raise UsageError(
            f"the row has {len(values)} values, {table} has {len(names)} columns",
            hint=shown(f"in this order: {', '.join(names)}"),
        )
    types = _types(connection, table)
    given = dict(zip(names, values, strict=True))
    _refuse_unsafe(table, types, [name for name, value in given.items() if value is not None])
    return _Source(sql.SQL("(SELECT {})").format(_literals(types, given)))


def _from_json(connection: psycopg.Connection, table: Table, text: str) -> _Source:
    """A row as JSON, each value as the type under its column's domains."""
    try:
        row = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the row is not JSON: {error}") from None
    types = _types(connection, table)
    for name in row:
        if name not in types:
            near = difflib.get_close_matches(name, types, 1)
            raise UsageError(
                f"{table} has no column {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else shown(f"it has {', '.join(types)}"),
            )
    _refuse_unsafe(table, types, [name for name, value in row.items() if value is not None])
    left_out = tuple(name for name in types if name not in row)
    safe = [name for name, found in types.items() if found.unsafe is None]
    others = _literals({name: types[name] for name in types if name not in safe}, {})
    if not safe:
        return _Source(sql.SQL("(SELECT {})").format(others), left_out=left_out)
    item = sql.SQL("(SELECT {} FROM pg_catalog.jsonb_to_record({}::pg_catalog.jsonb) AS r ({}))")
    columns = [sql.SQL("r.{}").format(sql.Identifier(name)) for name in safe]
    defined = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(cast(Any, types[name].name)))
        for name in safe
    )
    listed = sql.SQL(", ").join([*columns, *([others] if len(safe) < len(types) else [])])
    return _Source(item.format(listed, sql.Literal(text), defined), left_out=left_out)


def _types(connection: psycopg.Connection, table: Table) -> dict[str, LiteralType]:
    columns = {c.name: (c.type_oid, c.type_modifier) for c in table.columns}
    return literal_types(connection, table, columns, allow_unsafe=True)


def _refuse_unsafe(table: Table, types: Mapping[str, LiteralType], given: Sequence[str]) -> None:
    for name in given:
        if types[name].unsafe is not None:
            raise UsageError(
                f"column {name} of {table} has the type {types[name].name}: {types[name].unsafe}, "
                "which is in it, would run code of its owner to read the value",
                hint="leave it out, or give NULL: no row filter can use a type of a user",
            )


def _literals(types: Mapping[str, LiteralType], values: Mapping[str, str | None]) -> sql.Composed:
    # A type's name is the server's own print of it, from its catalog.
    return sql.SQL(", ").join(
        sql.SQL("{}::{} AS {}").format(
            sql.Literal(values.get(name)), sql.SQL(cast(Any, found.name)), sql.Identifier(name)
        )
        for name, found in types.items()
    )


def _key_of(table: Table, text: str) -> dict[str, str]:
    identity = table.primary_key or table.identity
    known = {column.name for column in table.columns}
    if "=" not in text:
        if len(identity) != 1:
            raise UsageError(
                f"the key of {table} has {len(identity)} columns",
                hint="name them: " + ",".join(f"{name}=..." for name in identity or sorted(known)),
            )
        return {identity[0]: text}
    key = {}
    for part in text.split(","):
        pair = _PAIR.match(part)
        if pair is None or pair[1] not in known:
            raise UsageError(
                f"{part.strip()!r} does not name a column of {table} and its value",
                hint="its columns are " + ", ".join(sorted(known)),
            )
        key[pair[1]] = pair[2]
    return key


def _look(connection: psycopg.Connection, table: Table, source: _Source) -> tuple[int | None, str]:
    """Read the row; return the partition that holds it, where it is in the table, and its text."""
    relation = sql.SQL("pgsluice_relation" if source.from_table else "NULL::pg_catalog.oid")
    columns = [column.name for column in table.columns]
    query = sql.SQL("SELECT {} FROM {} AS r LIMIT 2").format(
        sql.SQL(", ").join([relation, *map(sql.Identifier, columns)]), source.item
    )
    try:
        with connection.transaction():
            result = connection.execute(query).pgresult
    except psycopg.DataError as error:
        raise UsageError(f"the row does not read: {error.diag.message_primary}") from None
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing=f"reading {table}") from None
    assert result is not None
    if not result.ntuples:
        raise ConfigError(f"{table} has no row with this key now", hint="give the row itself")
    if result.ntuples > 1:
        raise ConfigError(f"{table} has more than one row with these values")
    # As the types' output functions print it: a cast to text can be the type owner's.
    oid, *values = [result.get_value(0, place) for place in range(result.nfields)]
    shown = zip(columns, values, strict=True)
    return None if oid is None else int(oid), " ".join(
        f"{name}={'NULL' if value is None else value.decode()}" for name, value in shown
    )


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
        clause: _ask(connection, clause.text, source)
        for clauses in publish.filters.values()
        for clause in clauses
    }
    published, filtered, unpublished = [], [], []
    for operation in _ROWS:
        clauses = publish.filters.get(operation)
        if clauses is None:
            unpublished.append(operation.name)
        elif not clauses or any(answers[clause] == "true" for clause in clauses):
            published.append(operation.name)
        else:
            filtered.append(operation.name)
    parts = []
    if published:
        parts.append(f"receives it ({', '.join(published)}) as {topic}")
    if filtered:
        parts.append(f"does not receive it ({', '.join(filtered)})")
    if unpublished:
        parts.append(f"does not publish {', '.join(unpublished)}")
    yield f"  {publish.subscription}: {'; '.join(parts)}"
    if publish.masks:
        yield f"    masked: {', '.join(f'{name} ({mask})' for name, mask in publish.masks)}"
    if not answers:
        yield "    no row filter"
    for clause, answer in answers.items():
        operations = [o.name for o in _ROWS if clause in publish.filters.get(o, ())]
        yield f"    {clause.publication} ({', '.join(operations)}): {clause.text} is {answer}"
        if clause.formula is not None:
            yield from _tests(connection, plan, clause.formula, source)
            continue
        refused = filters.of(clause).refused
        by = "evaluated here" if refused is None else f"evaluated by the server: {refused.reason}"
        yield f"      {by}"


def _tests(
    connection: psycopg.Connection, plan: Plan, formula: Formula, source: _Source
) -> Iterator[str]:
    """Yield what each sub-select says of the row, and which tables are followed for it."""
    tests = list(dict.fromkeys(set_tests_of(formula)))
    for test in tests if [formula] != tests else ():
        text = sql_of(test, plan.tables)
        yield f"      {text} is {_ask(connection, text, source)}"
    inner = sorted({f"{plan.tables[each.table_oid]}" for each in subselects_of(formula)})
    yield f"      followed here: the row enters or leaves when {' or '.join(inner)} changes"


def _ask(connection: psycopg.Connection, text: str, source: _Source) -> str:
    """Return the result of a filter for the row: true, false, null, or its error."""
    # The filter is the server's own print of what it has accepted as one, or made of such.
    condition = sql.SQL(cast(Any, text))
    query = sql.SQL("SELECT ({}) FROM {} AS r").format(condition, source.item)
    try:
        with connection.transaction():
            row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        return f"an error: {error.diag.message_primary}"
    assert row is not None
    return {True: "true", False: "false", None: "null, which does not pass"}[row[0]]
