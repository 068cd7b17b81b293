"""The judge: native subscriptions to the same publications, on the same server.

Each has a database of its own, because they subscribe to tables of the same name. A subscription
to its own cluster must not create its slot itself: CREATE SUBSCRIPTION would wait for its own
transaction to end. Therefore the slots are made first.

Source: CREATE SUBSCRIPTION, Notes; wait_for_catchup in PostgreSQL's test suite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from devkit.demo.scenario import PUBLISHER, SUBSCRIPTIONS, TABLES, Subscription
from devkit.demo.verdict import TableRows
from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.lsn import Lsn, format_lsn

__all__ = ["NativeSubscriptions", "execute", "read_table"]

Connection: TypeAlias = psycopg.Connection[tuple[object, ...]]


class NativeSubscriptions:
    """All subscriptions of the scenario, as PostgreSQL itself serves them.

    `subscribe` needs the publisher's database with its publications.
    """

    def __init__(self, postgres: EmbeddedPostgres) -> None:
        self._postgres = postgres
        self._connections: dict[str, Connection] = {}
        self._publisher: Connection | None = None

    @staticmethod
    def database(subscription: str) -> str:
        """The subscriber's database."""
        return f"test_sub_{subscription}"

    def subscribe(self) -> None:
        """Make databases, tables, slots and subscriptions; copying begins in the background."""
        self._publisher = self._postgres.connect(PUBLISHER)
        for subscription in SUBSCRIPTIONS:
            database = self.database(subscription.name)
            execute(self._publisher, f"CREATE DATABASE {database}")
            self._connections[subscription.name] = self._postgres.connect(database)
            for statement in TABLES:
                execute(self._connections[subscription.name], statement)
        for subscription in SUBSCRIPTIONS:
            self._publisher.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')",
                [_slot(subscription.name)],
            )
            execute(self._connections[subscription.name], self._statement(subscription))

    def _statement(self, subscription: Subscription) -> str:
        server = make_conninfo(
            self._postgres.dsn(PUBLISHER), application_name=_slot(subscription.name)
        )
        return subscription.statement(
            server,
            f"create_slot = false, slot_name = '{_slot(subscription.name)}'",
        )

    def copied(self) -> bool:
        """Whether the initial data synchronization of every table has ended."""
        return all(
            not connection.execute(
                "SELECT FROM pg_subscription_rel WHERE srsubstate <> 'r'"
            ).fetchall()
            for connection in self._connections.values()
        )

    def applied(self, lsn: Lsn) -> bool:
        """Whether every subscription has applied all that was committed up to `lsn`."""
        assert self._publisher is not None
        row = self._publisher.execute(
            "SELECT count(*) FROM pg_stat_replication"
            " WHERE application_name = ANY(%s) AND replay_lsn >= %s::pg_lsn",
            [[_slot(s.name) for s in SUBSCRIPTIONS], format_lsn(lsn)],
        ).fetchone()
        return row == (len(SUBSCRIPTIONS),)

    def tables(self, subscription: str) -> list[tuple[str, str]]:
        """Schema and name of every table that PostgreSQL says is subscribed to."""
        rows = self._connections[subscription].execute(
            "SELECT n.nspname, c.relname FROM pg_subscription_rel r"
            " JOIN pg_class c ON c.oid = r.srrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
            " ORDER BY 1, 2"
        )
        return [(str(schema), str(table)) for schema, table in rows]

    def rows(self, subscription: str, schema: str, table: str) -> TableRows:
        """Return the rows of a subscriber's table."""
        return read_table(self._connections[subscription], schema, table)

    def close(self) -> None:
        """Close the connections; the subscriptions go on as long as the server runs."""
        for connection in (*self._connections.values(), self._publisher):
            if connection is not None:
                connection.close()


def _slot(subscription: str) -> str:
    return f"native_{subscription}"


def execute(connection: Connection, statement: str) -> None:
    """Execute a statement of the scenario; these are our own texts, with nothing put into them."""
    connection.execute(statement)


def read_table(connection: Connection, schema: str, table: str) -> TableRows:
    """Read a table: every value as PostgreSQL's text, ordered by all columns."""
    cursor = connection.execute(
        sql.SQL("SELECT * FROM {} LIMIT 0").format(sql.Identifier(schema, table))
    )
    assert cursor.description is not None
    columns = tuple(column.name for column in cursor.description)
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(c)) for c in columns)
    order = sql.SQL(", ").join(sql.Identifier(table, c) for c in columns)
    rows: Sequence[tuple[object, ...]] = connection.execute(
        sql.SQL("SELECT {} FROM {} ORDER BY {}").format(texts, sql.Identifier(schema, table), order)
    ).fetchall()
    return TableRows(columns, tuple(tuple(_text(value) for value in row) for row in rows))


def _text(value: object) -> str | None:
    return None if value is None else str(value)
