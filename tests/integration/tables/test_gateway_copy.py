"""A running gateway is asked to copy tables, or parts of them, once more."""

from __future__ import annotations

import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from gateway.runtime.reload.reloader import channel_of
from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    unhurried,
    wait_for_copy_marker,
)
from tests.support.run.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TABLES = (
    "CREATE TABLE t (a int PRIMARY KEY, b int, c text);"
    "ALTER TABLE t REPLICA IDENTITY FULL;"
    "CREATE TABLE keyless (a int); ALTER TABLE keyless REPLICA IDENTITY FULL;"
    "INSERT INTO t SELECT n, n % 10, repeat('x', 20) FROM generate_series(1, 3000) AS n"
)
DEFINITIONS = (
    "CREATE PUBLICATION p_all FOR TABLE t, keyless;"
    "CREATE PUBLICATION p_some FOR TABLE t WHERE (b < 5);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p_all;"
    "CREATE SUBSCRIPTION {s}_some CONNECTION '' PUBLICATION p_some;"
)
SMALL = {"copy": {"chunk_rows": 200}, "definitions": {"watch_interval_s": 0.5}}


def started(scene: Scene, **arguments: Any) -> GatewayProcess:
    process = scene.project.start(**arguments)
    process.wait_until_copied()
    wait_for_copy_marker(scene, "t", "ready")
    return process


def write(connection: Connection, stop: Event) -> None:
    """Change rows at every key: values, filters, keys, and rows that come and go."""
    number = 0
    while not stop.wait(0.002):
        number += 1
        a = 1 + number * 37 % 3000
        with connection.transaction():
            connection.execute("UPDATE t SET b = (b + 3) %% 10, c = 'y' WHERE a = %s", [a])
            connection.execute("UPDATE t SET a = %s WHERE a = %s", [10_000 + number, a + 1])
            connection.execute("DELETE FROM t WHERE a = %s", [a + 2])
            connection.execute(
                "INSERT INTO t VALUES (%s, %s, 'z') ON CONFLICT DO NOTHING", [a + 2, number % 10]
            )


def copied_rows(scene: Scene, subscription: str | None = None) -> list[Any]:
    """The `t` and `r` records of table t."""
    return [r for r in scene.read("t", subscription) if r.op in "tr"]


def beginnings(scene: Scene, subscription: str | None = None) -> int:
    """How many copies of t have begun."""
    return sum(record.op == "t" for record in copied_rows(scene, subscription))


def assert_as_the_source(scene: Scene) -> None:
    assert scene.rebuilt("t") == scene.source_rows("SELECT * FROM t")
    some = scene.source_rows("SELECT * FROM t WHERE b < 5")
    assert scene.rebuilt("t", f"{scene.slot}_some") == some


def test_a_table_is_copied_again_under_load_for_all_who_copy_it(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection, database.connect() as writer:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **SMALL)
        process = started(s)
        with running(lambda stop: write(writer, stop)):
            ended = s.cli("copy", "t")
        assert ended.code == 0, ended.err
        assert ended.out == "copied\n"
        end = current_lsn(connection)
        assert process.terminate() == 0, process.log()
        s.run_to(end)

    for subscription in (s.slot, f"{s.slot}_some"):
        assert beginnings(s, subscription) == 2
        states = [m["copy"]["state"] for m in s.markers(subscription) if m["kind"] == "COPY"]
        assert states[-2:] == ["copying", "ready"]
    assert_as_the_source(s)
    assert_exactly_once(s, ["t", "keyless"])
    assert_exactly_once(s, ["t"], f"{s.slot}_some")


def test_a_part_is_copied_under_load_for_one_subscription_without_a_beginning(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection, database.connect() as writer:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **SMALL)
        process = started(s)
        before = len(copied_rows(s)), len(copied_rows(s, f"{s.slot}_some"))
        with running(lambda stop: write(writer, stop)):
            ended = s.cli("copy", "public.t", "--subscription", s.slot, "--where", "a % 2 = 0")
        assert ended.code == 0, ended.err
        end = current_lsn(connection)
        assert process.terminate() == 0, process.log()
        s.run_to(end)

    again = copied_rows(s)[before[0] :]
    assert {record.op for record in again} == {"r"}
    keys = {r.key["a"] for r in again if r.key and r.value and r.value["after"]["c"] == "x" * 20}
    assert len(again) > 1000
    assert not any(key % 2 for key in keys if key <= 3000)
    assert len(copied_rows(s, f"{s.slot}_some")) == before[1]
    assert_as_the_source(s)
    assert_exactly_once(s, ["t", "keyless"])


def test_a_request_is_followed_after_crashes(scene: MakeScene, database: Database) -> None:
    at_the_third_chunk = {"PGSLUICE_FAILPOINT": "copy.between_chunks:3"}
    # The first copy of 3,000 rows is placed in fifteen chunks before the last one, an empty one.
    behind_the_first_copy = {"PGSLUICE_FAILPOINT": "copy.between_chunks:18"}
    with database.connect() as connection, ThreadPoolExecutor(1) as pool:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **SMALL)
        process = started(s, environment=behind_the_first_copy)
        before = len(copied_rows(s))
        # What the gateway leaves open in Kafka keeps the command waiting until the next start.
        asking = pool.submit(s.cli, "copy", "t", "--where", "a > 1000", "--no-wait")
        process.wait()
        connection.execute("UPDATE t SET b = 7 WHERE a BETWEEN 990 AND 1010")
        process = started(s)
        asking.result()
        assert process.terminate() == 0, process.log()
        part = copied_rows(s)[before:]
        nobody = s.cli("copy", "t", "--no-wait")
        s.project.start(environment=at_the_third_chunk).wait()
        connection.execute("UPDATE t SET b = 3 WHERE a BETWEEN 990 AND 1010")
        process = started(s)
        assert process.terminate() == 0, process.log()
        s.run_to(current_lsn(connection))

    again = copied_rows(s)[before + len(part) :]
    assert {record.op for record in part} == {"r"}
    assert len(part) >= 2000
    assert nobody.code == 1
    assert "the request is kept" in nobody.err
    assert [record.op for record in again].count("t") == 1
    assert len(again) >= 3001
    assert_as_the_source(s)


REFUSED = {
    ("nothing",): 'pgsluice: no subscription copies a table "nothing"',
    ("t", "--subscription", "x"): 'subscription "x" is not defined',
    ("t", "--where", "d > 5"): 'is not a valid row condition: column "d" does not exist',
    ("t", "--where", "a"): "must be type boolean",
    ("t", "--where", "a > 5) UNION (SELECT 1"): "it is not one expression",
    ("keyless", "--where", "a > 5"): "has no key, so that it can only be copied as a whole",
}


def test_the_rows_of_a_part_go_out_and_what_cannot_be_copied_is_refused(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **SMALL)
        process = started(s)

        ended = s.cli("copy", "t", "--where", "a BETWEEN 10 AND 12 OR 1 / (a - 20.5) = 2")
        failing = s.cli("copy", "t", "--where", "1 / (a - 2000) = 1")
        refused = {arguments: s.cli("copy", *arguments) for arguments in REFUSED}

        assert ended.code == failing.code == 0, ended.err + failing.err + process.log()
        process.wait_for("copy of a part of a table abandoned")
        assert process.terminate() == 0, process.log()
        assert process.log().count(": streaming ") == 1  # nothing was started again for them
    for arguments, why in REFUSED.items():
        assert refused[arguments].code == 1
        assert why in refused[arguments].err
    keys = [record.value["after"]["a"] for record in s.read("t")[3001:] if record.value]
    assert keys == [10, 11, 12, 21]


def test_what_waits_can_be_cancelled_and_what_has_begun_as_a_whole_cannot(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection, database.connect() as blocker:
        connection.execute(TABLES.replace("3000", "3").encode())
        s = scene(DEFINITIONS, copy={"rows_per_second": 100})
        started(s)
        connection.execute("INSERT INTO t SELECT n, n, 'x' FROM generate_series(4, 5000) AS n")
        before = len(copied_rows(s))
        # A copy waits for the transactions that ran when it was asked for.
        with blocker.transaction():
            blocker.execute("SELECT pg_current_xact_id()")
            assert s.cli("copy", "t", "--no-wait").code == 0
            assert "t: ready, to be copied again: all of it" in s.cli("status").out
            assert s.cli("copy", "--cancel").code == 0
        assert s.cli("copy", "t", "--where", "a > 0", "--no-wait").code == 0
        wait_until(lambda: len(copied_rows(s)) > before, 60, "the first rows of the part")
        again = s.cli("copy", "t", "--where", "a > 5")
        assert "a part of it can be copied when that is done" in again.err
        assert s.cli("copy", "t", "--cancel").code == 0
        assert "to be copied again" not in s.cli("status").out
        assert len(copied_rows(s)) < before + 4900
        assert "nothing to cancel" in s.cli("copy", "t", "--cancel").out
        assert s.cli("copy", "t", "--no-wait").code == 0
        wait_until(lambda: beginnings(s) > 1, 60, "the copy to begin")
        refused = s.cli("copy", "--cancel")
        assert refused.code == 1
        assert "consumers have dropped what they had of it" in refused.err


def test_a_cause_that_is_repaired_while_a_copy_is_awaited_leaves_nobody_out(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection, ThreadPoolExecutor(1) as thread:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, definitions={"watch_interval_s": 0})
        process = started(s)
        connection.execute(f"LISTEN {channel_of(s.slot)}".encode())
        process.send(signal.SIGSTOP)
        try:
            connection.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
            asked = thread.submit(s.cli, "copy", "t")
            notified = [*connection.notifies(timeout=60 * PATIENCE, stop_after=1)]
            assert notified, "the request is in Kafka"
            connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        finally:
            process.send(signal.SIGCONT)
        copied = asked.result(120 * PATIENCE)
        assert (copied.code, copied.out, unhurried(copied.err)) == (0, "copied\n", "")
        assert process.terminate() == 0, process.log()


REASON = (
    'cannot update table "t": column used in the publication WHERE expression is not part of the '
    "replica identity"
)


def test_a_held_table_is_resumed_when_its_cause_is_repaired(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, definitions={"watch_interval_s": 0})
        process = started(s)
        connection.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
        assert s.cli("reload").code == 0
        held = s.cli("resume", "t", "--subscription", f"{s.slot}_some")
        assert held.code == 1
        assert f"cannot be published as it is: {REASON}\nhint: let the replica identity" in held.err
        others = s.cli("resume", "t")
        assert others.code == 1
        assert others.out == "copied\n"
        assert (
            f"not for subscription {s.slot}_some, where the table is held: {REASON}" in others.err
        )
        connection.execute("UPDATE t SET b = 9 WHERE a < 100")
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        ended = s.cli("resume", "t", "--subscription", f"{s.slot}_some")
        assert ended.code == 0, ended.err
        assert process.terminate() == 0, process.log()
        s.run_to(current_lsn(connection))

    assert beginnings(s) == 2  # at the start, and by the resume for all
    assert_as_the_source(s)
