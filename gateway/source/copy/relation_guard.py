"""Guard against reading, by name, a view whose code would run with its rows.

A table can be renamed while it is copied, and a view, or a foreign table with a domain, take its
name. A server that can is set to read neither (`restrict_nonsystem_relation_kind`). On one that
cannot, the name is locked first and then looked up: a table that is locked keeps its name and its
kind. Only the owner of its schema can still rename that meanwhile.

Source: PostgreSQL release notes 16.4 (CVE-2024-7348); LockTableCommand in lockcmds.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql

from gateway.definitions.model import Table
from gateway.source.copy.errors import TableChanged
from gateway.source.session.session import can_restrict

__all__ = ["check_name", "guarded", "lock"]

_OID_OF: Final = "SELECT pg_catalog.to_regclass(%s)::pg_catalog.oid"


def lock(connection: psycopg.Connection[Any], table: Table) -> None:
    """Lock the table by its name, in the open transaction, if necessary.

    Raises:
        TableChanged: another relation has its name now.
        psycopg.Error: the server refuses, or is gone.
    """
    if can_restrict(connection.info.server_version):
        return
    only = sql.SQL("" if table.kind == "p" else "ONLY ")
    name = sql.Identifier(table.schema, table.name)
    connection.execute(sql.SQL("LOCK TABLE {}{} IN ACCESS SHARE MODE").format(only, name))
    check_name(connection, table)


def check_name(connection: psycopg.Connection[Any], table: Table) -> None:
    """Refuse a table whose name is that of another relation now.

    Raises:
        TableChanged: see above.
        psycopg.Error: the server refuses, or is gone.
    """
    name = sql.Identifier(table.schema, table.name).as_string(connection)
    row = connection.execute(_OID_OF, [name]).fetchone()
    if row is None or row[0] != table.oid:
        raise TableChanged(f"reading {table}: another table has its name now")


@contextmanager
def guarded(connection: psycopg.Connection[Any], table: Table) -> Iterator[None]:
    """Make it safe to read the table by its name in the block, in a transaction if necessary.

    Raises:
        TableChanged: another relation has its name now.
        psycopg.Error: the server refuses, or is gone.
    """
    if can_restrict(connection.info.server_version):
        yield
        return
    with connection.transaction():
        lock(connection, table)
        yield
