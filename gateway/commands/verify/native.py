"""Reader of a native subscriber's tables, all as of one position of the source."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import psycopg
from psycopg import sql

from gateway.copy.lines import CopyRow, split_copy_line
from gateway.core.closing import Closing
from gateway.core.display import shown
from gateway.core.errors import FatalError, TransientError
from gateway.core.lsn import Lsn, parse_lsn
from gateway.source.session.connection import connect
from gateway.source.session.server_errors import classify_server_error

__all__ = ["NativeReader"]

_POLL_S: Final = 0.05
_SUBSCRIPTIONS: Final = """
    SELECT s.subname::pg_catalog.text, s.oid FROM pg_catalog.pg_subscription AS s
    WHERE s.subdbid = (SELECT d.oid FROM pg_catalog.pg_database AS d
        WHERE d.datname = pg_catalog.current_database())"""
_COPYING: Final = """
    SELECT pg_catalog.count(*) FROM pg_catalog.pg_subscription_rel
    WHERE srsubid = %s AND srsubstate <> 'r'"""
_POSITION: Final = """
    SELECT coalesce(pg_catalog.pg_replication_origin_progress(%s, false), '0/0')::pg_catalog.text"""


class NativeReader(Closing):
    """A connection to the database of a native subscription. Close it.

    Args:
        dsn: DSN of that database.
        subscription: name of its subscription, unless it has only one.
        deadline: `time.monotonic` at which waiting ends.

    Raises:
        TransientError: the server cannot be reached.
        FatalError: there is no such subscription, or the server refuses the role.
    """

    def __init__(self, dsn: str, subscription: str, deadline: float) -> None:
        self._deadline = deadline
        self._connection = connect(
            dsn,
            application_name="pgsluice verify",
            statement_timeout_s=0,
        )
        found = {str(name): int(oid) for name, oid in self._rows(_SUBSCRIPTIONS)}
        oid = found.get(subscription)
        if oid is None and len(found) == 1:
            (oid,) = found.values()
        if oid is None:
            raise FatalError(
                f"the native subscriber has no subscription {subscription}",
                hint=shown(f"it has {', '.join(sorted(found)) or 'none'}"),
            )
        self._oid = oid

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def open(self) -> Lsn:
        """Begin a transaction that sees the tables as they are at one position; return it.

        Its apply worker moves the position with each transaction, just before that can be seen. The
        position must therefore be the same before and after the snapshot; a transaction still in
        flight then shows as a difference that is gone at the next comparison.

        Raises:
            TransientError: tables are still being copied, or transactions follow too closely.
        """
        while True:
            self._connection.execute("ROLLBACK")
            copying = self._value(_COPYING, self._oid) != "0"
            before = self._value(_POSITION, f"pg_{self._oid}")
            self._connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            self._value("SELECT pg_catalog.pg_current_snapshot()::pg_catalog.text")
            if not copying and self._value(_POSITION, f"pg_{self._oid}") == before:
                return parse_lsn(before)
            if time.monotonic() > self._deadline:
                raise TransientError("the native subscription is not ready", hint="try it later")
            time.sleep(_POLL_S)

    def rows(self, schema: str, table: str, columns: Sequence[str]) -> Iterator[CopyRow]:
        """Yield all rows of a table, in the open transaction.

        Raises:
            GatewayError: it cannot be read.
        """
        statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
            sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier(schema, table)
        )
        try:
            with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for line in copy:
                    yield split_copy_line(bytes(line)[:-1])
        except psycopg.Error as error:
            text = error.diag.message_primary or str(error)
            doing = f"reading {schema}.{table} of the native subscriber"
            raise classify_server_error(error.sqlstate, text, doing=doing) from None

    def _value(self, query: str, *parameters: object) -> str:
        return str(self._rows(query, *parameters)[0][0])

    def _rows(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(query.encode(), parameters).fetchall()
        except psycopg.Error as error:
            text = error.diag.message_primary or str(error)
            doing = "reading the position of the native subscription"
            raise classify_server_error(error.sqlstate, text, doing=doing) from None
