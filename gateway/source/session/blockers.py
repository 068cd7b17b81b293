"""Sessions and transactions that the gateway's sessions wait for on the source server.

The daemon and a command in another process see the same: a session of the gateway has its task and
slot in its ``application_name``, see `session_name`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Literal, LiteralString, TypeAlias

import psycopg

from gateway.source.session.server_errors import classify_server_error

__all__ = [
    "Task",
    "Wait",
    "has_sessions",
    "lock_holders",
    "locked_tables",
    "session_name",
    "waits",
]

Task: TypeAlias = Literal["slot", "copy", "reload"]
"""Task of a session: creates or reads the slot, copies tables, applies changed definitions."""

_OF_SLOT: Final = """
a.datname = pg_catalog.current_database() AND a.application_name ~ '^pgsluice (copy|reload)'
AND (pg_catalog.split_part(a.application_name, ' ', 3) = %(slot)s
     OR pg_catalog.length(a.application_name) = 63
        AND pg_catalog.starts_with(%(slot)s, pg_catalog.split_part(a.application_name, ' ', 3)))
"""
# A prepared transaction has no process: pg_blocking_pids has 0 for it.
_WAITS: Final[LiteralString] = """
WITH mine AS (
  SELECT r.active_pid AS pid, 'slot' AS task, NULL::pg_catalog.xid AS before
  FROM pg_catalog.pg_replication_slots r WHERE r.slot_name = %(slot)s AND r.active
  UNION ALL
  SELECT a.pid, pg_catalog.substring(a.application_name, '^pgsluice ([a-z]+)'),
         (pg_catalog.substring(a.application_name, '^pgsluice copy<([0-9]+) ')::numeric
          %% 4294967296)::pg_catalog.text::pg_catalog.xid
  FROM pg_catalog.pg_stat_activity a
  WHERE {of_slot}
), blocked AS (
  SELECT m.task, m.pid, m.before, pg_catalog.pg_blocking_pids(m.pid) AS by FROM mine m
)
SELECT b.task, a.pid, a.application_name, a.datname::pg_catalog.text, NULL,
       extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::bigint
FROM blocked b JOIN pg_catalog.pg_stat_activity a
  ON a.pid = ANY (b.by) OR pg_catalog.age(a.backend_xid) > pg_catalog.age(b.before)
UNION
SELECT b.task, NULL, NULL, p.database::pg_catalog.text, p.gid,
       extract(epoch FROM pg_catalog.clock_timestamp() - p.prepared)::bigint
FROM blocked b JOIN pg_catalog.pg_prepared_xacts p
  ON pg_catalog.age(p.transaction) > pg_catalog.age(b.before) OR 0 = ANY (b.by) AND EXISTS (
    SELECT FROM pg_catalog.pg_locks w
    JOIN pg_catalog.pg_locks h
      ON h.pid IS NULL AND (h.transactionid = w.transactionid
                            OR h.relation = w.relation AND h.database = w.database)
    JOIN pg_catalog.pg_locks own
      ON own.pid IS NULL AND own.virtualtransaction = h.virtualtransaction
    WHERE w.pid = b.pid AND NOT w.granted AND own.transactionid = p.transaction)
ORDER BY 1, 2, 5
""".replace("{of_slot}", _OF_SLOT)
# What ALTER PUBLICATION ADD TABLE waits for: modes that conflict with ShareUpdateExclusiveLock.
_LOCKS: Final[LiteralString] = """
l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()
  AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                    WHERE d.datname = pg_catalog.current_database())
  AND l.relation = ANY (%(tables)s::pg_catalog.oid[])
  AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
"""
_LOCKED: Final = """
SELECT DISTINCT l.relation::bigint FROM pg_catalog.pg_locks l WHERE {locks}
""".replace("{locks}", _LOCKS)
_HOLDERS: Final = """
SELECT DISTINCT 'reload', l.pid, a.application_name,
       coalesce(a.datname, p.database)::pg_catalog.text, p.gid,
       extract(epoch FROM pg_catalog.clock_timestamp() - coalesce(a.xact_start, p.prepared))::bigint
FROM pg_catalog.pg_locks l
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
LEFT JOIN pg_catalog.pg_locks own
  ON l.pid IS NULL AND own.pid IS NULL AND own.transactionid IS NOT NULL
     AND own.virtualtransaction = l.virtualtransaction
LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = own.transactionid
WHERE l.granted AND {locks} AND (l.mode <> 'ShareUpdateExclusiveLock' OR %(vacuum)s)
ORDER BY 1, 2, 5
""".replace("{locks}", _LOCKS)


@dataclass(frozen=True, slots=True)
class Wait:
    """A task that waits until transactions of others have ended.

    Attributes:
        names: Names of the transactions: process, application and database, or gid.
        age_s: Age of the oldest, in seconds; None if the role may not see it.
    """

    task: Task
    names: tuple[str, ...]
    age_s: int | None = None

    def __str__(self) -> str:
        return "; ".join(self.names)


_Row: TypeAlias = tuple[Task, int | None, str | None, str | None, str | None, int | None]


def session_name(task: Task, slot: str, *, before: int | None = None) -> str:
    """Return the ``application_name`` of a session; the server keeps 63 characters of it.

    `before`: 64-bit id before which it waits for all transactions.
    """
    return f"pgsluice {task}{'' if before is None else f'<{before}'} {slot}"


def has_sessions(connection: psycopg.Connection, slot: str) -> bool:
    """Whether the gateway of `slot` copies tables, or applies changed definitions.

    A DSN with an ``application_name`` of its own hides these sessions.
    """
    query = "SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a WHERE {of_slot})"
    row = connection.execute(query.replace("{of_slot}", _OF_SLOT), {"slot": slot}).fetchone()
    return row is not None and bool(row[0])


def waits(connection: psycopg.Connection, slot: str) -> tuple[Wait, ...]:
    """Return the waits of the gateway of `slot`.

    A DSN with an ``application_name`` of its own hides the sessions that copy and reload, except
    while they say what they wait for. On a standby, transactions of the primary have no name.

    Raises:
        TransientError: the connection is gone.
    """
    return tuple(_asked(connection, _WAITS, {"slot": slot}))


def lock_holders(
    connection: psycopg.Connection, tables: Collection[int], *, vacuum: bool = True
) -> Wait | None:
    """Return the holders of locks on `tables` (OIDs) that block adding them to a publication.

    Without `vacuum`, VACUUM and the like are ignored, since they end or give way.

    Raises:
        TransientError: the connection is gone.
    """
    return next(_asked(connection, _HOLDERS, {"tables": list(tables), "vacuum": vacuum}), None)


def locked_tables(connection: psycopg.Connection, tables: Collection[int]) -> frozenset[int]:
    """Return those of `tables` (OIDs) that cannot be added to a publication now without a wait.

    Raises:
        psycopg.Error: the connection is gone.
    """
    rows = connection.execute(_LOCKED, {"tables": list(tables)})
    return frozenset(oid for (oid,) in rows)


def _asked(
    connection: psycopg.Connection, query: LiteralString, parameters: Mapping[str, Any]
) -> Iterator[Wait]:
    try:
        rows: list[_Row] = connection.execute(query, parameters).fetchall()
    except psycopg.Error as error:
        doing = "asking for running transactions"
        raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
    for task, group in groupby(rows, key=lambda row: row[0]):
        found = list(group)
        ages = [row[5] for row in found if row[5] is not None]
        yield Wait(task, tuple(_named(*row[1:5]) for row in found), max(ages, default=None))


def _named(pid: int | None, application: str | None, database: str | None, gid: str | None) -> str:
    who = f"pid {pid}" if gid is None else f"prepared transaction {gid!r}"
    known = [("application", application), ("database", database)]
    details = ", ".join(f"{what} {name!r}" for what, name in known if name)
    return f"{who} ({details})" if details else who
