"""kill -9 of the gateway at every stage: nothing lost, nothing twice, nothing by half."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from threading import Event

import psycopg
import pytest

from tests.gateway_scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    value_of,
    wait_for_copy_marker,
)
from tests.native import NativeSubscription
from tests.servers import Database, DatabaseFactory
from tests.waiting import wait_until
from tests.workload import PUBLICATIONS, TABLES, Workload

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

SEED = int(os.environ.get("PGSLUICE_SEED", "7"))
MakeScene = Callable[..., Scene]
# Without pc: two publications that publish other operations of one table can leave rows behind with
# the native subscriber, which then stops at a conflict.
NATIVE = ("pa", "pb", "pd", "pe")
NATIVE_TABLES = ("keyed", "filtered", "whole", "bag", "indexed", "toasted", "appended", "parted")


def streaming(dsn: str) -> str:
    """The same server, which then streams transactions that are larger than 64 kB."""
    return psycopg.conninfo.make_conninfo(dsn, options="-c logical_decoding_work_mem=64kB")


def test_a_copy_that_was_killed_starts_anew_and_hides_the_dead_one(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE first (a int PRIMARY KEY, b int);"
            "CREATE TABLE later (a int PRIMARY KEY, b int);"
            "INSERT INTO first SELECT i, 0 FROM generate_series(1, 3000) i;"
            "INSERT INTO later SELECT i, 0 FROM generate_series(1, 12000) i"
        )
        s = scene(
            "CREATE PUBLICATION p FOR TABLE first, later WHERE (a % 2 = 0);"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            limits={"copy_batch_rows": 500, "progress_interval_s": 0.2},
        )
        gateway = s.project.start()
        wait_for_copy_marker(s, "later", "copying")
        gateway.kill()
        connection.execute("DELETE FROM first WHERE a <= 10; INSERT INTO later VALUES (0, 1)")

        gateway = s.project.start()
        gateway.wait_for("slot created")
        for key in range(20001, 20051):  # while the copy runs
            connection.execute("INSERT INTO later VALUES (%s, 1)", [key])
        gateway.wait_for("streaming")
        assert "the initial copy was not finished" in gateway.log()
        gateway.kill()
        s.run_to(current_lsn(connection))

        for table, where in (("first", "true"), ("later", "a % 2 = 0")):
            assert s.rebuilt(table) == s.source_rows(f"SELECT * FROM {table} WHERE {where}")
    assert_exactly_once(s, ("first", "later"))
    firsts = [r for r in s.read("later") if r.op == "t"]
    assert [r.value and r.value["source"]["snapshot"] for r in firsts] == ["first", "first"]
    assert firsts[0].position < firsts[1].position


def test_kills_at_random_moments_end_in_the_native_subscriptions_tables(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    pick = random.Random(SEED)
    with database.connect() as connection:
        connection.execute(f"{TABLES} {PUBLICATIONS}".encode())
        native = NativeSubscription(database, make_database, TABLES, NATIVE)
        s = scene(
            f"{PUBLICATIONS}"
            f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION {', '.join(NATIVE)};",
            limits={"progress_interval_s": 0.2, "max_batch_records": 20},
            source={"dsn": streaming(database.dsn)},
        )
        workload = Workload(connection, SEED)
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
                    gateway.wait_for("streaming")
                Event().wait(pick.random() * 1.5)  # a moment, not a condition
                gateway.kill()
                gateway = s.project.start()
            gateway.kill()
        workload.run(10)
        connection.execute("DELETE FROM keyed WHERE a = 0")  # flushes what was rolled back
        native.wait_until_copied()
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
        gateway = s.project.start()
        gateway.wait_for("streaming")
        connection.execute(
            "INSERT INTO large SELECT i, repeat('x', 50) FROM generate_series(1, %s) i", [rows]
        )
        # Pieces of it are in the topic, uncommitted.
        wait_until(lambda: s.uncommitted_end("large") > rows / 10, 60, "the first pieces")
        gateway.kill()
        written = s.uncommitted_end("large")
        assert written < rows, "killed too late to show anything"
        assert [r for r in s.read("large") if r.op != "t"] == []

        s.run_to(current_lsn(connection))
        assert len(s.rebuilt("large")) == rows == value_of(connection, "SELECT count(*) FROM large")
    assert_exactly_once(s, ("large",))
