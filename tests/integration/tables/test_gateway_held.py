"""A table that is altered so that it cannot be published is held; all others go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.core.lsn import parse_lsn
from tests.oracle.ddl.test_changing_publications import copied, published_to, started
from tests.oracle.ddl.test_leaving_tables import lagging
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Ended,
    Scene,
    current_lsn,
    value_of,
    wait_for_copy_marker,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
QUICK = {"definitions": {"watch_interval_s": 0.5}}
TABLES = (
    "CREATE TABLE t (a int PRIMARY KEY, c int); ALTER TABLE t REPLICA IDENTITY FULL;"
    "CREATE TABLE u (a int PRIMARY KEY);"
    "INSERT INTO t SELECT n, n FROM generate_series(1, 9) AS n"
)
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (c > 5), u;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
UPDATES = (
    'cannot update table "t": column used in the publication WHERE expression is not part of the '
    "replica identity"
)
FILTERED = "SELECT * FROM t WHERE c > 5"


def states(scene: Scene) -> list[tuple[str, str | None]]:
    """State and reason of each COPY marker of t."""
    copies = [m["copy"] for m in scene.markers() if m["copy"] is not None]
    return [(copy["state"], copy["reason"]) for copy in copies if copy["table"] == "t"]


def test_a_table_that_loses_its_identity_is_held_until_it_has_it_again(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **QUICK)
        process = started(s)
        connection.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
        connection.execute("UPDATE t SET c = 0 WHERE a IN (6, 7)")
        wait_until(lambda: [x for x, _ in states(s)][-1:] == ["held"], 60, "t to be held")
        connection.execute("UPDATE t SET c = 50 WHERE a = 1; INSERT INTO u VALUES (1)")
        end = current_lsn(connection)
        published_to(s, end)
        confirmed = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name=%s"
        wait_until(
            lambda: parse_lsn(value_of(connection, confirmed, s.slot)) >= parse_lsn(end),
            60,
            "the slot to move on",
        )
        assert states(s)[-1] == ("held", UPDATES)
        shown = s.cli("status").out
        assert f"public.t: held, {UPDATES}\n" in shown
        assert f"is held: {UPDATES}\n  -> let the replica identity have what" in shown
        assert process.terminate() == 0, process.log()
        process = s.project.start()
        process.wait_until_doing("streaming")
        connection.execute("INSERT INTO u VALUES (2)")
        published_to(s, current_lsn(connection))
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        copied(s, "t")
        connection.execute("UPDATE t SET c = 0 WHERE a = 8")
        published_to(s, current_lsn(connection))
        assert process.terminate() == 0, process.log()
        rows = s.source_rows(FILTERED)

    assert s.rebuilt("t") == rows
    assert s.rebuilt("u") == [(1,), (2,)]
    assert [state for state, _ in states(s)][-4:] == ["held", "pending", "copying", "ready"]


def test_an_identity_that_was_away_for_a_while_leaves_no_stale_row(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **QUICK)
        process = started(s)
        with lagging(process):
            connection.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
            connection.execute("UPDATE t SET c = 0 WHERE a IN (6, 7)")
            connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
            connection.execute("UPDATE t SET c = 0 WHERE a = 8")
        wait_for_copy_marker(s, "t", "pending")
        process.wait_until_copied()
        copied(s, "t")
        published_to(s, current_lsn(connection))
        wait_until(lambda: "t: ready" in s.cli("status").out, 60, "t to be ready")
        assert process.terminate() == 0, process.log()
        rows = s.source_rows(FILTERED)

    assert s.rebuilt("t") == rows == [(9, 9)]


def test_a_table_whose_filter_has_lost_its_column_is_held_until_it_is_there_again(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **QUICK)
        process = started(s)
        connection.execute("ALTER TABLE t DROP COLUMN c")
        connection.execute("INSERT INTO t VALUES (100); INSERT INTO u VALUES (1)")
        wait_until(lambda: [x for x, _ in states(s)][-1:] == ["held"], 60, "t to be held")
        assert 'column "c" does not exist' in str(states(s)[-1][1])
        connection.execute("INSERT INTO t VALUES (101); INSERT INTO u VALUES (2)")
        published_to(s, current_lsn(connection))
        connection.execute("ALTER TABLE t ADD COLUMN c int DEFAULT 6")
        copied(s, "t")
        published_to(s, current_lsn(connection))
        assert process.terminate() == 0, process.log()
        rows = s.source_rows(FILTERED)

    assert s.rebuilt("t") == rows
    assert s.rebuilt("u") == [(1,), (2,)]


def test_a_filtered_table_that_is_locked_during_a_start_stops_no_other(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection, database.connect() as owner:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **QUICK)
        process = started(s)
        assert process.terminate() == 0, process.log()
        with owner.transaction():
            owner.execute("LOCK TABLE t")
            process = s.project.start()
            connection.execute("INSERT INTO u VALUES (1)")
            published_to(s, current_lsn(connection))
            assert f"held by pid {owner.info.backend_pid}" in str(states(s)[-1][1])
            assert "-> let that session end" in s.cli("status").out
        connection.execute("INSERT INTO t VALUES (10, 10)")
        copied(s, "t")
        published_to(s, current_lsn(connection))
        assert process.terminate() == 0, process.log()
        rows = s.source_rows(FILTERED)

    assert s.rebuilt("t") == rows
    assert s.rebuilt("u") == [(1,)]


def test_by_policy_a_table_that_cannot_be_published_stops_the_gateway(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, definitions={"watch_interval_s": 0.5, "on_table_error": "stop"})
        process = started(s)
        connection.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")
        connection.execute("UPDATE t SET c = 0 WHERE a IN (6, 7)")

        assert process.wait() == 1

        assert 'cannot update table "t"' in process.log()
        connection.execute("ALTER TABLE t REPLICA IDENTITY FULL")
        s.run_to(current_lsn(connection))
        rows = s.source_rows(FILTERED)

    assert s.rebuilt("t") == rows == [(8, 8), (9, 9)]


def test_what_only_a_copy_can_show_of_a_table_holds_it_and_the_others_go_on(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (1);"
            "CREATE DOMAIN checked AS int CHECK (VALUE > 0); CREATE TYPE pair AS (a checked);"
            "CREATE TABLE typed (k pair PRIMARY KEY);"
            "INSERT INTO typed SELECT ROW(n)::pair FROM generate_series(1, 1200) AS n;"
            "CREATE TABLE tree (a int, PRIMARY KEY (a)) PARTITION BY RANGE (a);"
            "CREATE TABLE near PARTITION OF tree FOR VALUES FROM (0) TO (9);"
            "CREATE FOREIGN DATA WRAPPER none; CREATE SERVER away FOREIGN DATA WRAPPER none"
        )
        connection.execute(
            "ALTER TABLE tree DROP CONSTRAINT tree_pkey; ALTER TABLE tree REPLICA IDENTITY FULL;"
            "ALTER TABLE near REPLICA IDENTITY FULL;"
            "CREATE FOREIGN TABLE far PARTITION OF tree FOR VALUES FROM (9) TO (99) SERVER away"
        )
        s = scene(
            "CREATE PUBLICATION p FOR TABLE u, typed, tree WITH (publish_via_partition_root);"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
        )
        process = s.project.start()

        def both_held() -> Ended | None:
            # They are pending again for a moment whenever the gateway tries their copies.
            status = s.cli("status")
            all_said = status.out.count(": held, ") == 2 and "public.u: ready" in status.out
            return status if status.code == 1 and all_said else None

        status = wait_until(both_held, 60, "two to be held")
        assert status is not None
        connection.execute("INSERT INTO u VALUES (2); INSERT INTO tree VALUES (1)")
        published_to(s, current_lsn(connection))

        assert "checked, which is in it, would run code of its owner" in status.out
        assert process.terminate() == 0, process.log()
    assert s.rebuilt("u") == [(1,), (2,)]
