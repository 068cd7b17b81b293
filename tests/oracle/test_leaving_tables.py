"""Tables that are dropped or renamed while the stream is behind, and natively."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGCONT, SIGSTOP

import pytest

from tests.gateway_process import GatewayProcess
from tests.gateway_scene import Scene, current_lsn
from tests.native import NativeSubscription
from tests.oracle.majors import MAJORS
from tests.oracle.test_changing_publications import copied, finish, published_to, started
from tests.servers import Database, DatabaseFactory

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", MAJORS, indirect=True),
]

MakeScene = Callable[..., Scene]
QUICK = {"definitions": {"watch_interval_s": 0.5}}
DEFINED = "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"


@contextmanager
def lagging(process: GatewayProcess) -> Iterator[None]:
    """Let the gateway see the catalog of afterwards, whatever it reads of the stream."""
    process.send(SIGSTOP)
    try:
        yield
    finally:
        process.send(SIGCONT)


@pytest.mark.parametrize("kind", ["ALL TABLES", "TABLES IN SCHEMA public", "TABLE t, u"])
def test_the_last_rows_of_a_dropped_table_are_published_as_natively(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, kind: str
) -> None:
    tables = (
        "CREATE TYPE mood AS ENUM ('sad', 'glad');"
        "CREATE TABLE t (a int PRIMARY KEY, m mood); CREATE TABLE u (a int PRIMARY KEY);"
    )
    with database.connect() as connection:
        connection.execute(tables.encode())
        connection.execute(f"CREATE PUBLICATION p FOR {kind}".encode())
        native = NativeSubscription(database, make_database, tables, ["p"])
        native.wait_until_copied()
        s = scene(DEFINED, **QUICK)
        process = started(s)
        with lagging(process):
            connection.execute("INSERT INTO t VALUES (1, 'sad'), (2, 'glad')")
            connection.execute("ALTER TABLE t ADD COLUMN later mood; ALTER TABLE t DROP later")
            connection.execute("INSERT INTO u VALUES (1)")
            connection.execute("UPDATE t SET m = 'glad' WHERE a = 1")
            connection.execute("DROP TABLE t; DROP TYPE mood")
        published_to(s, current_lsn(connection))
        connection.execute("INSERT INTO u VALUES (2)")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t") == native.rows("t") == [(1, "glad"), (2, "glad")]
    assert s.rebuilt("u") == native.rows("u") == [(1,), (2,)]


def test_a_column_of_a_type_that_is_gone_arrives_as_text(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        native = NativeSubscription(
            database, make_database, "CREATE TABLE t (a int PRIMARY KEY, m text)", ["p"]
        )
        native.wait_until_copied()
        s = scene(DEFINED, **QUICK)
        process = started(s)
        with lagging(process):
            connection.execute("CREATE TYPE mood AS ENUM ('sad', 'glad')")
            connection.execute("ALTER TABLE t ADD COLUMN m mood")
            connection.execute("INSERT INTO t VALUES (1, 'sad'), (2, 'glad')")
            connection.execute("DROP TABLE t; DROP TYPE mood")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t") == native.rows("t") == [(1, "sad"), (2, "glad")]


def test_a_renamed_table_goes_on_under_its_new_name_as_natively(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        tables = "CREATE TABLE t (a int PRIMARY KEY);"
        connection.execute(tables.encode())
        connection.execute("INSERT INTO t VALUES (1)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
        native = NativeSubscription(database, make_database, tables, ["p"])
        native.wait_until_copied()
        s = scene(DEFINED, **QUICK)
        process = started(s)
        with native.database.connect() as subscriber:
            subscriber.execute("ALTER TABLE t RENAME TO t2")
        with lagging(process):
            connection.execute("ALTER TABLE t RENAME TO t2")
            connection.execute("INSERT INTO t2 VALUES (2)")
        copied(s, "t2")
        connection.execute("INSERT INTO t2 VALUES (3); DELETE FROM t2 WHERE a = 1")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t2") == native.rows("t2") == [(2,), (3,)]
    assert "never announced" not in process.log()
