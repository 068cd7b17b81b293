"""Partitions that are detached, moved and dropped while the stream is behind, and natively."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from gateway.source.provisioning.event_trigger import INSTALL
from tests.oracle.ddl.test_changing_publications import finish, published_to, started
from tests.oracle.ddl.test_leaving_tables import lagging
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Connection, Scene, current_lsn, running, value_of
from tests.support.run.majors import EVALUATED_ON
from tests.support.run.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

TREES = """
    CREATE TABLE r (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
    CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (100);
    CREATE TABLE r2 PARTITION OF r FOR VALUES FROM (100) TO (200);
    CREATE TABLE q (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
    CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (100);
    INSERT INTO r VALUES (1, 'one'), (101, 'hundred'); INSERT INTO q VALUES (2, 'two')"""
MOVES = (
    "INSERT INTO r VALUES (3, 'three'), (103, 'third')",
    "UPDATE r SET b = b || '!' WHERE a IN (1, 101)",
    "BEGIN; ALTER TABLE r DETACH PARTITION r2;"
    "ALTER TABLE q ATTACH PARTITION r2 FOR VALUES FROM (100) TO (200); COMMIT",
    "INSERT INTO q VALUES (107, 'seventh')",
    "UPDATE q SET b = b || '?' WHERE a IN (2, 101)",
    "DELETE FROM q WHERE a = 103",
    "INSERT INTO r VALUES (4, 'four')",
    "DROP TABLE r1",
    "INSERT INTO q VALUES (5, 'five')",
)


def decoding(database: Database) -> Callable[[Event], None]:
    """Have the walsender decode something all the time, for `running`.

    A server process that does nothing while others make tables loses count of what they have
    changed (sinvaladt.c keeps 4,096 messages for all databases). It forgets all relations then, and
    its walsender announces each once more, before anything has moved.
    """

    def work(stop: Event) -> None:
        with database.connect() as connection:
            while not stop.wait(0.01):
                connection.execute("SELECT pg_logical_emit_message(true, 'decode this', '')")

    return work


def after_moves(
    scene: Scene, process: GatewayProcess, connection: Connection, *, down: bool, told: bool = False
) -> GatewayProcess:
    """Make all `MOVES` while the gateway is down, or lags; return the one that runs then.

    Unless the stream tells of moves, a partition's second announcement does. A server that decodes
    a change only when the partition has moved announces it before that change, and so too early.
    """
    if not down:
        with lagging(process):
            for move in MOVES:
                connection.execute(move.encode())
                if not told:
                    decoded(scene, connection, current_lsn(connection))
        return process
    assert process.terminate() == 0, process.log()
    for move in MOVES:
        connection.execute(move.encode())
    process = scene.project.start()
    process.wait_until_doing("streaming")
    return process


def decoded(scene: Scene, connection: Connection, lsn: str) -> None:
    """Wait until the gateway's walsender has come to `lsn`."""
    query = (
        "SELECT sent_lsn >= %s::pg_lsn FROM pg_stat_replication JOIN pg_replication_slots"
        " ON active_pid = pid WHERE slot_name = %s"
    )
    wait_until(lambda: value_of(connection, query, lsn, scene.slot), 60, f"{lsn} to be decoded")


@pytest.mark.parametrize("down", [False, True], ids=["lagging", "down"])
@pytest.mark.parametrize("via_root", [False, True], ids=["by leaf", "by root"])
def test_partitions_that_move_and_go_end_as_natively(
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    *,
    via_root: bool,
    down: bool,
) -> None:
    subscribed = ["r", "q"] if via_root else ["r1", "r2", "q1"]
    tables = "".join(f"CREATE TABLE {name} (a int PRIMARY KEY, b text);" for name in subscribed)
    with database.connect() as connection:
        connection.execute(TREES.encode())
        options = f"WITH (publish_via_partition_root = {via_root})"
        connection.execute(f"CREATE PUBLICATION p FOR TABLE r, q {options}".encode())
        native = NativeSubscription(database, make_database, tables, ["p"])
        s = scene(
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            definitions={"watch_interval_s": 0.5},
        )
        process = started(s)
        with running(decoding(database)):
            process = after_moves(s, process, connection, down=down)
        connection.execute("INSERT INTO q VALUES (6, 'six'), (108, 'eighth')")
        finish(s, process, native, current_lsn(connection))

    assert {name: s.rebuilt(name) for name in subscribed} == {
        name: native.rows(name) for name in subscribed
    }


@pytest.mark.parametrize("how", ["lagging", "down", "told"])
def test_partitions_that_move_between_trees_read_by_root_and_by_leaf_end_as_natively(
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    *,
    how: str,
) -> None:
    taken = {"roots": ["r", "q"], "leaves": ["r1", "r2", "q1"]}
    with database.connect() as connection:
        connection.execute(f"{TREES}; {INSTALL if how == 'told' else ''}".encode())
        connection.execute("CREATE PUBLICATION roots FOR TABLE r, q"
                           " WITH (publish_via_partition_root)")  # fmt: skip
        connection.execute("CREATE PUBLICATION leaves FOR TABLE r, q")
        native = {
            publication: NativeSubscription(
                database,
                make_database,
                "".join(f"CREATE TABLE {name} (a int PRIMARY KEY, b text);" for name in names),
                [publication],
            )
            for publication, names in taken.items()
        }
        s = scene(
            "CREATE SUBSCRIPTION {s}_roots CONNECTION '' PUBLICATION roots;"
            " CREATE SUBSCRIPTION {s}_leaves CONNECTION '' PUBLICATION leaves;",
            definitions={"watch_interval_s": 0.5},
        )
        process = started(s)
        with running(decoding(database)):
            if how == "lagging":
                # Without being told, the gateway knows by a partition's second announcement.
                connection.execute("UPDATE r SET b = b; UPDATE q SET b = b")
                for publication in taken:
                    published_to(s, current_lsn(connection), f"{s.slot}_{publication}")
            process = after_moves(s, process, connection, down=how == "down")
        connection.execute("INSERT INTO q VALUES (6, 'six'), (108, 'eighth')")
        end = current_lsn(connection)
        for publication in taken:
            published_to(s, end, f"{s.slot}_{publication}")
            native[publication].wait_until_applied(end)
        assert process.terminate() == 0, process.log()

    for publication, names in taken.items():
        found = {name: s.rebuilt(name, f"{s.slot}_{publication}") for name in names}
        assert found == {name: native[publication].rows(name) for name in names}
