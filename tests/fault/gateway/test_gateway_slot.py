"""Two gateways on one slot, slots that others have touched, and stopping in good order."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    value_of,
    wait_for_copy_marker,
    wait_until_slot_is_free,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (a % 2 = 0);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
TABLE = "CREATE TABLE t (a int PRIMARY KEY, b int)"
PASSING = "SELECT * FROM t WHERE a % 2 = 0"


def test_a_second_gateway_stands_by_and_takes_over(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        s = scene(DEFINITIONS)
        first = s.project.start()
        first.wait_until_copied()
        second = s.project.start()
        second.wait_until_doing("standby")
        for number in range(1, 21):
            connection.execute("INSERT INTO t VALUES (%s, 0)", [number])
        assert "took over" not in first.log()

        first.kill()
        second.wait_until_copied()
        connection.execute("UPDATE t SET b = 1")
        assert second.terminate() == 0
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert_exactly_once(s, ["t"])


def test_a_gateway_that_stands_by_ends_on_sigterm(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
    s = scene(DEFINITIONS)
    first = s.project.start()
    first.wait_until_copied()
    second = s.project.start()
    second.wait_until_doing("standby")

    assert second.terminate() == 0
    assert first.terminate() == 0


def test_a_second_gateway_goes_on_with_the_firsts_copy(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection, database.connect() as locker:
        connection.execute(TABLE)
        connection.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 12000) i")
        connection.execute("CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (1)")
        s = scene(
            DEFINITIONS.replace("(a % 2 = 0)", "(a % 2 = 0), u"),
            copy={"parallel": 1, "rows_per_second": 3000},
        )
        first = s.project.start()
        first.wait_until_doing("streaming")
        wait_for_copy_marker(s, "t", "copying")  # which waits for transactions that ran before it
        with locker.transaction():
            locker.execute("LOCK TABLE u")  # the first has to wait when it comes to it
            second = s.project.start()
            second.wait_until_doing("standby")
            wait_for_copy_marker(s, "t", "ready")
            first.kill()
            second.wait_until_doing("streaming")
        second.wait_until_copied()
        connection.execute("UPDATE t SET b = 1 WHERE a < 100")
        assert second.terminate() == 0
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert s.rebuilt("u") == [(1,)]
    assert [r.op for r in s.read("t")].count("t") == 1
    assert_exactly_once(s, ["t", "u"])


def test_a_slot_that_kafka_has_no_record_of_is_left_alone(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        s = scene(DEFINITIONS)
        s.run_to("0/1")
        wait_until_slot_is_free(connection, s.slot)
        confirmed = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
        before = value_of(connection, confirmed, s.slot)

        renamed = {"PGSLUICE_TOPICS__PROGRESS": f"{s.slot}.renamed"}
        connection.execute("INSERT INTO t VALUES (2, 0)")
        ended = s.cli("run", "--endpos", current_lsn(connection), environment=renamed)

        assert ended.code == 1
        assert f'"{s.slot}" exists, but Kafka has no record' in ended.err
        assert value_of(connection, confirmed, s.slot) == before
        dropped = s.cli("slot", "drop", "--yes", environment=renamed)
        assert dropped.code == 1
        assert "--force" in dropped.err

        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == [(2, 0)]
    assert_exactly_once(s, ["t"])


@pytest.mark.parametrize("how", ["dropped", "moved"])
def test_a_lost_slot_is_healed_by_policy(scene: MakeScene, database: Database, how: str) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        connection.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 10) i")
        s = scene(DEFINITIONS, source={"on_lost_slot": "resync"})
        s.run_to("0/1")
        wait_until_slot_is_free(connection, s.slot)
        connection.execute("DELETE FROM t WHERE a = 4")
        connection.execute("INSERT INTO t VALUES (100, 1)")
        if how == "dropped":
            connection.execute("SELECT pg_drop_replication_slot(%s)", [s.slot])
        else:
            connection.execute(
                "SELECT pg_replication_slot_advance(%s, pg_current_wal_insert_lsn())", [s.slot]
            )
        connection.execute("UPDATE t SET b = 7 WHERE a = 6")

        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert_exactly_once(s, ["t"])


def test_a_slot_that_was_dropped_is_said_and_started_over(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        connection.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 10) i")
        s = scene(DEFINITIONS)
        s.run_to("0/1")
        wait_until_slot_is_free(connection, s.slot)
        connection.execute("SELECT pg_drop_replication_slot(%s)", [s.slot])
        connection.execute("DELETE FROM t WHERE a = 4")

        ended = s.cli("run", "--endpos", "0/1")
        assert ended.code == 1
        assert f'replication slot "{s.slot}" is gone' in ended.err
        assert "pgsluice slot drop" in ended.err

        dropped = s.cli("slot", "drop", "--yes")
        assert dropped.code == 0, dropped.err
        assert f"watermark of slot {s.slot} forgotten" in dropped.out
        again = s.cli("slot", "drop", "--yes")
        assert (again.code, "there was no slot" in again.out) == (0, True)
        connection.execute("INSERT INTO t VALUES (100, 1)")
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert_exactly_once(s, ["t"])


def test_a_slot_that_was_moved_past_the_watermark_is_said_and_started_over(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        s = scene(DEFINITIONS)
        s.run_to("0/1")
        connection.execute("INSERT INTO t VALUES (2, 0)")
        wait_until_slot_is_free(connection, s.slot)
        connection.execute(
            "SELECT pg_replication_slot_advance(%s, pg_current_wal_insert_lsn())", [s.slot]
        )
        connection.execute("INSERT INTO t VALUES (4, 0)")

        ended = s.cli("run", "--endpos", current_lsn(connection))
        assert ended.code == 1
        assert "beyond the watermark" in ended.err and "pgsluice slot drop" in ended.err
        assert s.rebuilt("t") == []

        dropped = s.cli("slot", "drop", "--yes")
        assert dropped.code == 0, dropped.err
        assert f"slot {s.slot} dropped" in dropped.out
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert_exactly_once(s, ["t"])


def test_sigterm_under_load_ends_with_whole_transactions(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLE)
        s = scene(DEFINITIONS)

        def load(stop: Event) -> None:
            with database.connect() as writer:
                number = 0
                while not stop.wait(0.002):
                    number += 2
                    writer.execute("INSERT INTO t VALUES (%s, 0), (%s, 0)", [number, number + 1])

        with running(load):
            gateway = s.project.start()
            gateway.wait_until_copied()
            wait_until(lambda: len(s.rebuilt("t")) > 20, 60, "some rows")
            assert gateway.terminate() == 0
        assert "stopped" in gateway.log()
        confirmed, watermark = (
            value_of(
                connection,
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
                s.slot,
            ),
            gateway.log().rpartition("watermark=")[2].split()[0],
        )
        assert confirmed == watermark, "the last feedback has everything"
        assert_exactly_once(s, ["t"])
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert_exactly_once(s, ["t"])


def test_sigterm_during_the_copy_lets_the_next_start_go_on_with_it(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection, database.connect() as locker:
        connection.execute(TABLE)
        connection.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 10000) i")
        connection.execute("CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (1)")
        s = scene(
            DEFINITIONS.replace("(a % 2 = 0)", "(a % 2 = 0), u"),
            copy={"parallel": 1, "rows_per_second": 800},
        )
        gateway = s.project.start()
        gateway.wait_until_doing("streaming")
        # It waits for transactions that ran before it, and takes twelve seconds from there: time
        # to lock the other table, though a reader of the marker waits for commits on their way.
        wait_for_copy_marker(s, "t", "copying")
        with locker.transaction():
            locker.execute("LOCK TABLE u")  # so that the copy cannot end before it is stopped
            wait_for_copy_marker(s, "t", "ready")
            assert gateway.terminate() == 0
        assert "all tables are copied" not in gateway.log()
        s.run_to(current_lsn(connection))
    assert s.rebuilt("t") == s.source_rows(PASSING)
    assert s.rebuilt("u") == [(1,)]
    assert [r.op for r in s.read("t")].count("t") == 1
    assert_exactly_once(s, ["t", "u"])
