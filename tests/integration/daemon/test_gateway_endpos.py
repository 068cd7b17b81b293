"""Where a run ends, what its markers promise, and partitions: exactly as the contract says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.lsn import parse_lsn
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.scene import Scene, assert_exactly_once, current_lsn, value_of
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]


def test_endpos_takes_what_ends_at_it_and_nothing_after_it(scene: MakeScene) -> None:
    # A server of its own: with others that write, the present LSN is not the end of a transaction.
    with EmbeddedPostgres(18) as server, server.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE never (a int)")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t;"
            "CREATE PUBLICATION q FOR TABLE never WITH (publish = 'insert');"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
            "CREATE SUBSCRIPTION {s}_idle CONNECTION '' PUBLICATION q;",
            source={"dsn": server.dsn()},
        )
        s.run_to("0/1")
        for name, table in ((s.slot, "t"), (f"{s.slot}_idle", "never")):
            markers = s.markers(name)
            said = [m["kind"] for m in markers]
            begun = [m["copy"]["table"] for m in markers[: said.index("PROGRESS")] if m["copy"]]
            assert begun == [table], "a position is promised, and no copy is pending"
            assert markers[said.index("COPY")]["copy"]["state"] == "pending"
        connection.execute("INSERT INTO t VALUES (1)")
        first = current_lsn(connection)
        connection.execute("INSERT INTO t VALUES (2)")
        second = current_lsn(connection)

        s.run_to(first)
        assert s.rebuilt("t") == [(1,)]
        s.run_to(first)  # again, from a watermark that is there already
        assert s.rebuilt("t") == [(1,)]
        for name in (s.slot, f"{s.slot}_idle"):
            ends = [m["end_lsn"] for m in s.markers(name) if m["kind"] in ("END", "PROGRESS")]
            assert ends[-1] == parse_lsn(first), "complete up to it, and no further"

        # One byte before its end, a transaction is not at or before endpos. It comes again, also
        # when more was received with it: the position never is inside its commit record.
        before = value_of(connection, "SELECT (%s::pg_lsn - 1)::text", second)
        for number in (3, 4):
            connection.execute("INSERT INTO t VALUES (%s)", (number,))
        last = current_lsn(connection)
        s.run_to(before)
        assert s.rebuilt("t") == [(1,)]
        s.run_to(second)
        assert s.rebuilt("t") == [(1,), (2,)]
        s.run_to(last)
        assert s.rebuilt("t") == [(1,), (2,), (3,), (4,)]
    assert_exactly_once(s, ["t"])


def test_endpos_in_the_future_is_waited_for(scene: MakeScene) -> None:
    # A server of its own, to which no other test writes until the gateway streams.
    with EmbeddedPostgres(18) as server, server.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t;CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            source={"dsn": server.dsn()},
        )
        ahead = value_of(connection, "SELECT (pg_current_wal_insert_lsn() + 30000000)::text")
        gateway = s.project.start("--endpos", ahead)
        gateway.wait_until_copied()
        connection.execute("INSERT INTO t VALUES (1)")
        wait_until(lambda: s.rebuilt("t") == [(1,)], 60, "the first row")
        # What nobody publishes moves the server past it: to the next file of 16 MB, each time.
        for number in range(3):
            connection.execute(f"CREATE TABLE other{number} (a int)".encode())
            connection.execute("SELECT pg_switch_wal()")
        assert gateway.wait() == 0, gateway.log()
        assert "reached endpos" in gateway.log()
        assert s.markers()[-1]["end_lsn"] == parse_lsn(ahead)


def test_several_partitions_keep_keys_order_and_totals_over_restarts(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a numeric PRIMARY KEY, b int)")
        connection.execute("INSERT INTO t SELECT i, 0 FROM generate_series(1, 40) i")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t;CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            topics={"partitions": 4},
        )
        s.run_to("0/1")
        for statement in (
            "UPDATE t SET b = 1 WHERE a % 2 = 0",
            "UPDATE t SET a = a + 0.00 WHERE a < 10",  # the same keys, written otherwise
            "UPDATE t SET a = a + 1000 WHERE a > 30",
            "DELETE FROM t WHERE a = 5",
        ):
            connection.execute(statement)
        s.run_to(current_lsn(connection))
        connection.execute("TRUNCATE t; INSERT INTO t SELECT i, 3 FROM generate_series(1, 20) i")
        s.run_to(current_lsn(connection))
        connection.execute("UPDATE t SET b = 4")
        s.run_to(current_lsn(connection))

        records = s.read("t")
        partitions_of = defaultdict(set)
        for record in records:
            if record.key is not None:
                partitions_of[record.key["a"]].add(record.partition)
        assert len(partitions_of) > 40 and all(len(p) == 1 for p in partitions_of.values())
        truncates = Counter(r.partition for r in records if r.op == "t")
        assert truncates == dict.fromkeys(range(4), 2)  # the copy's and the statement's
        assert [(int(a), b) for a, b in s.rebuilt("t")] == s.source_rows("SELECT a::int, b FROM t")
    assert_exactly_once(s, ["t"])


def test_markers_and_feedback_move_on_while_only_another_database_writes(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    other = make_database("other")
    with database.connect() as connection, other.connect() as writer:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        writer.execute("CREATE TABLE noise (a int)")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE t;CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            limits={"progress_interval_s": 0.4, "feedback_interval_s": 0.5},
        )
        gateway = s.project.start()
        gateway.wait_until_copied()
        target = parse_lsn(
            value_of(connection, "SELECT (pg_current_wal_insert_lsn() + 200000)::text")
        )

        def confirmed() -> bool:
            writer.execute("INSERT INTO noise SELECT generate_series(1, 200)")
            text = value_of(
                connection,
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s",
                s.slot,
            )
            return parse_lsn(text) >= target

        wait_until(confirmed, 60, "the slot of an idle database to advance")
        assert gateway.terminate() == 0
    kinds = Counter(m["kind"] for m in s.markers())
    assert kinds["END"] == 0 and kinds["PROGRESS"] >= 2
    copies = [m["copy"]["state"] for m in s.markers() if m["kind"] == "COPY"]
    assert copies == ["pending", "copying", "ready"]
