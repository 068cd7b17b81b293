"""kill -9 of the gateway at every stage: nothing lost, nothing twice, nothing by half."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from threading import Event

import psycopg
import pytest

from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    value_of,
)
from tests.support.run.waiting import wait_until
from tests.support.workloads.dml import PUBLICATIONS, TABLES, Workload

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

MakeScene = Callable[..., Scene]
# Without pc: two publications that publish other operations of one table can leave rows behind with
# the native subscriber, which then stops at a conflict.
NATIVE = ("pa", "pb", "pd", "pe")
NATIVE_TABLES = ("keyed", "filtered", "whole", "bag", "indexed", "toasted", "appended", "parted")


def streaming(dsn: str) -> str:
    """The same server, which then streams transactions that are larger than 64 kB."""
    return psycopg.conninfo.make_conninfo(dsn, options="-c logical_decoding_work_mem=64kB")


def test_a_copy_that_was_killed_goes_on_after_its_last_chunk(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY, b int);"
            "INSERT INTO t SELECT i, 0 FROM generate_series(1, 12000) i"
        )
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0);"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            copy={"chunk_rows": 500, "rows_per_second": 2000},
        )
        gateway = s.project.start()
        wait_until(lambda: len(copied(s)) >= 1000, 60, "the first chunks")
        gateway.kill()
        connection.execute("DELETE FROM t WHERE a <= 10; INSERT INTO t VALUES (0, 1)")
        connection.execute("UPDATE t SET a = 0 - a WHERE a > 11900")
        before = copied(s)

        gateway = s.project.start()
        gateway.wait_until_copied()
        gateway.kill()
        s.run_to(current_lsn(connection))

        assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE a % 2 = 0")
    assert_exactly_once(s, ("t",))
    records = s.read("t")
    assert [r.value and r.value["source"]["snapshot"] for r in records if r.op == "t"] == ["first"]
    # What was copied is not copied again, but for the chunk that was under way.
    assert len(set(before) & set(copied(s)[len(before) :])) <= 250


def copied(scene: Scene) -> list[int]:
    """The keys of the rows of the copy of `t`, in the order of the topic."""
    topic = scene.topic("t")
    if not scene.reader.has(topic):
        return []
    return [r.key["a"] for r in scene.read("t") if r.op == "r" and r.key is not None]


def test_kills_at_random_moments_end_in_the_native_subscriptions_tables(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, seed: int
) -> None:
    pick = random.Random(seed)
    with database.connect() as connection:
        connection.execute(f"{TABLES} {PUBLICATIONS}".encode())
        native = NativeSubscription(database, make_database, TABLES, NATIVE)
        s = scene(
            f"{PUBLICATIONS}"
            f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION {', '.join(NATIVE)};",
            limits={"progress_interval_s": 0.2, "max_batch_records": 20},
            source={"dsn": streaming(database.dsn)},
        )
        workload = Workload(connection, seed)
        workload.run(30)

        def work(stop: Event) -> None:
            while not stop.is_set():
                workload.run(1)
                stop.wait(0.002)

        def overlap(stop: Event) -> None:
            """Transactions large enough to be streamed, open while those of `work` commit."""
            with database.connect() as other:
                while not stop.is_set():
                    with other.transaction():
                        other.execute(
                            "INSERT INTO whole SELECT i, i, repeat('z', 2000)"
                            " FROM generate_series(1000, 1060) i"
                            " ON CONFLICT (a) DO UPDATE SET b = whole.b + 1"
                        )
                        stop.wait(0.05)
                        other.execute("DELETE FROM whole WHERE a > 1050")
                    stop.wait(0.05)

        with running(work), running(overlap):
            gateway = s.project.start()
            for number in range(8):
                if number % 2 == 0:  # the others are killed while they start, too
                    gateway.wait_until_doing("streaming")
                Event().wait(pick.random() * 1.5)  # a moment, not a condition
                gateway.kill()
                gateway = s.project.start()
            gateway.kill()
        workload.run(10)
        connection.execute("DELETE FROM keyed WHERE a = 0")  # flushes what was rolled back
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)
    for table in NATIVE_TABLES:
        assert s.rebuilt(table) == native.rows(table), table
    assert_exactly_once(s, NATIVE_TABLES)


@pytest.mark.parametrize("streamed", [False, True], ids=["at once", "streamed"])
def test_nobody_sees_a_part_of_a_large_transaction_that_was_killed_in_the_middle(
    scene: MakeScene, database: Database, streamed: bool
) -> None:
    rows = 30_000
    with database.connect() as connection:
        connection.execute("CREATE TABLE large (a int PRIMARY KEY, b text)")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE large;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            limits={"max_batch_records": 200, "progress_interval_s": 0.2},
            source={"dsn": streaming(database.dsn) if streamed else database.dsn},
        )
        # It dies by itself: a busy machine can be too late to kill what is still in the middle.
        gateway = s.project.start(environment={"PGSLUICE_FAILPOINT": "pipeline.piece_submitted:4"})
        gateway.wait_until_copied()
        connection.execute(
            "INSERT INTO large SELECT i, repeat('x', 50) FROM generate_series(1, %s) i", [rows]
        )
        assert gateway.wait(60) == -signal.SIGKILL, gateway.log()
        assert 0 < s.uncommitted_end("large") < rows, "no piece of it is in the topic"
        assert [r for r in s.read("large") if r.op != "t"] == []

        s.run_to(current_lsn(connection))
        assert len(s.rebuilt("large")) == rows == value_of(connection, "SELECT count(*) FROM large")
    assert_exactly_once(s, ("large",))
