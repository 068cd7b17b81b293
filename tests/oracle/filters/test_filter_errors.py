"""Where pgoutput gets to a filter that raises, and where not: what the gateway relies on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.support.backends.servers import Connection, Database

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", [16, 18], indirect=True),
]

INSERT = "INSERT INTO t VALUES (0, 'x')"


@pytest.fixture
def connection(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute("INSERT INTO t VALUES (1, 'one')")
        connection.execute("CREATE PUBLICATION p FOR TABLE t WHERE (10 / a > 1)")
        connection.execute("CREATE PUBLICATION everything FOR TABLE t")
        connection.execute(
            "CREATE PUBLICATION deletes FOR TABLE t WHERE (10 / a > 1) WITH (publish = 'delete')"
        )
        yield connection


@contextmanager
def slot(connection: Connection) -> Iterator[str]:
    name = f"probe_{connection.info.dbname}"
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    try:
        yield name
    finally:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))


def decoded(connection: Connection, name: str, publications: str, origin: str = "any") -> str:
    """The tags of the messages, or what the filter raised."""
    try:
        rows = connection.execute(
            "SELECT chr(get_byte(data, 0)) FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
            " 'proto_version', '1', 'publication_names', %s, 'origin', %s)",
            (name, publications, origin),
        ).fetchall()
    except psycopg.errors.DivisionByZero as error:
        return str(error.diag.message_primary)
    return "".join(row[0] for row in rows)


@pytest.mark.parametrize(
    ("statements", "publications", "expected"),
    [
        pytest.param([INSERT], "p", "division by zero", id="insert"),
        pytest.param([INSERT], "everything", "BRIC", id="no filter"),
        pytest.param([INSERT], "p,everything", "BRIC", id="one of two has no filter"),
        pytest.param([INSERT], "deletes", "", id="an operation that is not published"),
        pytest.param(
            ["UPDATE t SET a = 0 WHERE a = 1"], "p", "division by zero", id="the new row raises"
        ),
        pytest.param(
            ["ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET a = 0 WHERE a = 1"],
            "p",
            "division by zero",
            id="the new row raises under full",
        ),
        pytest.param(["TRUNCATE t"], "p", "BRTC", id="truncate"),
    ],
)
def test_pgoutput_raises_where_it_evaluates_the_filter(
    connection: Connection, statements: list[str], publications: str, expected: str
) -> None:
    with slot(connection) as name:
        for statement in statements:
            connection.execute(statement.encode())

        assert decoded(connection, name, publications) == expected


@pytest.mark.parametrize("change", ["UPDATE t SET a = 2 WHERE a = 0", "DELETE FROM t WHERE a = 0"])
def test_pgoutput_raises_for_the_old_row(connection: Connection, change: str) -> None:
    connection.execute(INSERT)
    with slot(connection) as name:
        connection.execute(change.encode())

        assert decoded(connection, name, "p") == "division by zero"


def test_a_transaction_from_elsewhere_does_not_reach_the_filter_under_origin_none(
    connection: Connection,
) -> None:
    origin = f"elsewhere_{connection.info.dbname}"
    with slot(connection) as name:
        connection.execute("SELECT pg_replication_origin_create(%s)", (origin,))
        connection.execute("SELECT pg_replication_origin_session_setup(%s)", (origin,))
        try:
            connection.execute(INSERT)
        finally:
            connection.execute("SELECT pg_replication_origin_session_reset()")
            connection.execute("SELECT pg_replication_origin_drop(%s)", (origin,))

        assert decoded(connection, name, "p", "none") == ""
        assert decoded(connection, name, "p", "any") == "division by zero"
