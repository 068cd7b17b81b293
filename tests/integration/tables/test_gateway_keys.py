"""Keys and partitions by other columns than the identity's: ``[topics.keys]``, ``partition_by``."""

from __future__ import annotations

import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import Read
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    wait_for_copy_marker,
    wait_until_confirmed,
)
from tests.support.models.rebuild import Rebuilt
from tests.support.workloads.dml import PUBLICATIONS, Workload
from tests.support.workloads.keys import IDENTITIES, KEYS, NATIVE, PARTITION_BY, TABLES, chosen

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]

PARTITIONS = 4
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t, other; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        yield connection


def form(row: dict[str, Any], columns: Sequence[str]) -> bytes:
    """The canonical form, as docs/envelope.md describes it for int and text."""
    texts = [None if row[name] is None else str(row[name]).encode() for name in columns]
    return b"".join(
        struct.pack(">i", -1) if text is None else struct.pack(">i", len(text)) + text
        for text in texts
    )


def in_order(records: Sequence[Read]) -> list[Read]:
    """The records of all partitions by position; a `t` is before the rows that it begins."""
    return sorted(records, key=lambda r: (r.position, r.op != "t"))


def row_of(record: Read) -> dict[str, Any]:
    assert record.value is not None
    row: dict[str, Any] = record.value["after"] or record.value["before"]
    return row


@pytest.mark.parametrize("kind", ["pgsluice", "debezium"])
def test_tables_are_rebuilt_under_other_keys_and_each_key_is_in_one_partition(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, seed: int, kind: str
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLES} {PUBLICATIONS}".encode())
        connection.execute("INSERT INTO whole VALUES (500, 6, 'x'); INSERT INTO bag VALUES (1, 2)")
        native = NativeSubscription(database, make_database, TABLES, NATIVE)
        s = scene(
            f"{PUBLICATIONS}"
            f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION {', '.join(NATIVE)};",
            topics={"partitions": PARTITIONS},
            envelope={"format": kind},
            **{"topics.keys": chosen(KEYS), "topics.partition_by": chosen(PARTITION_BY)},
        )
        s.run_to("0/1")
        Workload(connection, seed).run(300)
        # A workload of some seeds truncates at its end.
        for b in (7, 5, 7, 8):
            connection.execute(
                "INSERT INTO keyed VALUES (900, 9) ON CONFLICT (a) DO UPDATE SET b = %s", [b]
            )
            connection.execute(
                "INSERT INTO whole VALUES (900, 9, NULL) ON CONFLICT (a) DO UPDATE SET b = %s", [b]
            )
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)

    for table, identity in IDENTITIES.items():
        records = in_order(s.read(table))
        assert Rebuilt(identity).apply(records).rows() == native.rows(table), table
        partitions = defaultdict(set)
        columns = PARTITION_BY.get(table) or KEYS.get(table) or identity
        for record in records:
            if record.value is None or record.op == "t":
                continue
            if columns:
                expected = zlib.crc32(form(row_of(record), columns)) % PARTITIONS
                assert record.partition == expected, (table, record)
            if table in KEYS:
                assert list(record.key or ()) == list(KEYS[table])
                assert record.key == {name: row_of(record)[name] for name in KEYS[table]}
            partitions[str({name: row_of(record)[name] for name in columns})].add(record.partition)
        assert all(len(found) == 1 for found in partitions.values())
        tombstones = [record for record in records if record.value is None]
        assert table not in ("filtered", "bag", "appended") or not tombstones
    assert_exactly_once(s, IDENTITIES)
    halves = [
        r.headers.get("rekey") for r in in_order(s.read("whole")) if r.key == {"c": None, "a": 900}
    ]
    assert {"old", "new"} <= set(halves)
    moved = [r for r in in_order(s.read("keyed")) if r.key == {"a": 900} and r.value is not None]
    assert {"old", "new"} <= {r.headers.get("rekey") for r in moved}
    assert len({r.partition for r in moved}) > 1


def test_a_producer_with_the_form_as_key_is_partitioned_alike(
    scene: MakeScene, source: Connection, kafka: str
) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, customer int); CREATE TABLE other (id int)")
    source.execute("INSERT INTO t SELECT n, n % 50 FROM generate_series(1, 100) AS n")
    s = scene(
        DEFINITIONS.replace("t, other", "t").replace(";", " WITH (publish = 'insert');", 1),
        topics={"partitions": PARTITIONS},
        **{"topics.partition_by": {"public.t": ["customer"]}},
    )
    s.run_to(current_lsn(source))
    partition = {
        r.value["after"]["customer"]: r.partition for r in s.read("t") if r.op == "r" and r.value
    }
    sent: dict[bytes | None, int | None] = {}
    producer = Producer({"bootstrap.servers": kafka, "partitioner": "consistent"})
    for customer in partition:
        producer.produce(
            s.topic("t"),
            key=form({"customer": customer}, ["customer"]),
            on_delivery=lambda _, message: sent.update({message.key(): message.partition()}),
        )
    producer.flush(60)

    assert len(partition) == 50
    assert sent == {form({"c": customer}, ["c"]): number for customer, number in partition.items()}


def test_a_table_that_cannot_have_its_key_is_held_alone(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, customer int, v text)")
    source.execute("CREATE TABLE other (id int PRIMARY KEY, customer int)")
    source.execute("INSERT INTO t VALUES (1, 10); INSERT INTO other VALUES (1, 10)")
    s = scene(
        DEFINITIONS,
        **{
            "topics.keys": {"public.t": ["customer"]},
            "topics.partition_by": {"public.nothing": ["a"]},
            "consumer": {"history": ["public.t", "public.other", "public.nothing"]},
        },
    )
    why = (
        "[topics.keys] has its column 'customer', whose old value an UPDATE or DELETE does not log"
    )
    checked = s.cli("check")
    ended = s.run_to(current_lsn(source))

    assert f"table public.t of subscription {s.slot} is held: {why}" in checked.out
    unknown = "[topics.partition_by] has public.nothing, and no such table is published"
    assert checked.out.count(unknown) == ended.err.count(unknown) == 1
    unknown = "[consumer] history has public.nothing, and no such table is published"
    assert checked.out.count(unknown) == checked.out.count("[consumer] history has ") == 1
    assert "[topics.keys] has public." not in checked.out + ended.err
    assert why in ended.err
    assert not s.reader.has(s.topic("t"))
    assert s.rebuilt("other") == [(1, 10)]

    source.execute("ALTER TABLE t REPLICA IDENTITY FULL; UPDATE t SET customer = 11")
    s.run_to(current_lsn(source))
    assert Rebuilt(["id"]).apply(s.read("t")).rows() == [(1, 11, None)]

    # The stream says so before the catalog is read again.
    process = s.project.start()
    process.wait_until_copied()
    source.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT; UPDATE t SET customer = 12")
    wait_for_copy_marker(s, "t", "held")
    source.execute("UPDATE other SET customer = 12")
    wait_until_confirmed(source, s.slot)
    s.project.extra = {"topics.keys": {"public.t": ["v", "gone"]}}
    assert process.terminate() == 0, process.log()
    unpublished = s.cli("check")
    assert "[topics.keys] has its column 'v'" in unpublished.out

    source.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    assert "[topics.keys] has its column 'gone', which is not published" in s.cli("check").out
    s.project.extra = {"definitions": {"on_table_error": "stop"}, **s.project.extra}
    stopped = s.cli("run", "--endpos", current_lsn(source))
    assert (stopped.code, "table public.t: [topics.keys]" in stopped.err) == (1, True)


def test_a_tree_is_held_where_a_partition_does_not_log_the_old_values_for_a_while(
    scene: MakeScene, source: Connection
) -> None:
    source.execute(
        "CREATE TABLE t (id int PRIMARY KEY, customer int) PARTITION BY RANGE (id);"
        "CREATE TABLE leaf PARTITION OF t FOR VALUES FROM (0) TO (100);"
        "CREATE TABLE other (id int PRIMARY KEY, v int);"
        "ALTER TABLE t REPLICA IDENTITY FULL; ALTER TABLE leaf REPLICA IDENTITY FULL;"
        "INSERT INTO t VALUES (1, 10), (2, 10), (3, 10); INSERT INTO other VALUES (1, 1)"
    )
    s = scene(
        DEFINITIONS.replace(";", " WITH (publish_via_partition_root);", 1),
        topics={"partitions": PARTITIONS},
        **{"topics.partition_by": {"public.t": ["customer"]}},
    )
    s.run_to(current_lsn(source))
    with source.transaction():
        source.execute("ALTER TABLE leaf REPLICA IDENTITY DEFAULT")
        source.execute("UPDATE other SET v = 2; UPDATE t SET customer = 11 WHERE id = 1")
        source.execute("DELETE FROM t WHERE id = 2; UPDATE other SET v = 3")
        source.execute("ALTER TABLE leaf REPLICA IDENTITY FULL")
    source.execute("UPDATE t SET customer = 12 WHERE id = 3; UPDATE other SET v = 4")

    ended = s.run_to(current_lsn(source))

    assert "the old values of the columns in [topics.keys]" in ended.err
    records = in_order(s.read("t"))
    assert sum(record.op == "t" for record in records) == 2 * PARTITIONS
    assert Rebuilt(["id"]).apply(records).rows() == s.source_rows("SELECT * FROM t")
    assert [(r.op, r.value["after"]["v"]) for r in s.read("other") if r.value and r.op != "t"] == [
        ("r", 1),
        *(("u", v) for v in (2, 3, 4)),
    ]


def test_a_table_whose_key_or_partition_changes_is_copied_again(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, customer int); CREATE TABLE other (id int)")
    source.execute("ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 10), (2, 10)")
    s = scene(DEFINITIONS.replace(", other", ""), topics={"partitions": PARTITIONS})
    s.run_to(current_lsn(source))
    copies = []
    for extra in (
        {"topics.keys": {"public.t": ["customer"]}},
        {"topics.partition_by": {"public.t": ["customer"]}},
        {"topics.partition_by": {"public.t": ["customer"]}},
        {},
    ):
        s.project.extra = {"topics": {"partitions": PARTITIONS}, **extra}
        source.execute("UPDATE t SET customer = customer + 1")
        s.run_to(current_lsn(source))
        records = s.read("t")
        copies.append(sum(record.op == "t" for record in records) // PARTITIONS)
        assert Rebuilt(["id"]).apply(in_order(records)).rows() == s.source_rows("SELECT * FROM t")

    assert copies == [2, 3, 3, 4]


@pytest.mark.parametrize("options", ["", " WITH (copy_data = false)"])
def test_a_topic_that_is_compacted_and_one_without_truncates_need_a_key_of_one_row(
    scene: MakeScene, source: Connection, options: str
) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, customer int NOT NULL)")
    source.execute("CREATE TABLE other (id int, customer int NOT NULL, PRIMARY KEY (customer, id))")
    source.execute("ALTER TABLE t REPLICA IDENTITY FULL; INSERT INTO t VALUES (1, 10)")
    keys = {"public.t": ["customer"], "public.other": ["customer"]}
    definitions = DEFINITIONS.replace("PUBLICATION p;", f"PUBLICATION p{options};")
    s = scene(definitions, envelope={"format": "row"}, **{"topics.keys": keys})
    refused = s.cli("check")
    assert refused.out.count("is held: several rows can have the key of [topics.keys]") == 2

    s.project.extra = {
        "topics": {"truncate": "skip"},
        "topics.config": {"cleanup.policy": "compact"},
        "topics.keys": keys,
    }
    ended = s.cli("run", "--endpos", current_lsn(source))
    assert ended.code == 1
    assert "gets records that compaction" in ended.err
