"""Conditions from outside, checked by the rules of publications' row filters.

A condition is text that will stand in a statement of the gateway's own session, so it is the same
question whoever wrote it: a person at `pgsluice copy --where`, or a record of a topic. It must be
one expression by PostgreSQL's grammar, of the nodes that a row filter may have, with no sublink and
no function but immutable built-in ones. Then the server judges it as the filter of a publication
that is rolled back; a standby, which cannot create anything, is asked about the functions by name,
and columns of user-defined types are excluded, whose casts may run foreign code.
"""

from __future__ import annotations

from collections.abc import Iterable

import psycopg

from gateway.core.errors import FatalError
from gateway.definitions.model import Table, TableClause
from gateway.definitions.sql.expression import column_names, function_names, refuse_nodes
from gateway.source.catalog.filter_text import FilterResolver
from gateway.source.catalog.tables import FIRST_NORMAL_OID
from gateway.source.copy.queries import check_condition as try_out
from gateway.source.session.server_errors import classify_server_error

__all__ = ["check_condition", "refuse_text"]

_MUTABLE = """
SELECT name FROM unnest(%s::pg_catalog.text[]) AS asked (name)
WHERE NOT EXISTS (
    SELECT FROM pg_catalog.pg_proc AS p
    WHERE p.proname OPERATOR(pg_catalog.=) asked.name::pg_catalog.name
    AND p.pronamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace
) OR EXISTS (
    SELECT FROM pg_catalog.pg_proc AS p
    WHERE p.proname OPERATOR(pg_catalog.=) asked.name::pg_catalog.name
    AND p.pronamespace OPERATOR(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace
    AND (p.provolatile OPERATOR(pg_catalog.<>) 'i' OR p.prokind OPERATOR(pg_catalog.<>) 'f'
         OR p.proretset)
)
"""


def refuse_text(connection: psycopg.Connection, texts: Iterable[str]) -> str | None:
    """Return why one of `texts` may not be part of a statement, by grammar and functions, or None.

    It is for expressions whose table no longer exists.

    Raises:
        TransientError: the connection is gone.
    """
    names: set[str] = set()
    for text in texts:
        why = refuse_nodes(text)
        if why is not None:
            return why
        names |= function_names(text)
    if not names:
        return None
    try:
        row = connection.execute(_MUTABLE.encode(), [sorted(names)]).fetchone()
    except psycopg.Error as error:
        doing = "looking at the functions of a condition"
        raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
    return None if row is None else f"function {row[0]} is not an immutable built-in one"


def check_condition(connection: psycopg.Connection, table: Table, where: str) -> str | None:
    """Return why `where` is refused as a condition on rows of a table, or None.

    Raises:
        TransientError: the server does not answer, or a lock could not be had in time.
    """
    why = refuse_nodes(where)
    if why is not None:
        return why
    row = connection.execute("SELECT pg_catalog.pg_is_in_recovery()").fetchone()
    if row is not None and row[0]:
        why = refuse_text(connection, [where]) or _made_types(table, where)
    else:
        why = _resolve(connection, table, where)
    return why or try_out(connection, table, where)


def _resolve(connection: psycopg.Connection, table: Table, where: str) -> str | None:
    clause = TableClause(schema=table.schema, name=table.name, where=where)
    try:
        with connection.transaction(force_rollback=True):
            FilterResolver(connection, "").resolve(clause, table)
    except FatalError as error:
        return " ".join(filter(None, (error.message, error.hint)))
    return None


def _made_types(table: Table, where: str) -> str | None:
    read = column_names(where)
    for column in table.columns:
        if column.name in read and column.type_oid >= FIRST_NORMAL_OID:
            return f"column {column.name} has a type of its own, and a standby cannot try it out"
    return None
