"""Topics of one test's own and a sink on them, for the tests of the edge to Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from gateway.core.descriptors import wait_readable
from gateway.core.lsn import Lsn
from gateway.core.records import Batch, Cut, Feed, Record
from gateway.core.watermark import CopyState, Watermark
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.clients.properties import connect_first
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.own_topics.compacted_topic import read_compacted
from gateway.sink.own_topics.progress import KafkaProgress, read_progress
from gateway.sink.topics.topics import TopicSpec, ensure_topics, progress_topic_spec
from tests.support.gateway.process import PROMPT
from tests.support.models.markers import decode_marker
from tests.support.run.waiting import PATIENCE, wait_until

COPIES = (
    CopyState("s", "public", "t", "ready", Lsn(0xFFFFFFFF_00000001 >> 1)),
    CopyState("s", "public", "ü.-", "pending"),
)


class Topics:
    """Topics of one test's own."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.kafka: dict[str, str] = {"bootstrap.servers": bootstrap_servers}
        self.prefix = f"test-{uuid.uuid4().hex[:8]}"
        self.rows = f"{self.prefix}.rows"
        self.progress = f"{self.prefix}.progress"
        self.markers = f"{self.prefix}.transaction"
        ensure_topics(
            self.kafka,
            [
                TopicSpec(self.rows, partitions=2),
                progress_topic_spec(self.progress),
                TopicSpec(self.markers),
            ],
        )
        self.identity = SlotIdentity("7000000000000000001", "db", self.prefix)

    def records(self, count: int, *, partition: int = 0) -> list[Record]:
        return [
            (self.rows, partition, b"k%d" % n, b"v%d" % n, [("lsn", b"00000000/00000001")])
            for n in range(count)
        ]

    def watermark(self, end_lsn: int) -> Watermark:
        return Watermark(Lsn(end_lsn), 3, "fingerprint", COPIES)

    def cut(self, end_lsn: int, **fields: Any) -> Cut:
        feed = Feed(self.prefix, self.markers, b"\0\0\0\0\7\0\0", {self.rows: 2})
        return Cut(Lsn(end_lsn), 3, [feed], **fields)

    def offsets(self) -> list[list[tuple[int, ...]]]:
        """Return partition, first, next and previous offset, records of every PROGRESS marker."""
        found = []
        for marker in self.marked():
            assert all(each.pop("topic") == self.rows for each in marker["offsets"])
            found.append([tuple(each.values()) for each in marker["offsets"]])
        return found

    def marked(self) -> list[dict[str, Any]]:
        """The markers, to the end: a broker ends a transaction after it has answered the commit."""
        end = self._end(self.markers)
        consumer = Consumer(
            {
                **PROMPT,
                **self.kafka,
                "group.id": "test",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        found = []

        def is_at_end() -> bool:
            message = consumer.poll(1)
            if message is None:
                return False
            error = message.error()
            if error is None:
                found.append(decode_marker((message.value() or b"")[5:]))
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            return is_end and (message.offset() or 0) >= end

        try:
            connect_first(consumer, self.markers)
            consumer.assign([TopicPartition(self.markers, 0, 0)])
            wait_until(is_at_end, 60, "the end of the markers", poll_s=0)
        finally:
            consumer.close()
        return found

    def visible(self) -> list[bytes]:
        """Keys that a ``read_committed`` consumer sees in partition 0."""
        return [key for key, _ in read_compacted(self.kafka, self.rows, 30)]

    def uncommitted(self) -> int:
        """Records in partition 0, visible or not; control records count, too."""
        return self._end(self.rows)

    def _end(self, topic: str) -> int:
        consumer = Consumer(
            {**PROMPT, **self.kafka, "group.id": "test", "isolation.level": "read_uncommitted"}
        )
        try:
            connect_first(consumer, topic)
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        finally:
            consumer.close()
        return end


class FixedIds:
    """A registry for tests that are not about the registry."""

    def register(self, subject: str, schema: Mapping[str, object]) -> int:
        return 7


def make_sink(topics: Topics, **kafka: str) -> TransactionalSink:
    progress = KafkaProgress(
        topics.kafka,
        topics.identity,
        FixedIds(),
        topic=topics.progress,
    )
    return TransactionalSink({**topics.kafka, **kafka}, topics.identity, progress)


def leave_open(
    kafka: Mapping[str, str | int | bool], identity: SlotIdentity, topic: str, key: bytes
) -> Producer:
    """Leave a Kafka transaction open as a gateway of the slot does that is killed in a commit."""
    properties = {
        **kafka,
        "transactional.id": identity.transactional_id,
        "transaction.timeout.ms": 900_000,
    }
    killed = Producer(properties)
    killed.init_transactions(60)
    killed.begin_transaction()
    killed.produce(topic, key=key, value=b"", partition=0)
    assert killed.flush(60) == 0
    return killed


def committed(topics: Topics) -> Watermark | None:
    return read_progress(topics.kafka, topics.progress, topics.identity, 30).watermark


def finish(sink: TransactionalSink, batch: Batch) -> Batch:
    """Submit and wait, as the pipeline does, by `fileno`."""
    sink.submit(batch)
    readable = wait_readable([sink.fileno()], 60 * PATIENCE)
    assert readable, "the sink has not finished"
    done = sink.collect()
    assert done is batch
    return done
