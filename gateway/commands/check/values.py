"""Findings about values in the tables that their Avro types cannot carry.

Only types that are carried as such by choice, and lose values that tables often have, are looked
at: a look is a scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import psycopg
from psycopg import sql

from gateway.commands.check.findings import Finding, Severity, fine
from gateway.config import Settings
from gateway.definitions.model import Plan, Table
from gateway.definitions.tables.keys import key_of
from gateway.envelope.schema import describe
from gateway.source.copy.relation_guard import lock
from gateway.source.session.connection import classify_server_error

__all__ = ["value_findings"]

_LIMIT_S: Final = 5
"""Seconds for which a column is looked through."""

_UNCARRIED: Final[Mapping[str, tuple[str, str]]] = {
    "time": ("{0}::pg_catalog.time OPERATOR(pg_catalog.=) '24:00'::pg_catalog.time", "24:00"),
    "array": (
        "pg_catalog.array_ndims({0}) OPERATOR(pg_catalog.>) 1"
        " OR pg_catalog.array_lower({0}, 1) OPERATOR(pg_catalog.<>) 1",
        "arrays of several dimensions, or with a lower bound other than 1",
    ),
}
"""Condition on a column with such a value, and what it is, by conversion."""


def value_findings(
    connection: psycopg.Connection, settings: Settings, plan: Plan
) -> Iterator[Finding]:
    """Yield the columns that have values which cannot be carried, by a look into the tables."""
    for oid in sorted({publish.target_oid for publish in plan.publishes}):
        table = plan.tables[oid]
        publishes = [publish for publish in plan.publishes if publish.target_oid == oid]
        columns = [c for c in table.columns if any(p.publishes(c) for p in publishes)]
        key = key_of(table, {column.name for column in columns})
        described = describe(table.schema, table.name, columns, key, types=settings.types)
        for field in described.fields:
            if field.type.conversion in _UNCARRIED:
                condition, what = _UNCARRIED[field.type.conversion]
                name = f"table {table}: column {field.column}"
                yield from _finding(
                    _has(connection, table, field.column, condition), name, what, settings
                )


def _finding(has: bool | str, name: str, what: str, settings: Settings) -> Iterator[Finding]:
    if isinstance(has, str):
        yield fine(f"{name} was not searched for {what}: {has}")
    elif has:
        stops = settings.on_error.value == "stop"
        yield Finding(
            Severity.WARNING,
            f"{name} has {what}, which Avro cannot carry: "
            + ("the gateway stops there" if stops else "such changes go to the error topic"),
            'carry it as text: [types.columns] "schema.table.column" = "text"',
        )


def _has(connection: psycopg.Connection, table: Table, column: str, condition: str) -> bool | str:
    """Whether a row fulfils the condition, or why that is not known."""
    query = sql.SQL("SELECT 1 FROM {}{} WHERE {} LIMIT 1").format(
        sql.SQL("" if table.kind == "p" else "ONLY "),
        sql.Identifier(table.schema, table.name),
        sql.SQL(condition).format(sql.Identifier(column)),
    )
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"SET LOCAL statement_timeout = '{_LIMIT_S}s'".encode())
            lock(connection, table)
            return connection.execute(query).fetchone() is not None
    except psycopg.errors.QueryCanceled:
        return f"that takes longer than {_LIMIT_S} s"
    except psycopg.errors.InsufficientPrivilege as error:
        return error.diag.message_primary or "permission denied"
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing=f"reading {table}") from None
