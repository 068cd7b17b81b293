"""Who keeps a session of the source server waiting for the end of a transaction, by name."""

from __future__ import annotations

from typing import Final

import psycopg

from gateway.errors import GatewayError
from gateway.source.connection import connect

__all__ = ["awaited_transactions"]

_LOOK_S: Final = 5.0
# Whoever waits for a transaction waits for a lock on its xid. A prepared one has no process.
_QUERY: Final = """
SELECT a.pid, a.application_name, a.datname::text, NULL,
       extract(epoch FROM clock_timestamp() - a.xact_start)::bigint
FROM pg_catalog.pg_stat_activity a
WHERE a.pid = ANY (pg_catalog.pg_blocking_pids(%(pid)s))
UNION ALL
SELECT NULL, NULL, p.database::text, p.gid,
       extract(epoch FROM clock_timestamp() - p.prepared)::bigint
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = l.transactionid
WHERE l.pid = %(pid)s AND NOT l.granted
"""


def awaited_transactions(dsn: str, pid: int) -> tuple[str, list[int]]:
    """Name the transactions that process `pid` of the server waits for now; and their ages.

    Each by its process, application and database; a prepared one by its gid. A role that may not
    see other sessions' activity (``pg_read_all_stats``) gets the process and the database.

    Returns:
        One line and the ages in seconds, as far as known; both are empty when it waits for none,
        or when the server does not say.
    """
    try:
        with connect(dsn, statement_timeout_s=_LOOK_S) as connection:
            rows = connection.execute(_QUERY, {"pid": pid}).fetchall()
    except (GatewayError, psycopg.Error):
        return "", []
    names = [_named(*row[:4]) for row in rows]
    return "; ".join(names), [row[4] for row in rows if row[4] is not None]


def _named(pid: int | None, application: str | None, database: str | None, gid: str | None) -> str:
    who = f"pid {pid}" if gid is None else f"prepared transaction {gid!r}"
    known = [("application", application), ("database", database)]
    details = ", ".join(f"{what} {name!r}" for what, name in known if name)
    return f"{who} ({details})" if details else who
