"""Formats of ``[envelope]`` over topics that exist, and over everything a table can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, Scene, assert_exactly_once, current_lsn
from tests.support.workloads.dml import PUBLICATIONS, TABLES, Workload

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
# Without pc: see tests/fault/gateway/test_gateway_killed.py.
NATIVE = ("pa", "pb", "pd", "pe")


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        yield connection


def test_a_format_that_the_registry_accepts_begins_the_topic_again(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, v text, made timestamp)")
    source.execute("INSERT INTO t VALUES (1, 'one', '2024-02-29 12:00'), (2, 'two', NULL)")
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    source.execute("DELETE FROM t WHERE id = 2")
    source.execute("UPDATE t SET v = 'changed'")
    s.project.extra = {"envelope": {"format": "debezium"}}
    s.run_to(current_lsn(source))
    source.execute("INSERT INTO t VALUES (3, 'three', '2024-03-01 12:00')")
    s.run_to(current_lsn(source))

    assert [record.op for record in s.read("t")].count("t") == 2
    last = [record.value["after"] for record in s.read("t") if record.value is not None][-1]
    assert last == {"id": 3, "v": "three", "made": 1_709_294_400_000_000}
    assert [row[:2] for row in s.rebuilt("t")] == [(1, "changed"), (3, "three")]


@pytest.mark.parametrize(("kind", "column"), [("row", "int"), ("debezium", "timestamptz")])
def test_a_format_that_the_registry_refuses_needs_another_topic(
    scene: MakeScene, source: Connection, kind: str, column: str
) -> None:
    source.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {column})".encode())
    source.execute("INSERT INTO t VALUES (1, NULL)")
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (2, NULL)")
    end = current_lsn(source)
    s.project.extra = {"envelope": {"format": kind}}
    refused = s.cli("run", "--endpos", end)
    other = f"{s.slot}.again"
    s.project.extra = {**s.project.extra, "topics.names": {s.topic("t"): other}}
    s.run_to(end)

    assert refused.code == 1
    assert f"refuses the schema of subject {s.topic('t')}-value" in refused.err
    rows = [record for record in s.reader.read(other) if record.op == "r"]
    assert [record.key for record in rows] == [{"id": 1}, {"id": 2}]


def test_debezium_s_records_fold_to_the_native_subscriptions_tables(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, seed: int
) -> None:
    tables = ("keyed", "filtered", "whole", "bag", "indexed", "toasted", "appended", "parted")
    with database.connect() as connection:
        connection.execute(f"{TABLES} {PUBLICATIONS}".encode())
        native = NativeSubscription(database, make_database, TABLES, NATIVE)
        s = scene(
            f"{PUBLICATIONS}"
            f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION {', '.join(NATIVE)};",
            envelope={"format": "debezium"},
        )
        s.run_to("0/1")
        Workload(connection, seed).run(300)
        # A workload of some seeds changes no key.
        connection.execute("INSERT INTO keyed VALUES (900); UPDATE keyed SET a = 901 WHERE a = 900")
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)

    for table in tables:
        assert s.rebuilt(table) == native.rows(table), table
    assert_exactly_once(s, tables)
    records = s.read("keyed")
    moved = {record.headers.get("rekey"): record.headers for record in records}
    assert "__debezium.newkey" in moved["old"]
    assert "__debezium.oldkey" in moved["new"]


def test_a_table_without_a_key_is_held_where_a_second_copy_would_double_its_rows(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE bag (id int)")
    source.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    source.execute("INSERT INTO t VALUES (1); INSERT INTO bag VALUES (1)")
    s = scene(DEFINITIONS.replace("t;", "t, bag;", 1), envelope={"format": "row"})

    def ready() -> set[str]:
        copies = [m["copy"] for m in s.markers() if m["copy"] is not None]
        return {copy["table"] for copy in copies if copy["state"] == "ready"}

    why = "a second copy would add its rows once more"
    held = s.run_to(current_lsn(source))

    assert why in held.err
    assert ready() == {"t"}
    source.execute("ALTER TABLE bag ADD PRIMARY KEY (id)")
    s.run_to(current_lsn(source))
    assert ready() == {"t", "bag"}
    source.execute("ALTER TABLE bag DROP CONSTRAINT bag_pkey")
    s.project.extra = {**s.project.extra, "definitions": {"on_table_error": "stop"}}
    stopped = s.cli("run", "--endpos", current_lsn(source))
    assert (stopped.code, why in stopped.err) == (1, True)


def test_a_second_copy_without_a_truncate_is_a_warning(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    s = scene(DEFINITIONS)
    s.project.extra = {"envelope": {"without_truncates": [s.slot]}}
    warning = "a copy is merged with the records of its topic"

    first = s.cli("run", "--endpos", current_lsn(source))
    asked = s.cli("copy", "public.t", "--no-wait")
    second = s.cli("run", "--endpos", current_lsn(source))

    assert "the request is kept" in asked.err
    assert (warning in first.err, warning in second.err) == (False, True)
    assert s.topic("t") in second.err
