"""Visibility of streamed transactions in the catalog.

The server streams a commit as soon as it is flushed. Other sessions see the transaction a little
later, and with synchronous standbys only when these have confirmed it: until then the catalog is as
it was before.

Source: CommitTransaction, RecordTransactionCommit in xact.c (SyncRepWaitForLSN comes before
ProcArrayEndTransaction).
"""

from __future__ import annotations

import time
from typing import Final

import psycopg

from gateway.copy.snapshot import Snapshot
from gateway.core.errors import TransientError
from gateway.source.session.server_errors import classify_server_error

__all__ = ["read_snapshot", "wait_until_visible"]

_POLL_S: Final = 0.002
_LONGEST_S: Final = 10.0
_SNAPSHOT: Final = b"""
    SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text, pg_catalog.pg_is_in_recovery()"""


def wait_until_visible(
    connection: psycopg.Connection, xid: int, timeout_s: float = _LONGEST_S
) -> None:
    """Wait until queries on an autocommit connection see a committed transaction.

    A standby streams only what it has replayed, and there is nothing to wait for.

    Args:
        connection: Connection to the source.
        xid: Top-level transaction id of 32 bits, as in the stream.
        timeout_s: Timeout in seconds.

    Raises:
        TransientError: it is not visible within `timeout_s`, or the connection is gone.
    """
    deadline = time.monotonic() + timeout_s
    while not _is_visible(connection, xid):
        if time.monotonic() >= deadline:
            raise TransientError(
                f"transaction {xid} is committed, and other sessions do not see it"
                f" after {timeout_s:.0f} s",
                hint="a synchronous standby has not confirmed it: see synchronous_standby_names"
                " and pg_stat_replication",
            )
        time.sleep(_POLL_S)


def read_snapshot(connection: psycopg.Connection) -> Snapshot:
    """Return a snapshot; later queries on an autocommit connection see no less.

    Raises:
        TransientError: the connection is gone.
    """
    try:
        row = connection.execute(_SNAPSHOT).fetchone()
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing="reading the snapshot") from None
    assert row is not None
    text, in_recovery = row
    return Snapshot.parse(text, in_recovery=in_recovery)


def _is_visible(connection: psycopg.Connection, xid: int) -> bool:
    snapshot = read_snapshot(connection)
    return snapshot.running is None or snapshot.sees(xid)
