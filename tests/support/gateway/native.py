"""Native subscriptions, the judge: real publications and a real apply worker on the same server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.types.string import TextLoader

from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.run.waiting import wait_until

TIMEOUT_S = 60.0


class NativeSubscription:
    """A subscription of its own database to publications of `publisher`, its rows copied.

    The slot is made first: a subscription to its own cluster cannot make it. And nothing should be
    truncated before the copy has ended: the apply worker, its transaction open, then waits for the
    lock of a worker that copies, which waits in making its slot for all transactions of the
    cluster, the apply worker's among them. PostgreSQL sees no deadlock in that.
    """

    def __init__(
        self,
        publisher: Database,
        make_database: DatabaseFactory,
        tables: str,
        publications: Sequence[str],
        options: str = "",
    ) -> None:
        self.database = make_database("native")
        self.slot = f"native_{self.database.name}"[-60:]
        self._publisher = publisher
        with publisher.connect() as connection:
            connection.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.slot]
            )
        with self.database.connect() as connection:
            connection.execute(tables.encode())
            connection.execute(
                sql.SQL(
                    "CREATE SUBSCRIPTION {} CONNECTION {} PUBLICATION {}"
                    " WITH (create_slot = false, slot_name = {}{})"
                ).format(
                    sql.Identifier(self.slot),
                    sql.Literal(make_conninfo(publisher.server_dsn, application_name=self.slot)),
                    sql.SQL(", ").join(map(sql.Identifier, publications)),
                    sql.Literal(self.slot),
                    sql.SQL(f", {options}" if options else ""),
                )
            )
        self.wait_until_copied()

    def wait_until_copied(self) -> None:
        """Wait until the initial data synchronization of every table has ended."""
        with self.database.connect() as connection:
            query = "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'"
            wait_until(lambda: _value(connection, query) == 0, TIMEOUT_S, "the native initial copy")

    def wait_until_applied(self, lsn: str) -> None:
        """Wait until everything that was committed up to `lsn` is applied."""
        with self._publisher.connect() as connection:

            def applied() -> bool:
                row = connection.execute(
                    "SELECT replay_lsn >= %s::pg_lsn FROM pg_stat_replication"
                    " WHERE application_name = %s",
                    [lsn, self.slot],
                ).fetchone()
                return row is not None and bool(row[0])

            wait_until(applied, TIMEOUT_S, f"the native subscription to apply {lsn}")

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        """The rows of one of its tables, with or without a schema, sorted as `rebuild` sorts.

        Values of types that the topics have as text are text here, too.
        """
        with self.database.connect() as connection:
            for (oid,) in connection.execute(
                "SELECT oid FROM pg_type WHERE typcategory IN ('A', 'T', 'I', 'R')"
                " OR typname IN ('json', 'jsonb')"
            ).fetchall():
                connection.adapters.register_loader(oid, TextLoader)
            query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(*table.split(".")))
            return sorted(connection.execute(query).fetchall(), key=repr)


def _value(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]
