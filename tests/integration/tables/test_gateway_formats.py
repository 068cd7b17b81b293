"""Formats of ``[envelope]`` over topics that exist, and over everything a table can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.core.lsn import parse_lsn
from schemas.headers import DEBEZIUM_HEADERS
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import Read
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


MARKED = ("keyed", "filtered", "whole", "indexed", "toasted", "parted")
FORMATS = {"own": "pgsluice", "dbz": "debezium", "row": "row", "bare": "pgsluice"}
"""Subscriptions and their formats; `row` and `bare` have no `t` records."""


def subscribed(s: Scene, names: tuple[str, ...], publications: str) -> str:
    return "".join(
        f"CREATE SUBSCRIPTION {s.slot}_{name} CONNECTION '' PUBLICATION {publications}"
        " WITH (two_phase = true);"
        for name in names
    )


def positions(records: list[Read]) -> list[tuple[Any, ...]]:
    """Partitions, offsets, keys and headers, without the headers that Debezium has beside ours."""
    return [
        (
            *(record.partition, record.offset, record.key),
            {name: text for name, text in record.headers.items() if name not in DEBEZIUM_HEADERS},
        )
        for record in records
    ]


def table_of(topic: str) -> str:
    return topic.rpartition(".")[2]


def markers_of(s: Scene, subscription: str) -> list[dict[str, Any]]:
    """A subscription's markers, in which tables stand for its topics."""

    def common(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**entry, "topic": table_of(entry["topic"])} for entry in entries]

    return [
        {**marker, "topics": common(marker["topics"]), "offsets": common(marker["offsets"])}
        for marker in s.markers(subscription)
    ]


def without_truncates(markers: list[dict[str, Any]], truncates: list[Read]) -> list[dict[str, Any]]:
    """The markers but each PROGRESS, as they would be without these `t` records.

    A PROGRESS has offsets, which are others then, and is due where its subscription has records.
    """
    extra = Counter((table_of(t.topic), parse_lsn(t.headers["commit_lsn"])) for t in truncates)
    found = []
    for marker in markers:
        counts = Counter({count["topic"]: count["records"] for count in marker["topics"]})
        counts.subtract({topic: extra[topic, marker["commit_lsn"]] for topic in counts})
        topics = [{"topic": topic, "records": number} for topic, number in counts.items() if number]
        if marker["kind"] != "PROGRESS" and (topics or marker["kind"] != "END"):
            found.append({**marker, "topics": topics})
    return found


def test_positions_and_markers_are_the_same_in_all_formats(
    scene: MakeScene, source: Connection, database: Database, seed: int
) -> None:
    source.execute(f"{TABLES} CREATE TABLE late (a int PRIMARY KEY, b int, c text)".encode())
    Workload(source, seed).run(20)
    names = tuple(FORMATS)
    s = scene("")
    s.project.extra = {
        "envelope": {"without_truncates": [f"{s.slot}_bare"]},
        "envelope.subscriptions": {f"{s.slot}_{n}": kind for n, kind in FORMATS.items()},
    }
    tables = "keyed, filtered WHERE (b > 4 AND a < 15), whole, indexed, toasted, parted"
    published = f"CREATE PUBLICATION p FOR TABLE {tables} WITH (publish_via_partition_root = true);"
    s.project.definitions = published + subscribed(s, names, "p")
    s.run_to("0/1")
    Workload(source, seed + 1).run(80)
    source.execute("TRUNCATE keyed; INSERT INTO keyed VALUES (900, 1, 'x')")
    source.execute("UPDATE keyed SET a = 901 WHERE a = 900")
    for number, end in ((998, "COMMIT"), (999, "ROLLBACK")):
        gid = f"{database.name} {end}"
        with source.transaction():
            source.execute("INSERT INTO keyed VALUES (%s)", [number])
            source.execute(f"PREPARE TRANSACTION '{gid}'".encode())
        source.execute(f"{end} PREPARED '{gid}'".encode())
    s.run_to(current_lsn(source))
    s.project.definitions = f"{published} CREATE PUBLICATION q FOR TABLE late;" + subscribed(
        s, names, "p, q"
    )
    source.execute("INSERT INTO late VALUES (1); DROP TABLE indexed")
    s.run_to(current_lsn(source))

    own, dbz, row, bare = (f"{s.slot}_{name}" for name in names)
    markers = {name: markers_of(s, name) for name in (own, dbz, row, bare)}
    kinds = {marker["kind"] for marker in markers[own]}
    assert kinds == {"CLAIM", "COPY", "END", "PREPARE", "PROGRESS", "RELOAD", "ROLLBACK_PREPARED"}
    assert markers[dbz] == markers[own]
    assert markers[row] == markers[bare]
    truncates: list[Read] = []
    for table in (*MARKED, "late"):
        records = s.read(table, own)
        assert records, table
        assert positions(s.read(table, dbz)) == positions(records), table
        assert positions(s.read(table, row)) == positions(s.read(table, bare)), table
        truncates += [record for record in records if record.op == "t" and record.position[1]]
        others = [record for record in records if record.op != "t"]
        assert [place[2:] for place in positions(s.read(table, bare))] == [
            place[2:] for place in positions(others)
        ], table
    assert truncates
    assert without_truncates(markers[own], truncates) == without_truncates(markers[bare], [])
    for subscription in markers:
        assert_exactly_once(s, (*MARKED, "late"), subscription)


def test_moves_and_their_markers_are_the_same_in_formats_with_truncates(
    scene: MakeScene, source: Connection
) -> None:
    source.execute(
        "CREATE TABLE customers (id int PRIMARY KEY, region text);"
        "ALTER TABLE customers REPLICA IDENTITY FULL;"
        "CREATE TABLE orders (id int PRIMARY KEY, customer int, v text);"
        "ALTER TABLE orders REPLICA IDENTITY FULL;"
        "INSERT INTO customers SELECT n, (ARRAY['EU', 'US'])[n % 2 + 1]"
        " FROM generate_series(1, 10) AS n;"
        "INSERT INTO orders SELECT n, n % 11, 'order ' || n FROM generate_series(1, 200) AS n"
    )
    s = scene("")
    names = ("own", "dbz")
    s.project.extra = {"envelope.subscriptions": {f"{s.slot}_{n}": FORMATS[n] for n in names}}
    s.project.definitions = (
        "CREATE PUBLICATION p FOR TABLE orders"
        " WHERE (customer IN (SELECT id FROM customers WHERE region = 'EU'));"
        + subscribed(s, names, "p")
    )
    s.run_to(current_lsn(source))
    source.execute("UPDATE customers SET region = 'EU' WHERE id IN (1, 3)")
    source.execute("UPDATE orders SET v = 'moves' WHERE customer = 1")
    source.execute("UPDATE customers SET region = 'US' WHERE id = 2")
    s.run_to(current_lsn(source))

    own, dbz = (f"{s.slot}_{name}" for name in names)
    assert {"begun", "settled"} == {m["move"]["state"] for m in s.markers(own) if m["move"]}
    assert markers_of(s, dbz) == markers_of(s, own)
    assert positions(s.read("orders", dbz)) == positions(s.read("orders", own))
