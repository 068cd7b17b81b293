"""A topic that somebody deletes: noticed, named, and its table copied again, and no other one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.backends.broker import create_topics
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn, wait_until_confirmed
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t, other;CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)


def begun(scene: Scene, table: str) -> int:
    """How often a copy of the table has begun, as far as markers are there."""
    return sum(
        (m["copy"]["table"], m["copy"]["state"]) == (table, "copying")
        for m in scene.markers()
        if m["kind"] == "COPY"
    )


def make_tables(connection: Any) -> None:
    connection.execute(
        "CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE other (a int PRIMARY KEY);"
        "INSERT INTO t VALUES (1), (2); INSERT INTO other VALUES (1)"
    )


def test_a_topic_that_is_deleted_while_the_gateway_is_down_is_copied_again(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        make_tables(connection)
        s = scene(DEFINITIONS)
        first = s.run_to(current_lsn(connection))
        s.reader.delete(s.topic("t"))
        connection.execute("INSERT INTO t VALUES (3); INSERT INTO other VALUES (3)")

        checked = s.cli("check")
        s.run_to(current_lsn(connection))
        copied = begun(s, "t"), begun(s, "other")
        s.run_to(current_lsn(connection))
        assert (begun(s, "t"), begun(s, "other")) == copied == (2, 1), "and no other, and once"

        # The markers: whoever reads by them has to begin again, with all tables.
        s.reader.delete(f"{s.slot}.transaction")
        connection.execute("INSERT INTO other VALUES (4)")
        s.run_to(current_lsn(connection))

    assert first.err.count("one replica") == 1, "the risk is named at a start, and what to set"
    assert checked.code == 1, checked.out
    assert s.topic("t") in checked.out
    assert s.rebuilt("t") == [(1,), (2,), (3,)]
    assert s.rebuilt("other") == [(1,), (3,), (4,)]
    assert (begun(s, "t"), begun(s, "other")) == (1, 1), "in the new marker topic"
    for span in (span for m in s.markers() for span in m["offsets"]):
        assert span["first_offset"] >= span["previous_offset"]


def test_a_table_that_has_lost_records_is_held_until_somebody_asks_for_it(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        make_tables(connection)
        s = scene(DEFINITIONS, topics={"on_lost_records": "stop"})
        s.run_to(current_lsn(connection))
        s.reader.delete(s.topic("t"))
        connection.execute("INSERT INTO t VALUES (3); INSERT INTO other VALUES (3)")
        stopped = s.cli("run", environment={"PGSLUICE_DEFINITIONS__ON_TABLE_ERROR": "stop"})
        assert stopped.code == 1 and "pgsluice copy public.t" in stopped.err, stopped.err
        s.run_to(current_lsn(connection))
        connection.execute("INSERT INTO t VALUES (4); INSERT INTO other VALUES (4)")
        s.run_to(current_lsn(connection))
        status, checked = s.cli("status"), s.cli("check")

        assert s.rebuilt("other") == [(1,), (3,), (4,)], "the others go on, at each start"
        assert s.read("t") == []
        assert status.code == 1 and "pgsluice copy public.t" in status.out, status.out
        assert s.topic("t") in status.out
        assert checked.code == 1 and s.topic("t") in checked.out, checked.out

        gateway = s.project.start()
        gateway.wait_until_doing("streaming")
        assert s.cli("copy", "t").code == 0, gateway.log()
        connection.execute("INSERT INTO t VALUES (5); INSERT INTO other VALUES (5)")
        wait_until_confirmed(connection, s.slot)
        assert s.rebuilt("t") == [(1,), (2,), (3,), (4,), (5,)]
        assert "held" not in s.cli("status").out

        # While it writes, as well.
        s.reader.delete(s.topic("t"))
        connection.execute("INSERT INTO t VALUES (6); INSERT INTO other VALUES (6)")
        wait_until(
            lambda: "pgsluice copy public.t" in s.cli("status").out, 60, "the table to be held"
        )
        wait_until_confirmed(connection, s.slot)
        assert gateway.terminate() == 0, gateway.log()

    assert s.read("t") == []
    assert s.rebuilt("other") == [(1,), (3,), (4,), (5,), (6,)]
    assert begun(s, "other") == 1


def test_a_topic_that_is_made_again_and_filled_is_another_topic(
    scene: Callable[..., Scene], database: Database, kafka: str
) -> None:
    with database.connect() as connection:
        make_tables(connection)
        s = scene(DEFINITIONS)
        s.run_to(current_lsn(connection))
        fill_again(kafka, s, s.topic("t"))
        connection.execute("INSERT INTO t VALUES (3); INSERT INTO other VALUES (3)")
        checked = s.cli("check")
        s.run_to(current_lsn(connection))
        s.run_to(current_lsn(connection))
        assert (begun(s, "t"), begun(s, "other")) == (2, 1), "and no other, and once"
        assert s.rebuilt("t") == [(1,), (2,), (3,)]

        before = [len(s.read(table)) for table in ("t", "other")]
        fill_again(kafka, s, f"{s.slot}.transaction")
        s.run_to(current_lsn(connection))
        after = [s.read(table) for table in ("t", "other")]
        assert all(records[n].op == "t" for n, records in zip(before, after, strict=True))
        s.run_to(current_lsn(connection))

    assert [len(s.read(table)) for table in ("t", "other")] == [len(r) for r in after], "once"
    assert checked.code == 1 and "made again" in checked.out, checked.out
    assert s.rebuilt("t") == [(1,), (2,), (3,)]
    assert s.rebuilt("other") == [(1,), (3,)]


def raw_records(kafka: str, topic: str) -> list[Message]:
    """All records of a topic's one partition, as they are."""
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": "raw", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Message] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            found.append(message)
    finally:
        consumer.close()


def fill_again(kafka: str, scene: Scene, topic: str) -> None:
    """Let somebody delete a topic, make it again, and fill it past where it ended."""
    records = [(m.key(), m.value(), m.headers()) for m in raw_records(kafka, topic)]
    scene.reader.delete(topic)
    admin = AdminClient({"bootstrap.servers": kafka})
    create_topics(admin, [NewTopic(topic, 1)])
    producer = Producer({"bootstrap.servers": kafka})
    for key, value, headers in records * 4:
        producer.produce(topic, value, key, headers=headers)
    assert producer.flush(60) == 0


def test_a_topic_that_is_deleted_while_the_gateway_writes_stalls_no_other_table(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        make_tables(connection)
        s = scene(DEFINITIONS)
        gateway = s.project.start()
        wait_until(lambda: s.reader.has(s.topic("t")), 60, "the topics")
        wait_until_confirmed(connection, s.slot)
        wait_until(lambda: s.rebuilt("t") == [(1,), (2,)], 60, "the copy")

        s.reader.delete(s.topic("t"))
        connection.execute("INSERT INTO t VALUES (3); INSERT INTO other VALUES (3)")
        wait_until_confirmed(connection, s.slot)

        def is_whole() -> bool:
            there = s.reader.has(s.topic("t"))
            return there and s.rebuilt("t") == [(1,), (2,), (3,)]

        wait_until(is_whole, 120, "the table to be copied again")
        assert s.rebuilt("other") == [(1,), (3,)]
        assert s.topic("t") in gateway.log(), "the reason names the topic"
        assert gateway.terminate() == 0, gateway.log()
    assert (begun(s, "t"), begun(s, "other")) == (2, 1)
