"""Changes of the members of the gateway's own publications for which nothing waits.

Every table of a statement takes a place in the server's lock table until the transaction ends, and
keeps others from it while the statement waits for the next. Hence small batches, each in a
transaction of its own, without the locked tables. One that the server refuses spoils no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql

from gateway.source.provisioning.publication_sql import table_names
from gateway.source.session.blockers import locked_tables

__all__ = ["Changed", "Tables", "batches", "change_members"]

Tables: TypeAlias = Mapping[int, tuple[str, str]]
"""Schema and name of tables, by OID."""

_AT_ONCE: Final = 50
_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '100ms'"
_PASSING: Final = frozenset(
    {"55P03", "40P01", "42P01", "3F000", "42704", "42710", "53200", "57014", "25006"}
)
"""SQLSTATEs of a lock, of what others have just altered, and of a server that takes nothing now."""


@dataclass(frozen=True, slots=True)
class Changed:
    """Outcome of `change_members`.

    Attributes:
        statements: The executed statements.
        oids: Their tables.
        refused: Messages of the server, by OID, about tables that it would refuse again.
    """

    statements: tuple[sql.Composed, ...]
    oids: Set[int]
    refused: Mapping[int, str]


def batches(tables: Tables) -> Iterator[Tables]:
    """Yield the tables in parts that are small enough for one statement."""
    oids = sorted(tables)
    for first in range(0, len(oids), _AT_ONCE):
        yield {oid: tables[oid] for oid in oids[first : first + _AT_ONCE]}


def change_members(
    connection: psycopg.Connection[Any], make: Callable[[Tables], sql.Composed], tables: Tables
) -> Changed:
    """Run the statement that `make` returns for tables, for as many of `tables` as possible now.

    Raises:
        psycopg.Error: the connection is gone.
    """
    locked = locked_tables(connection, tables)
    waiting = list(batches({oid: name for oid, name in tables.items() if oid not in locked}))
    done: list[sql.Composed] = []
    changed: set[int] = set()
    refused: dict[int, str] = {}
    while waiting:
        some = waiting.pop(0)
        try:
            statement = _change(connection, make, some)
        except psycopg.Error as error:
            if connection.closed:
                raise
            if len(some) > 1:
                waiting[:0] = ({oid: name} for oid, name in some.items())
            elif error.sqlstate not in _PASSING:
                refused |= dict.fromkeys(some, error.diag.message_primary or str(error))
        else:
            if statement is not None:
                done.append(statement)
                changed |= some.keys()
    return Changed(tuple(done), changed, refused)


def _change(
    connection: psycopg.Connection[Any], make: Callable[[Tables], sql.Composed], tables: Tables
) -> sql.Composed | None:
    """Run the statement for tables; None if they get other names meanwhile, and nothing was done.

    A name that is another table's by now would take that one in or out.
    """
    done = None
    with connection.transaction():
        connection.execute(_LOCK_TIMEOUT)
        if named := table_names(connection, tables):
            statement = make(named)
            connection.execute(statement)
            if table_names(connection, named) != named:
                raise psycopg.Rollback
            done = statement
    return done
