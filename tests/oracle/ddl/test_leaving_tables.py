"""Tables that are dropped or renamed while the stream is behind, and natively."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGCONT, SIGSTOP

import pytest

from tests.oracle.ddl.test_changing_publications import copied, finish, published_to, started
from tests.support.backends.proxy import Proxy
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import (
    Scene,
    current_lsn,
    wait_for_copy_marker,
    wait_for_reload,
)
from tests.support.run.majors import EVALUATED_ON

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
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


@pytest.mark.parametrize("kind", ["ALL TABLES", "TABLE u, TABLE t WHERE (a < 50)"])
def test_what_is_dropped_while_the_gateway_is_down_is_published_as_natively(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, kind: str
) -> None:
    tables = "CREATE TABLE t (a int PRIMARY KEY, m text); CREATE TABLE u (a int PRIMARY KEY);"
    with database.connect() as connection:
        connection.execute(tables.encode())
        connection.execute(f"CREATE PUBLICATION p FOR {kind}".encode())
        native = NativeSubscription(database, make_database, tables, ["p"])
        s = scene(DEFINED, **QUICK)
        s.run_to("0/1")
        connection.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        connection.execute("INSERT INTO u VALUES (1); DROP TABLE t")
        end = current_lsn(connection)
        s.run_to(end)
        process = s.project.start()
        wait_for_reload(s)
        connection.execute("INSERT INTO u VALUES (2)")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t") == native.rows("t") == [(1, "one"), (2, "two")]
    assert s.rebuilt("u") == native.rows("u") == [(1,), (2,)]
    assert _copy_states(s, "t")[-1] == "gone"


def _copy_states(scene: Scene, table: str) -> list[str]:
    copies = [m["copy"] for m in scene.markers() if m["copy"] is not None]
    return [copy["state"] for copy in copies if copy["table"] == table]


LISTED = "CREATE PUBLICATION p FOR TABLE t, u; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
MAKE = "CREATE TABLE t (a int PRIMARY KEY, b text);"


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_a_table_that_is_made_again_begins_anew_and_loses_no_row(
    scene: MakeScene, database: Database, down: bool
) -> None:
    with database.connect() as connection:
        connection.execute(f"{MAKE} CREATE TABLE u (a int PRIMARY KEY)".encode())
        connection.execute("INSERT INTO t VALUES (1, 'old'), (100, 'old')")
        s = scene(LISTED, **QUICK)
        process = started(s)
        if down:
            assert process.terminate() == 0
        connection.execute("INSERT INTO t VALUES (2, 'old'); INSERT INTO u VALUES (1)")
        connection.execute("DROP TABLE t")
        connection.execute(MAKE.encode())
        connection.execute("INSERT INTO t SELECT n, 'new' FROM generate_series(1, 20) AS n")
        if down:
            process = s.project.start()
        wait_for_reload(s)
        connection.execute("INSERT INTO t VALUES (21, 'new'); DELETE FROM t WHERE a = 3")
        copied(s, "t")
        end = current_lsn(connection)
        published_to(s, end)
        assert process.terminate() == 0, process.log()
        rows = s.source_rows("SELECT * FROM t")

    assert s.rebuilt("t") == rows
    assert s.rebuilt("u") == [(1,)]
    assert [r.op for r in s.read("t")].count("t") == 2


def test_a_listed_table_that_is_gone_does_not_keep_the_gateway_from_starting(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(f"{MAKE} CREATE TABLE u (a int PRIMARY KEY)".encode())
        s = scene(LISTED, **QUICK)
        s.run_to("0/1")
        connection.execute("DROP TABLE t; INSERT INTO u VALUES (1)")
        process = started(s)
        wait_for_copy_marker(s, "t", "missing")
        connection.execute("INSERT INTO u VALUES (2)")
        wait_for_reload(s)
        published_to(s, current_lsn(connection))
        assert process.terminate() == 0, process.log()
        assert "public.t: missing, not there any more" in s.cli("status").out
        process = started(s)
        connection.execute(f"{MAKE} INSERT INTO t VALUES (1, 'back')".encode())
        copied(s, "t")
        assert process.terminate() == 0, process.log()

    assert s.rebuilt("u") == [(1,), (2,)]
    assert s.rebuilt("t") == [(1, "back")]
    assert _copy_states(s, "t")[-4:] == ["missing", "pending", "copying", "ready"]


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_two_tables_that_swap_their_names_are_what_they_are_called(
    scene: MakeScene, database: Database, down: bool
) -> None:
    with database.connect() as connection:
        connection.execute(f"{MAKE} CREATE TABLE u (a int PRIMARY KEY, b text)".encode())
        connection.execute("INSERT INTO t VALUES (1, 't'); INSERT INTO u VALUES (2, 'u')")
        s = scene(LISTED, **QUICK)
        process = started(s)
        if down:
            assert process.terminate() == 0
        connection.execute(
            "BEGIN; INSERT INTO t VALUES (3, 't'); ALTER TABLE t RENAME TO x;"
            "ALTER TABLE u RENAME TO t; ALTER TABLE x RENAME TO u; INSERT INTO t VALUES (4, 'u');"
            "COMMIT"
        )
        connection.execute("INSERT INTO t VALUES (5, 'u'); INSERT INTO u VALUES (6, 't')")
        if down:
            process = s.project.start()
        wait_for_reload(s)
        connection.execute("UPDATE t SET b = b || '!'")
        copied(s, "t")
        copied(s, "u")
        published_to(s, current_lsn(connection))
        assert process.terminate() == 0, process.log()
        rows = [s.source_rows("SELECT * FROM t"), s.source_rows("SELECT * FROM u")]

    assert [s.rebuilt("t"), s.rebuilt("u")] == rows


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_a_listed_table_is_followed_to_its_new_name(
    scene: MakeScene, database: Database, down: bool
) -> None:
    with database.connect() as connection:
        connection.execute(f"{MAKE} CREATE TABLE u (a int PRIMARY KEY)".encode())
        connection.execute("INSERT INTO t VALUES (1, 'old')")
        s = scene(LISTED, **QUICK)
        process = started(s)
        if down:
            assert process.terminate() == 0
        connection.execute("INSERT INTO t VALUES (2, 'old'); ALTER TABLE t RENAME TO t2")
        connection.execute("INSERT INTO t2 VALUES (3, 'new')")
        if down:
            process = s.project.start()
        copied(s, "t2")
        assert process.terminate() == 0, process.log()
        connection.execute("INSERT INTO t2 VALUES (4, 'new')")
        s.run_to(current_lsn(connection))
        rows = s.source_rows("SELECT * FROM t2")

    assert s.rebuilt("t2") == rows
    assert "is called public.t2 now" in process.log() or not down


def test_what_leaves_a_publication_while_the_server_is_away_is_published_up_to_there(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    tables = "CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY);"
    with database.connect() as connection, Proxy(database.dsn) as proxy:
        connection.execute(tables.encode())
        connection.execute("CREATE PUBLICATION p FOR TABLE t, u")
        native = NativeSubscription(database, make_database, tables, ["p"])
        s = scene(DEFINED, **QUICK, source={"dsn": proxy.through(database.dsn)})
        process = started(s)
        proxy.refuse()
        proxy.reset()
        process.wait_until_doing("retrying")
        connection.execute("INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
        connection.execute("ALTER PUBLICATION p DROP TABLE t")
        connection.execute("INSERT INTO t VALUES (2); INSERT INTO u VALUES (2)")
        proxy.accept()
        wait_for_reload(s)
        connection.execute("INSERT INTO t VALUES (3); INSERT INTO u VALUES (3)")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("u") == native.rows("u") == [(1,), (2,), (3,)]
    assert s.rebuilt("t") == native.rows("t") == [(1,)]


@pytest.mark.parametrize(
    "leave",
    ["ALTER TABLE tree DETACH PARTITION high", "ALTER PUBLICATION p DROP TABLE tree"],
    ids=["detached", "dropped from the publication"],
)
def test_what_leaves_a_publication_while_the_gateway_is_down_is_published_up_to_there(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, leave: str
) -> None:
    leaves = "CREATE TABLE low (a int PRIMARY KEY); CREATE TABLE high (a int PRIMARY KEY);"
    tables = "CREATE TABLE u (a int PRIMARY KEY);"
    tree = (
        "CREATE TABLE tree (a int PRIMARY KEY) PARTITION BY RANGE (a);"
        "CREATE TABLE low PARTITION OF tree FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE high PARTITION OF tree FOR VALUES FROM (100) TO (200);"
    )
    with database.connect() as connection:
        connection.execute(f"{tables} {tree}".encode())
        connection.execute("CREATE PUBLICATION p FOR TABLE u, tree")
        native = NativeSubscription(database, make_database, tables + leaves, ["p"])
        s = scene(DEFINED, **QUICK)
        s.run_to("0/1")
        connection.execute("INSERT INTO tree VALUES (1), (101), (102)")
        connection.execute("DELETE FROM tree WHERE a = 102; INSERT INTO u VALUES (1)")
        connection.execute(leave.encode())
        connection.execute("INSERT INTO high VALUES (103); INSERT INTO u VALUES (2)")
        process = s.project.start()
        wait_for_reload(s)
        connection.execute("INSERT INTO high VALUES (104); INSERT INTO u VALUES (3)")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("u") == native.rows("u") == [(1,), (2,), (3,)]
    assert s.rebuilt("high") == native.rows("high") == [(101,)]
    assert s.rebuilt("low") == native.rows("low") == [(1,)]
    assert _copy_states(s, "high")[-1] == "gone"


@pytest.mark.parametrize("down", [False, True], ids=["running", "down"])
def test_a_renamed_table_keeps_its_topic_where_that_is_asked_for(
    scene: MakeScene, database: Database, down: bool
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
        s = scene(DEFINED, **QUICK, topics={"on_rename": "keep"})
        process = started(s)
        for before, name, row in (("t", "t2", 2), ("t2", "t3", 3)):
            if down:
                assert process.terminate() == 0, process.log()
            connection.execute(f"ALTER TABLE {before} RENAME TO {name}".encode())
            connection.execute(f"INSERT INTO {name} VALUES ({row})".encode())
            if down:
                process = s.project.start()
            copied(s, name)
        connection.execute("INSERT INTO t3 VALUES (4); DELETE FROM t3 WHERE a = 1")
        # Its name is free again: the topic goes to who bears it.
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (9)")
        published_to(s, current_lsn(connection))
        assert s.rebuilt("t") == [(2,), (3,), (4,)]
        connection.execute("ALTER PUBLICATION p ADD TABLE t")
        copied(s, "t")
        copied(s, "t3")
        assert process.terminate() == 0, process.log()

    assert s.rebuilt("t") == [(9,)]
    assert s.rebuilt("t3") == [(2,), (3,), (4,)]
