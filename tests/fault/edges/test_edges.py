"""Servers that die under the edges: nothing is lost and nothing is there twice."""

from __future__ import annotations

import struct
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from functools import partial

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.descriptors import wait_readable
from gateway.core.errors import TransientError
from gateway.core.lsn import Lsn
from gateway.core.records import Batch, Cut, Feed, Record
from gateway.core.watermark import Watermark
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.compacted_topic import read_compacted
from gateway.sink.own_topics.progress import KafkaProgress
from gateway.sink.topics.topics import TopicSpec, ensure_topics, progress_topic_spec
from gateway.source.session.connection import connect
from gateway.source.stream.connection import ReplicationConnection
from gateway.source.stream.slot import slot_status
from tests.support.backends.rack import Rack
from tests.support.models.markers import decode_marker
from tests.support.run.waiting import PATIENCE, wait_until, within

BATCHES = 150
RECORDS = 20
FEED = Feed("s", "s.transaction", b"\0\0\0\0\7\0\0", {"rows": 1})


class FixedIds:
    def register(self, subject: str, schema: Mapping[str, object]) -> int:
        return 7


@pytest.fixture
def broker(rack: Rack) -> EmbeddedKafka:
    return rack.broker


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(16) as running:
        yield running


def publish_all(kafka: Mapping[str, str], slot: str, committed: list[int]) -> None:
    """Publish batches 1 to BATCHES over any number of failures, noting what was committed.

    The position of the source is the number of the batch, as `end_lsn` is of a transaction.
    """
    identity = SlotIdentity("1", "db", slot)
    deadline = time.monotonic() + 600 * PATIENCE
    while True:
        progress = KafkaProgress(kafka, identity, FixedIds())
        with TransactionalSink(kafka, identity, progress, patience_s=20) as sink:
            try:
                watermark = sink.open(timeout_s=20).watermark
                position = 0 if watermark is None else int(watermark.end_lsn)
                while position < BATCHES:
                    position += 1
                    sink.submit(_batch(position))
                    assert wait_readable([sink.fileno()], 60)
                    sink.collect()
                    committed.append(position)
            except TransientError:
                assert time.monotonic() < deadline, "the broker has not come back"
            else:
                return


def _has(committed: list[int], count: int) -> bool:
    return len(committed) >= count


def _batch(number: int) -> Batch:
    records: list[Record] = [
        ("rows", 0, b"%d" % number, b"%d" % n, [("lsn", b"00000000/00000001")])
        for n in range(RECORDS)
    ]
    return Batch(records, Watermark(Lsn(number), 1, "", ()), Cut(Lsn(number), 1, [FEED]))


def assert_markers_cover(kafka: Mapping[str, str]) -> None:
    """One marker for each batch, each beginning where the one before ended, or later."""
    reader = Consumer({**kafka, "group.id": "markers", "isolation.level": "read_committed"})
    try:
        reader.assign([TopicPartition(FEED.markers, 0, 0)])
        found = [
            decode_marker((message.value() or b"")[5:])
            for message in reader.consume(BATCHES, timeout=30 * PATIENCE)
        ]
    finally:
        reader.close()
    assert [marker["end_lsn"] for marker in found] == list(range(1, BATCHES + 1))
    behind = 0
    for marker in found:
        (span,) = marker["offsets"]
        assert (span["previous_offset"], span["records"]) == (behind, RECORDS)
        assert span["next_offset"] - span["first_offset"] == RECORDS
        assert span["first_offset"] >= behind
        behind = span["next_offset"]


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.slow
def test_broker_killed_under_load_loses_nothing_and_doubles_nothing(broker: EmbeddedKafka) -> None:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    ensure_topics(
        kafka,
        [
            TopicSpec("rows"),
            TopicSpec(FEED.markers),
            progress_topic_spec("pgsluice.progress"),
        ],
    )
    committed: list[int] = []
    loader = threading.Thread(target=publish_all, args=(kafka, uuid.uuid4().hex, committed))
    loader.start()
    for reached in (BATCHES // 3, 2 * BATCHES // 3):
        wait_until(partial(_has, committed, reached), 60, "the load", poll_s=0.001)
        broker.kill()
        broker.restart()
    loader.join(60 * PATIENCE)
    assert not loader.is_alive()

    found = [(key, value) for key, value in read_compacted(kafka, "rows", 60)]

    assert found == [
        (b"%d" % number, b"%d" % n) for number in range(1, BATCHES + 1) for n in range(RECORDS)
    ]
    assert_markers_cover(kafka)


@pytest.mark.kafka
@pytest.mark.java
@pytest.mark.slow
def test_broker_that_stays_away_is_given_up_within_the_bound(broker: EmbeddedKafka) -> None:
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    ensure_topics(
        kafka,
        [
            TopicSpec("rows"),
            TopicSpec(FEED.markers),
            progress_topic_spec("pgsluice.progress"),
        ],
    )
    identity = SlotIdentity("1", "db", "slot")
    progress = KafkaProgress(kafka, identity, FixedIds())
    sink = TransactionalSink(kafka, identity, progress, patience_s=3)
    sink.open()
    broker.kill()

    sink.submit(_batch(1))
    # Without a bound it would be librdkafka's, which are minutes.
    with within(30, "the end of the sink"):
        assert wait_readable([sink.fileno()], 60 * PATIENCE)
        with pytest.raises(TransientError):
            sink.collect()
        sink.close(timeout_s=2)
        del sink


@pytest.mark.postgres
@pytest.mark.slow
def test_server_that_dies_ends_the_stream_and_the_slot_resends_what_was_not_confirmed(
    server: EmbeddedPostgres,
) -> None:
    dsn = server.dsn()
    with psycopg.connect(dsn, autocommit=True) as writer:
        writer.execute("CREATE TABLE t (id int PRIMARY KEY)")
        writer.execute("CREATE PUBLICATION p FOR TABLE t")
        with ReplicationConnection(dsn) as creator:
            creator.create_slot("s")
        with ReplicationConnection(dsn).start("s", ["p"]) as source:
            writer.execute("INSERT INTO t VALUES (1)")
            (first,) = _commit_ends(source, 1)
            source.send_feedback(Lsn(first))
            writer.execute("INSERT INTO t VALUES (2)")
            (second,) = _commit_ends(source, 1)
            _confirmed(dsn, first)

            server.kill()
            with pytest.raises(TransientError):
                _commit_ends(source, 1)
    server.restart()

    with psycopg.connect(dsn, autocommit=True) as writer:
        writer.execute("INSERT INTO t VALUES (3)")
    with ReplicationConnection(dsn).start("s", ["p"]) as source:
        again = _commit_ends(source, 2)

    # A crash may take the slot back to an earlier position, never forward.
    assert second in again
    assert again[0] in (first, second)


def _confirmed(dsn: str, lsn: int) -> None:
    with connect(dsn) as connection:
        deadline = time.monotonic() + 120
        while (status := slot_status(connection, "s")) is None or status.confirmed_flush_lsn != lsn:
            assert time.monotonic() < deadline, status


def _commit_ends(source: ReplicationConnection, count: int) -> list[int]:
    """`end_lsn` of the next `count` Commit messages."""
    ends: list[int] = []
    deadline = time.monotonic() + 120
    while len(ends) < count:
        assert time.monotonic() < deadline
        frames = source.receive(100)
        ends += [
            struct.unpack_from(">Q", frame, 25 + 10)[0] for frame in frames if frame[25:26] == b"C"
        ]
        if not frames:
            wait_readable([source.fileno()], 1.0)
    return ends
