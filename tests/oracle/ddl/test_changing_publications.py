"""Publications, tables and partitions that change under a running gateway, and natively."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg import sql

from gateway.core.lsn import parse_lsn
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import (
    Connection,
    Scene,
    current_lsn,
    wait_for_copy_marker,
    wait_for_reload,
)
from tests.support.run.majors import EVALUATED_ON
from tests.support.run.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

MakeScene = Callable[..., Scene]
QUICK = {"definitions": {"watch_interval_s": 0.5}}


def published_to(scene: Scene, lsn: str, subscription: str | None = None) -> None:
    """Wait until the gateway has published everything up to `lsn`."""

    def reached() -> bool:
        ends = [
            m["end_lsn"] for m in scene.markers(subscription) if m["kind"] in ("END", "PROGRESS")
        ]
        return bool(ends) and max(ends) >= parse_lsn(lsn)

    wait_until(reached, 60, f"the gateway to publish {lsn}")


def copied(scene: Scene, table: str, subscription: str | None = None) -> None:
    """Wait until the last COPY marker of a table says that it is there."""

    def ready() -> bool:
        states = [
            m["copy"]["state"]
            for m in scene.markers(subscription)
            if m["copy"] is not None and m["copy"]["table"] == table
        ]
        return bool(states) and states[-1] == "ready"

    wait_until(ready, 60, f"{table} to be copied")


def started(scene: Scene) -> GatewayProcess:
    process = scene.project.start()
    process.wait_until_copied()
    return process


def finish(scene: Scene, process: GatewayProcess, native: NativeSubscription, end: str) -> None:
    """Let both arrive at `end`, and stop the gateway."""
    published_to(scene, end)
    assert process.terminate() == 0, process.log()
    native.wait_until_applied(end)


def refresh(native: NativeSubscription, tables: str) -> None:
    """Let the native subscriber take tables in that were added to its publications."""
    with native.database.connect() as connection:
        connection.execute(tables.encode())
        connection.execute(
            sql.SQL("ALTER SUBSCRIPTION {} REFRESH PUBLICATION").format(sql.Identifier(native.slot))
        )
    native.wait_until_copied()


def test_an_altered_publication_counts_from_the_next_row_on_as_natively(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    tables = "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE TABLE u (a int PRIMARY KEY);"
    with database.connect() as connection:
        connection.execute(tables.encode())
        connection.execute("CREATE PUBLICATION p FOR TABLE t WHERE (a > 5), u")
        connection.execute("INSERT INTO t SELECT n, 'copied' FROM generate_series(1, 9) AS n")
        native = NativeSubscription(database, make_database, tables, ["p"])
        # Never looked at in between: what counts here is what the stream itself says.
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
                  definitions={"watch_interval_s": 0.0})  # fmt: skip
        process = started(s)
        for alter in (
            "SET TABLE t WHERE (a > 20), u",
            "SET TABLE t, u WHERE (a < 0)",
            "SET (publish = 'insert, update')",
            "SET TABLE t WHERE (a % 2 = 0), u",
            "DROP TABLE u",
            "SET (publish = 'insert, update, delete, truncate')",
        ):
            connection.execute(f"ALTER PUBLICATION p {alter}".encode())
            _write(connection)
            published_to(s, current_lsn(connection))
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t") == native.rows("t")
    assert s.rebuilt("u") == native.rows("u")


def _write(connection: Connection) -> None:
    """Rows on both sides of all filters; each call has keys of its own."""
    row = connection.execute("SELECT coalesce(max(a), 0) FROM t").fetchone()
    assert row is not None
    first = row[0] + 1
    connection.execute("INSERT INTO t SELECT n, 'new' FROM generate_series(%s::int, %s::int) AS n",
                       (first, first + 5))  # fmt: skip
    connection.execute("INSERT INTO u SELECT n FROM generate_series(%s::int, %s::int) AS n",
                       (first, first + 5))  # fmt: skip
    connection.execute("INSERT INTO u VALUES (%s)", (-first,))
    connection.execute("UPDATE t SET b = b || '!'")
    connection.execute("UPDATE t SET a = a + 1000 WHERE a = %s", (first,))
    connection.execute("DELETE FROM t WHERE a IN (%s, 7)", (first + 1,))


def test_an_altered_publication_is_recorded_and_outlasts_a_restart(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (9)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t WHERE (a > 5)")
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;", **QUICK)
        process = started(s)
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a > 10)")
        wait_for_reload(s)
        connection.execute("INSERT INTO t VALUES (7), (12)")
        published_to(s, current_lsn(connection))
        assert process.terminate() == 0, process.log()
        connection.execute("INSERT INTO t VALUES (8), (13)")
        s.run_to(current_lsn(connection))
        assert "event triggers on the source make that exact" in s.cli("check").out

    # As natively: what has matched before stays.
    assert s.rebuilt("t") == [(12,), (13,), (9,)]
    assert [m["kind"] for m in s.markers()].count("RELOAD") == 1


@pytest.mark.parametrize("kind", ["ALL TABLES", "TABLES IN SCHEMA public"])
def test_tables_that_are_created_later_are_taken_in(
    scene: MakeScene, database: Database, kind: str, make_database: DatabaseFactory
) -> None:
    first = "CREATE TABLE t (a int PRIMARY KEY);"
    later = "CREATE TABLE later (a int PRIMARY KEY, b text);"
    with database.connect() as connection:
        connection.execute(first.encode())
        connection.execute(f"CREATE PUBLICATION p FOR {kind}".encode())
        native = NativeSubscription(database, make_database, first, ["p"])
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;", **QUICK)
        process = started(s)
        connection.execute(f"{later} INSERT INTO later VALUES (1, 'one'), (2, 'two')".encode())
        connection.execute("UPDATE later SET b = 'zwei' WHERE a = 2")
        copied(s, "later")
        refresh(native, later)
        connection.execute("DELETE FROM later WHERE a = 1; INSERT INTO later VALUES (3, 'three')")
        connection.execute("INSERT INTO t VALUES (1)")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("later") == native.rows("later") == [(2, "zwei"), (3, "three")]
    assert s.rebuilt("t") == native.rows("t") == [(1,)]


def test_a_table_that_becomes_logged_is_taken_in(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    first = "CREATE TABLE u (a int PRIMARY KEY);"
    table = "TABLE t (a int PRIMARY KEY, b text);"
    with database.connect() as connection:
        connection.execute(f"{first} CREATE UNLOGGED {table}".encode())
        connection.execute("INSERT INTO t VALUES (1, 'unlogged'), (2, 'unlogged')")
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        native = NativeSubscription(database, make_database, first, ["p"])
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;", **QUICK)
        process = started(s)
        connection.execute("ALTER TABLE t SET LOGGED; INSERT INTO t VALUES (3, 'logged')")
        copied(s, "t")
        refresh(native, f"CREATE {table}")
        connection.execute("DELETE FROM t WHERE a = 1; INSERT INTO t VALUES (4, 'logged')")
        connection.execute("INSERT INTO u VALUES (1)")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t") == native.rows("t")
    assert [row[0] for row in s.rebuilt("t")] == [2, 3, 4]


def test_quiet_definitions_are_not_reloaded(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TREE.encode())
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
                  definitions={"watch_interval_s": 0.1})  # fmt: skip
        process = started(s)
        for number in range(3):
            connection.execute("INSERT INTO tree VALUES (%s, 'x')", (number,))
            connection.execute("ANALYZE")  # the server announces its relations again
            published_to(s, current_lsn(connection))
        assert process.terminate() == 0, process.log()

    assert "RELOAD" not in [m["kind"] for m in s.markers()]
    assert process.log().count("streaming slot=") == 1


TREE = """
CREATE TABLE tree (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
CREATE TABLE low PARTITION OF tree FOR VALUES FROM (0) TO (100);
"""
ROOT = "CREATE TABLE tree (a int PRIMARY KEY, b text);"
LEAF = "CREATE TABLE {} (a int PRIMARY KEY, b text);"


@pytest.mark.parametrize("mixed", [False, True], ids=["read by root", "read by leaf"])
def test_partitions_that_come_and_go_are_followed(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, mixed: bool
) -> None:
    with database.connect() as connection:
        connection.execute(TREE.encode())
        connection.execute("CREATE PUBLICATION roots FOR TABLE tree"
                           " WITH (publish_via_partition_root)")  # fmt: skip
        connection.execute("CREATE PUBLICATION leaves FOR TABLE tree")
        native = NativeSubscription(database, make_database, ROOT, ["roots"])
        other = "CREATE SUBSCRIPTION {s}_l CONNECTION '' PUBLICATION leaves;" if mixed else ""
        s = scene(f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION roots; {other}", **QUICK)
        process = started(s)

        connection.execute("CREATE TABLE mid PARTITION OF tree FOR VALUES FROM (100) TO (200)")
        connection.execute("INSERT INTO tree VALUES (1, 'low'), (101, 'mid')")
        connection.execute("UPDATE tree SET b = b || '!'")
        published_to(s, current_lsn(connection))

        # Its rows were never in the publication: a subscriber never gets those that are there.
        connection.execute("CREATE TABLE high (a int PRIMARY KEY, b text);"
                           " INSERT INTO high VALUES (201, 'before'), (202, 'before')")  # fmt: skip
        connection.execute("ALTER TABLE tree ATTACH PARTITION high FOR VALUES FROM (200) TO (300)")
        connection.execute("INSERT INTO tree VALUES (203, 'after')")
        connection.execute("UPDATE tree SET b = 'changed' WHERE a IN (201, 203)")
        published_to(s, current_lsn(connection))

        connection.execute("ALTER TABLE tree DETACH PARTITION mid")
        connection.execute("INSERT INTO mid VALUES (102, 'detached')")
        connection.execute("DELETE FROM tree WHERE a = 1")
        if mixed:
            copied(s, "high", f"{s.slot}_l")
            connection.execute("INSERT INTO high VALUES (204, 'late')")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("tree") == native.rows("tree")
    if mixed:
        published = s.source_rows("SELECT * FROM high")
        assert s.rebuilt("high", f"{s.slot}_l") == published


def test_a_table_whose_publication_cannot_be_followed_is_held_at_its_next_row(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, f float8)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t WITH (publish = 'insert')")
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
                  definitions={"watch_interval_s": 0.0}, filters={"server": "off"})  # fmt: skip
        process = started(s)
        connection.execute("INSERT INTO t VALUES (1, 1)")
        published_to(s, current_lsn(connection))
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (sin(f) > 0)")
        connection.execute("INSERT INTO t VALUES (2, 2)")

        wait_for_copy_marker(s, "t", "held")
        assert process.terminate() == 0, process.log()
        shown = s.cli("status")

    assert shown.code == 1
    assert "public.t: held" in shown.out and "sin" in shown.out
    assert s.rebuilt("t") == [(1, 1.0)]
