"""Tables and partitions that come and go while they are copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    value_of,
    wait_for_copy_marker,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
SLOW = {"copy": {"rows_per_second": 300}, "definitions": {"watch_interval_s": 0.3}}
SUBSCRIBED = "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
TREE = (
    "CREATE TABLE tree (a int PRIMARY KEY, b int) PARTITION BY RANGE (a);"
    "CREATE TABLE low PARTITION OF tree FOR VALUES FROM (0) TO (1000);"
    "CREATE TABLE middle PARTITION OF tree FOR VALUES FROM (1000) TO (3000);"
    "CREATE TABLE high PARTITION OF tree FOR VALUES FROM (3000) TO (4000);"
    "INSERT INTO tree SELECT n, n FROM generate_series(0, 3999) AS n;"
    "CREATE TABLE early (a int PRIMARY KEY, b int); CREATE TABLE late (a int PRIMARY KEY, b int);"
    "INSERT INTO early SELECT n, n FROM generate_series(-300, -1) AS n;"
    "INSERT INTO late SELECT n, n FROM generate_series(4000, 4299) AS n"
)


def copying(scene: Scene, table: str) -> GatewayProcess:
    """Start the gateway; return it when some rows of a table are copied, and others not."""
    process = scene.project.start()
    wait_for_copy_marker(scene, table, "copying")
    wait_until(lambda: len(scene.read(table)) > 200, 60, "some rows to be copied")
    return process


def finish(scene: Scene, connection: Connection, process: GatewayProcess) -> None:
    end = current_lsn(connection)
    assert process.terminate() == 0
    scene.run_to(end)


def states(scene: Scene, table: str) -> list[str]:
    """Of the COPY markers of a table."""
    copies = [m["copy"] for m in scene.markers() if m["kind"] == "COPY"]
    return [copy["state"] for copy in copies if copy["table"] == table]


@pytest.mark.parametrize("kind", ["ALL TABLES", "TABLE t, u"])
def test_a_table_that_is_dropped_in_the_middle_of_its_copy_leaves_the_others_alone(
    scene: MakeScene, database: Database, kind: str
) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY);"
            "INSERT INTO t SELECT generate_series(1, 4000);"
            "INSERT INTO u SELECT generate_series(1, 2000)"
        )
        s = scene(
            f"CREATE PUBLICATION p FOR {kind}; {SUBSCRIBED}",
            copy={"rows_per_second": 300, "parallel": 1},
            definitions={"watch_interval_s": 0.3},
        )
        process = copying(s, "t")
        connection.execute("UPDATE t SET a = a + 10000 WHERE a IN (1, 4000); DROP TABLE t")
        connection.execute("INSERT INTO u VALUES (2001)")
        wait_until(lambda: states(s, "u")[-1:] == ["ready"], 60, "u to be copied")
        assert states(s, "t")[-1] in ("gone", "missing")
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        connection.execute("INSERT INTO t VALUES (1, 'x')")
        wait_until(lambda: states(s, "t")[-1:] == ["ready"], 60, "the new table to be copied")
        finish(s, connection, process)
        assert s.rebuilt("t") == [(1, "x")]
        assert s.rebuilt("u") == s.source_rows("SELECT * FROM u")
    assert_exactly_once(s, ["t", "u"])


def test_a_table_that_was_renamed_for_a_moment_is_copied(
    scene: MakeScene, database: Database
) -> None:
    def readers_that_wait() -> int:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND query ^@ 'COPY (' AND wait_event_type = 'Lock'"
        )
        return int(value_of(connection, query))

    with database.connect() as connection, database.connect() as other:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        connection.execute("INSERT INTO t SELECT generate_series(1, 4000)")
        s = scene(
            f"CREATE PUBLICATION p FOR ALL TABLES; {SUBSCRIBED}",
            copy={"rows_per_second": 300},
            definitions={"watch_interval_s": 10},
        )
        process = copying(s, "t")
        with other.transaction():
            other.execute("ALTER TABLE t RENAME TO away")
            wait_until(readers_that_wait, 60, "a chunk to be read")
        wait_until(lambda: not readers_that_wait(), 60, "the reader to be refused")
        other.execute("ALTER TABLE away RENAME TO t")
        wait_until(lambda: states(s, "t")[-1:] == ["ready"], 60, "t to be copied")
        finish(s, connection, process)
        assert s.rebuilt("t") == s.source_rows("SELECT * FROM t")
    assert_exactly_once(s, ["t"])


def change_partitions(connection: Connection) -> None:
    connection.execute("ALTER TABLE tree ATTACH PARTITION early FOR VALUES FROM (-1000) TO (0)")
    connection.execute("ALTER TABLE tree ATTACH PARTITION late FOR VALUES FROM (4000) TO (5000)")
    connection.execute("UPDATE tree SET b = -b WHERE a % 50 = 0")
    connection.execute("ALTER TABLE tree DETACH PARTITION high")
    connection.execute("UPDATE high SET b = 7 WHERE a % 10 = 0; DELETE FROM tree WHERE a = 20")


def test_leaves_that_are_attached_and_detached_while_they_are_copied_are_as_the_source(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TREE.encode())
        s = scene(f"CREATE PUBLICATION p FOR TABLE tree; {SUBSCRIBED}", **SLOW)
        process = copying(s, "middle")
        change_partitions(connection)
        wait_until(
            lambda: all(states(s, t)[-1:] == ["ready"] for t in ("early", "low", "middle", "late")),
            60,
            "all to be ready",
        )
        finish(s, connection, process)
        for table in ("early", "low", "middle", "late"):
            assert s.rebuilt(table) == s.source_rows(f"SELECT * FROM {table}"), table
    assert states(s, "high")[-1] == "gone"
    assert_exactly_once(s, ["early", "low", "middle", "high", "late"])


def test_a_tree_whose_partitions_change_while_it_is_copied_is_as_the_source(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TREE.encode())
        s = scene(
            "CREATE PUBLICATION p FOR TABLE tree WITH (publish_via_partition_root = true);"
            f"{SUBSCRIBED}",
            **SLOW,
        )
        process = copying(s, "tree")
        change_partitions(connection)
        wait_until(lambda: states(s, "tree")[-1:] == ["ready"], 60, "the tree to be ready")
        wait_until(lambda: "again" not in s.cli("status").out, 60, "all of it to be copied")
        finish(s, connection, process)
        rebuilt = s.rebuilt("tree")
        # What had been copied of a partition stays when it is detached, as it was before.
        left = [(a, b) for a, b in rebuilt if 3000 <= a < 4000]
        assert set(left) <= {(n, -n if n % 50 == 0 else n) for n in range(3000, 4000)}
        rest = [row for row in rebuilt if row not in left]
        assert rest == s.source_rows("SELECT * FROM tree")
    assert_exactly_once(s, ["tree"])
