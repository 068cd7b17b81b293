"""Conditions that narrow the read of a table: an operator's, or the subscriptions' filters.

The filters are the server's own rendering of them, and it evaluates them as the walsender would:
one after the other, each as it is written, and only on rows of the range that is read. No plan
therefore moves one in front of another. If one raises, the table is read without them, and the
gateway's own evaluation reports the row.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from gateway.core.errors import FilterError
from gateway.definitions.model import Table
from gateway.definitions.sql.foreign_code import first_reference, foreign_name
from gateway.source.copy.literals import literal_types
from gateway.source.copy.relation_guard import lock

__all__ = ["border", "check_condition", "condition", "foreign_code", "joined", "ratio", "select"]


def _from(table: Table) -> sql.Composed:
    """Return FROM: a partitioned table with all its leaves, any other with its own rows only."""
    return sql.SQL("{}{}").format(
        sql.SQL("" if table.kind == "p" else "ONLY "), sql.Identifier(table.schema, table.name)
    )


def select(
    table: Table, columns: Sequence[str], tail: sql.Composable, narrow: Sequence[str] = ()
) -> sql.Composed:
    """Return the query of `columns` of the rows of a table that match `tail` and `narrow`.

    Args:
        table: The table, as the session sees it.
        columns: Columns, including those that the filters read.
        tail: WHERE and ORDER BY; the order stays.
        narrow: Filters, of which one has to be true; empty for all rows.
    """
    listed = sql.SQL(", ").join(map(sql.Identifier, columns))
    rows = sql.SQL("SELECT {} FROM {}{}").format(listed, _from(table), tail)
    if not narrow:
        return rows
    cases = sql.SQL(" ").join(_case(text) for text in narrow)
    # OFFSET 0 keeps the filters outside.
    return sql.SQL("SELECT * FROM ({} OFFSET 0) AS range WHERE CASE {} ELSE false END").format(
        rows, cases
    )


def border(
    table: Table, key: Sequence[str], order: sql.Composable, where: sql.Composable, limit: int
) -> sql.Composed:
    """Return the query of the key of the last of the next `limit` rows, and their number."""
    listed = sql.SQL(", ").join(map(sql.Identifier, key))
    number = sql.Identifier("number of the row")
    return sql.SQL(
        "SELECT {}, {} FROM (SELECT {}, pg_catalog.row_number() OVER (ORDER BY {}) AS {} FROM {}{}"
        " ORDER BY {} LIMIT {}) AS range ORDER BY {} DESC LIMIT 1"
    ).format(
        *(listed, number, listed, order, number, _from(table), where),
        *(order, sql.Literal(limit), number),
    )


def ratio(table: Table, narrow: Sequence[str]) -> tuple[sql.Composed, sql.Composed]:
    """Return the queries to explain, of the wanted rows and of all: the planner estimates them."""
    every = sql.SQL("SELECT FROM {}").format(_from(table))
    texts = sql.SQL(" OR ").join(sql.SQL("({})").format(sql.SQL(text)) for text in narrow)
    return sql.SQL("{} WHERE {}").format(every, texts), every


def _case(text: str) -> sql.Composed:
    return sql.SQL("WHEN ({}) THEN true").format(sql.SQL(text))


def condition(where: str) -> list[sql.Composable]:
    """Return a given condition in parentheses; nothing if it is empty."""
    return [sql.SQL("({}\n)").format(sql.SQL(where))] if where else []


def joined(conditions: Sequence[sql.Composable]) -> sql.Composable:
    """Return WHERE with all conditions; nothing if there are none."""
    if not conditions:
        return sql.SQL("")
    return sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(conditions))


def check_condition(connection: psycopg.Connection, table: Table, where: str) -> str | None:
    """Return why `where` is no condition on rows of a table for the server, or None.

    Raises:
        TableChanged: another relation has the table's name.
    """
    if (why := foreign_code(connection, table, where)) is not None:
        return why
    try:
        with connection.transaction():
            connection.execute("SET TRANSACTION READ ONLY")
            lock(connection, table)
            tail = joined(condition(where)) + sql.SQL(" LIMIT 0")
            connection.execute(select(table, (), tail))
    except psycopg.Error as error:
        return error.diag.message_primary or str(error)
    return None


def foreign_code(connection: psycopg.Connection, table: Table, where: str) -> str | None:
    """Return why the server would run code of other roles for a condition, or None."""
    try:
        name = foreign_name(where)
    except FilterError as error:
        return error.message
    if name is not None:
        return f"{name} is not a part of PostgreSQL: use built-in functions, operators and types"
    columns = {c.name: (c.type_oid, c.type_modifier) for c in table.columns}
    types = literal_types(connection, table, columns, allow_unsafe=True)
    for name, found in types.items():
        if (found.cast or found.unsafe) and first_reference(where, [name]) is not None:
            return f"column {name} has a type whose values are read by code of its owner"
    return None
