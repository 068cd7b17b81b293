"""Tables that change while the gateway runs, or have odd names: the stream follows, or says why."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    cli,
    current_lsn,
    wait_for_copy_marker,
)
from tests.support.models.rebuild import Rebuilt

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)


def test_columns_that_come_go_and_widen_are_followed(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int, gone text)")
        connection.execute("INSERT INTO t VALUES (1, 1, 'x')")
        s = scene(DEFINITIONS)
        gateway = s.project.start()
        gateway.wait_until_copied()
        connection.execute("INSERT INTO t VALUES (2, 2, 'y')")
        connection.execute("ALTER TABLE t ADD COLUMN c text DEFAULT 'new'")
        connection.execute("INSERT INTO t VALUES (3, 3, 'z', 'c3')")
        connection.execute("ALTER TABLE t DROP COLUMN gone")
        connection.execute("INSERT INTO t VALUES (4, 4, 'c4')")
        connection.execute("ALTER TABLE t ALTER COLUMN b TYPE bigint")
        connection.execute("INSERT INTO t VALUES (5, 5000000000, 'c5')")
        end = current_lsn(connection)
        assert gateway.terminate() == 0
        s.run_to(end)

    rows = [r.value["after"] for r in s.read("t") if r.value is not None and r.value["after"]]
    assert rows[:2] == [{"a": 1, "b": 1, "gone": "x"}, {"a": 2, "b": 2, "gone": "y"}]
    assert {"a": 5, "b": 5000000000, "c": "c5"} in rows
    # Without the event triggers, ALTER TYPE may have given every row another value.
    assert [row["a"] for row in rows].count(1) == 2, "copied again"
    assert s.rebuilt("t") == s.source_rows("SELECT * FROM t")
    assert_exactly_once(s, ["t"])


def test_a_gateway_with_nothing_to_do_takes_next_to_no_cpu(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    gateway = scene(DEFINITIONS).project.start()
    gateway.wait_until_copied()

    began, before = time.monotonic(), cpu_s(gateway.pid)
    time.sleep(3)  # what is measured is this time itself
    assert cpu_s(gateway.pid) - before < 0.3 * (time.monotonic() - began)
    assert gateway.terminate() == 0


def cpu_s(pid: int) -> float:
    """CPU time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_change_that_readers_cannot_follow_stops_with_what_to_do(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        s = scene(DEFINITIONS)
        gateway = s.project.start()
        gateway.wait_until_copied()
        connection.execute("INSERT INTO t VALUES (1, 1)")
        connection.execute("ALTER TABLE t ALTER COLUMN b TYPE text")
        connection.execute("INSERT INTO t VALUES (2, 'two')")
        assert gateway.wait() == 1
        assert f"refuses the schema of subject {s.topic('t')}-value" in gateway.log()
        assert "[topics] names" in gateway.log()
        assert "Traceback" not in gateway.log()


def test_a_table_that_changes_in_the_middle_of_its_copy_is_copied_as_it_is_then(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int, gone int)")
        connection.execute("INSERT INTO t SELECT i, i, i FROM generate_series(1, 6000) AS i")
        connection.execute("CREATE TABLE u (a int PRIMARY KEY)")
        connection.execute("INSERT INTO u SELECT generate_series(1, 4000)")
        s = scene(
            DEFINITIONS.replace("TABLE t", "TABLE t, u"),
            copy={"chunk_rows": 200, "rows_per_second": 2000},
        )
        gateway = s.project.start()
        wait_for_copy_marker(s, "t", "copying")
        connection.execute("ALTER TABLE t ALTER COLUMN b TYPE bigint")
        connection.execute("ALTER TABLE t DROP COLUMN gone, ADD COLUMN new int DEFAULT 7")
        connection.execute("UPDATE t SET new = 8 WHERE a % 100 = 0")
        wait_for_copy_marker(s, "u", "copying")
        connection.execute("TRUNCATE u; INSERT INTO u VALUES (1), (5000)")
        gateway.wait_until_copied(120)
        assert gateway.terminate() == 0
        s.run_to(current_lsn(connection))
        rows = s.source_rows("SELECT a, b FROM t")
    records = Rebuilt().apply(s.read("t"))
    assert records.rows(["a", "b"]) == rows
    assert {new for _, new in records.rows(["a", "new"]) if new is not None} == {7, 8}
    assert s.rebuilt("u") == [(1,), (5000,)]
    assert_exactly_once(s, ["t", "u"])


def test_one_truncate_of_several_tables_reaches_each(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY);"
            "CREATE TABLE u (a int PRIMARY KEY, r int REFERENCES t);"
            "CREATE TABLE v (a int PRIMARY KEY);"
            "INSERT INTO t VALUES (1); INSERT INTO u VALUES (1, 1); INSERT INTO v VALUES (1)"
        )
        s = scene(DEFINITIONS.replace("TABLE t", "TABLE t, u WHERE (a > 5), v"))
        s.run_to("0/1")
        connection.execute("BEGIN; TRUNCATE t, v CASCADE; INSERT INTO v VALUES (2); COMMIT")
        s.run_to(current_lsn(connection))

    assert [s.rebuilt(table) for table in ("t", "u", "v")] == [[], [], [(2,)]]
    assert [r.op for r in s.read("u")] == ["t", "t"]
    assert_exactly_once(s, ["t", "u", "v"])


def test_odd_names_arrive_under_escaped_topics_with_their_own_names_inside(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(
            'CREATE SCHEMA "My Schema";'
            'CREATE TABLE "My Schema"."Größe.x" ("Id" int PRIMARY KEY, "a b" text, "q""t" text,'
            ' "$1" int, "naïve" int)'
        )
        connection.execute("""INSERT INTO "My Schema"."Größe.x" VALUES (1, 'ä', 'b', 2, 3)""")
        s = scene(DEFINITIONS.replace("TABLE t", 'TABLE "My Schema"."Größe.x" WHERE ("Id" > 0)'))
        s.run_to("0/1")
        connection.execute("""UPDATE "My Schema"."Größe.x" SET "a b" = 'ö' WHERE "Id" = 1""")
        s.run_to(current_lsn(connection))

    (topic,) = [t for t in s.reader.topics(s.slot) if t.split(".")[1].startswith("My")]
    assert topic == f"{s.slot}.My-x0020-Schema.Gr-x00F6--x00DF-e-x002E-x"
    records = [r.value for r in s.reader.read(topic) if r.value is not None]
    source = records[-1]["source"]
    assert (source["schema"], source["table"]) == ("My Schema", "Größe.x")
    assert [list((r["after"] or {}).values()) for r in records] == [
        [],
        [1, "ä", "b", 2, 3],
        [1, "ö", "b", 2, 3],
    ]


def test_a_topic_can_be_given_another_name(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
    s = scene(DEFINITIONS)
    environment = {"PGSLUICE_TOPICS__PARTITIONS": "2"}
    path = s.project.write()
    path.write_text(
        path.read_text() + f'[topics.names]\n"{s.slot}.public.t" = "{s.slot}-renamed"\n'
    )
    ended = cli("run", "--config", str(path), "--endpos", "0/1", environment=environment)

    assert ended.code == 0, ended.err
    assert sorted(r.op for r in s.reader.read(f"{s.slot}-renamed")) == ["r", "t", "t"]
    assert s.reader.topics(f"{s.slot}.public") == []


def test_a_topic_that_is_given_another_name_later_has_all_rows(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
        s = scene(DEFINITIONS)
        s.run_to(current_lsn(connection))
        connection.execute("INSERT INTO t VALUES (3); DELETE FROM t WHERE a = 1")
        topic = f"{s.slot}-renamed"
        s.project.extra = {"topics.names": {f"{s.slot}.public.t": topic}}
        s.run_to(current_lsn(connection))
        connection.execute("INSERT INTO t VALUES (4)")
        s.run_to(current_lsn(connection))

    assert Rebuilt().apply(s.reader.read(topic)).rows() == [(2,), (3,), (4,)]
    copies = [m["copy"]["state"] for m in s.markers() if m["copy"] is not None]
    assert copies == ["pending", "copying", "ready"] * 2
