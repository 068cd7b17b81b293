"""Topics that are trimmed, of other formats, or not there: the client says so, or waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from pgsluice_client import (
    LostRecordsError,
    Position,
    Reader,
    ReadError,
    TableRows,
    UnavailableError,
    UnsupportedTopicError,
)
from tests.support.backends.broker import delete_topics
from tests.support.backends.proxy import Proxy
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Connection, Scene, current_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TABLES = "CREATE TABLE t (a int PRIMARY KEY, b text); CREATE TABLE u (a int PRIMARY KEY, b text);"
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t, u; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)


PARTITIONS = 12


class CountingConsumer(Consumer):
    """Counts the requests for offsets; one for the first and the last offset is two."""

    lookups = 0

    def offsets_for_times(self, *arguments: Any) -> Any:
        self.lookups += 1
        return super().offsets_for_times(*arguments)

    def get_watermark_offsets(self, *arguments: Any) -> Any:
        self.lookups += 2
        return super().get_watermark_offsets(*arguments)


@pytest.fixture
def reader(kafka: str, registry: str) -> Callable[..., Reader]:
    def make(subscription: str, **arguments: Any) -> Reader:
        return Reader(subscription, {"bootstrap.servers": kafka}, {"url": registry}, **arguments)

    return make


def insert(s: Scene, connection: Connection, *statements: str) -> None:
    for statement in statements:
        connection.execute(statement.encode())
    s.run_to(current_lsn(connection))


def trim(kafka: str, topic: str, partitions: int) -> None:
    """Delete all records of a topic."""
    admin = AdminClient({"bootstrap.servers": kafka})
    ends = [TopicPartition(topic, number, -1) for number in range(partitions)]
    for done in admin.delete_records(ends).values():
        done.result()


def apply_to_end(
    reader: Reader, rows: Mapping[str, TableRows]
) -> tuple[list[tuple[str, str]], Position]:
    """Apply what there is; the operations on tables in order, and the position."""
    found = []
    with reader:
        for transaction in reader.transactions(to_end=True):
            for change in transaction.changes:
                rows[change.table].apply(change)
                found.append((change.table, change.op))
        return found, reader.position


def test_a_topic_without_its_beginning_begins_with_the_next_copy(
    scene: MakeScene,
    database: Database,
    kafka: str,
    reader: Callable[..., Reader],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pgsluice_client.reader.Consumer", CountingConsumer)
    rows = {"t": TableRows(), "u": TableRows()}
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, topics={"partitions": PARTITIONS})
        insert(s, connection, "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 20) n")
        insert(s, connection, "INSERT INTO u VALUES (1, 'x')")
        trim(kafka, s.topic("t"), PARTITIONS)
        insert(s, connection, "UPDATE t SET b = 'y'", "UPDATE u SET b = 'y'")
        first = reader(s.slot)
        before, position = apply_to_end(first, rows)
        gateway = s.project.start()
        gateway.wait_until_copied()
        assert s.cli("copy", "t").code == 0
        assert gateway.terminate() == 0
        insert(s, connection, "UPDATE t SET b = 'z' WHERE a = 3", "UPDATE u SET b = 'z'")
        start = Position.from_json(position.to_json())
        after, end = apply_to_end(reader(s.slot, start=start), rows)

    assert {table for table, _ in before} == {"u"}
    assert isinstance(first._consumer, CountingConsumer)
    assert 3 < first._consumer.lookups < PARTITIONS, "three of markers; no request for each"
    assert position.waiting == {s.topic("t")}
    assert after == [("t", "t"), *[("t", "r")] * 20, ("t", "u"), ("u", "u")]
    assert end.waiting == frozenset()
    for table, kept in rows.items():
        held = sorted((row["a"], row["b"]) for row in kept)
        assert held == sorted(s.source_rows(f"SELECT a, b FROM {table}"))


def test_lost_records_are_an_error_for_who_needs_them_and_lost_markers_alone_are_none(
    scene: MakeScene, database: Database, kafka: str, reader: Callable[..., Reader]
) -> None:
    rows = {"t": TableRows(), "u": TableRows()}
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS)
        insert(s, connection, "INSERT INTO t VALUES (1, 'x')", "INSERT INTO u VALUES (1, 'x')")
        _, start = apply_to_end(reader(s.slot), rows)
        insert(s, connection)
        trim(kafka, f"{s.slot}.transaction", 1)
        insert(s, connection, "INSERT INTO t VALUES (2, 'x')")
        found, later = apply_to_end(reader(s.slot, start=start), rows)
        trim(kafka, s.topic("t"), 1)
        insert(s, connection, "INSERT INTO t VALUES (3, 'x')", "INSERT INTO u VALUES (2, 'x')")

    assert found == [("t", "c")]
    assert apply_to_end(reader(s.slot, start=later), rows)[0] == [("t", "c"), ("u", "c")]
    with pytest.raises(LostRecordsError, match="no record at offset"):
        apply_to_end(reader(s.slot, start=start), rows)
    only_u = reader(s.slot, start=start, topics=[s.topic("u")])
    assert apply_to_end(only_u, {"u": TableRows()})[0] == [("u", "c")]


def test_topics_that_were_deleted_are_not_needed_by_who_begins_now(
    scene: MakeScene, database: Database, kafka: str, reader: Callable[..., Reader]
) -> None:
    rows = {"t": TableRows(), "u": TableRows()}
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, topics={"partitions": 3})
        insert(s, connection, "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 40) n")
        insert(s, connection, "INSERT INTO u VALUES (1, 'x')", "DELETE FROM t WHERE a > 10")
        _, start = apply_to_end(reader(s.slot), {"t": TableRows(), "u": TableRows()})
        connection.execute(b"DROP TABLE u")
        s.run_to(current_lsn(connection))
        delete_topics(AdminClient({"bootstrap.servers": kafka}), [s.topic("t"), s.topic("u")])
        gateway = s.project.start()
        gateway.wait_until_copied()
        assert gateway.terminate() == 0
        insert(s, connection, "UPDATE t SET b = 'y' WHERE a = 3")
        found, end = apply_to_end(reader(s.slot), rows)

    assert {table for table, _ in found} == {"t"}
    assert end.waiting == {s.topic("u")}
    held = sorted((row["a"], row["b"]) for row in rows["t"])
    assert held == sorted(s.source_rows("SELECT a, b FROM t"))
    with pytest.raises(LostRecordsError):
        apply_to_end(reader(s.slot, start=start), rows)


@pytest.mark.parametrize(
    ("envelope", "named"),
    [
        ({"format": "row"}, 'the format "row"'),
        ({"format": "debezium"}, 'the format "debezium"'),
        ({"without_truncates": ["{s}"]}, "without_truncates"),
    ],
)
def test_another_format_is_refused_by_its_name(
    envelope: dict[str, Any],
    named: str,
    scene: MakeScene,
    database: Database,
    reader: Callable[..., Reader],
) -> None:
    slot = f"gw_{database.name}"
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        if "without_truncates" in envelope:
            envelope = {"without_truncates": [slot]}
        s = scene(DEFINITIONS, envelope=envelope)
        insert(s, connection, "INSERT INTO t VALUES (1, 'x')")

    with pytest.raises(UnsupportedTopicError, match=named):
        apply_to_end(reader(s.slot), {})


def test_a_wrong_name_is_named(kafka: str, reader: Callable[..., Reader]) -> None:
    with (
        reader("no_such") as missing,
        pytest.raises(ReadError, match=r"topic no_such\.transaction"),
    ):
        missing.poll(0)
    with pytest.raises(ReadError, match="subscription s1"):
        reader("s2", start=Position("s1"))


def test_a_registry_that_comes_back_is_asked_again(
    scene: MakeScene, database: Database, kafka: str, registry: str
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS)
        insert(s, connection, "INSERT INTO t VALUES (1, 'x')")

    with Proxy(registry) as proxy:
        options = {"bootstrap.servers": kafka}, {"url": proxy.through(registry)}
        with Reader(s.slot, *options) as reader:
            proxy.refuse()
            with pytest.raises(UnavailableError, match="registry does not answer"):
                next(reader.transactions(to_end=True))
            proxy.accept()
            found = [
                change.op for one in reader.transactions(to_end=True) for change in one.changes
            ]

    assert sorted(found) == ["r", "t", "t"]
