"""Put records into real topics, in transactions, with schemas in a real registry."""

from __future__ import annotations

import json
import struct
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

import schemas
from schemas.registry_trust import without_unused_authorities
from tests.support.backends.broker import await_visible, create_topics
from tests.support.run.waiting import PATIENCE
from tests.support.spark.records import Record, TableTopic, encode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RegisteredSchemas:
    """Gives schemas ids in a schema registry, which is asked once for each."""

    def __init__(self, url: str) -> None:
        self._client = SchemaRegistryClient(without_unused_authorities({"url": url}))
        self._ids: dict[str, int] = {}

    def register(self, schema: dict[str, Any]) -> int:
        text = json.dumps(schema)
        if text not in self._ids:
            subject = f"{schema['namespace']}.{schema['name']}-{uuid.uuid4().hex}"
            self._ids[text] = self._client.register_schema(subject, Schema(text, "AVRO"))
        return self._ids[text]


class Topics:
    """The topics of a subscription, with the markers that tell their offsets."""

    def __init__(self, bootstrap_servers: str, registry: RegisteredSchemas, name: str) -> None:
        self.subscription = name
        self.marker_topic = f"{name}.transaction"
        self._registry = registry
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": f"test-{uuid.uuid4().hex}",
                "transaction.timeout.ms": 900_000,
            }
        )
        self._producer.init_transactions(30 * PATIENCE)
        self._next: Counter[tuple[str, int]] = Counter()
        self._written: set[tuple[str, int]] = set()
        self._miscounted = ""
        self.writer: Mapping[str, Any] | None = None
        self._marker_schema = schemas.load("transaction")
        self._marker_id = registry.register(self._marker_schema)

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, and wait until the broker that takes its records knows it.

        A producer that knew a deleted topic of this name does not ask: the broker would refuse to
        add the partition to its transaction.
        """
        create_topics(self._admin, [NewTopic(topic, partitions, replication_factor=1)])

    def miscount(self, topic: str) -> None:
        """Let the next marker say one record too many."""
        self._miscounted = topic

    def commit(
        self,
        tables: Iterable[TableTopic],
        markers: Iterable[Mapping[str, Any]],
        *,
        more: Iterable[Record] = (),
        abort: bool = False,
    ) -> None:
        """Produce what the tables have collected, `more`, and the markers, in one transaction.

        As from the gateway, a PROGRESS marker with its offsets is the last record; of the last END
        or PROGRESS of `markers`, if there is one, with its commit time.
        """
        self._producer.begin_transaction()
        self._spans: dict[tuple[str, int], list[int]] = defaultdict(list)
        for table in tables:
            for record in table.records:
                self._produce(record, self._report)
            table.records.clear()
        for record in more:
            self._produce(record, self._report)
        end_lsn, commit_time = 0, None
        for marker in markers:
            if marker["kind"] != "COPY":
                end_lsn, commit_time = marker["end_lsn"], marker.get("commit_time")
            if marker["kind"] != "PROGRESS":
                self._mark(marker)
        self.deliver()
        offsets: list[dict[str, Any]] = [
            {
                "topic": topic,
                "partition": partition,
                "first_offset": min(found),
                "next_offset": max(found) + 1,
                "previous_offset": self._next[topic, partition],
                "records": len(found) + (topic == self._miscounted),
            }
            for (topic, partition), found in self._spans.items()
        ]
        progress = {"kind": "PROGRESS", "end_lsn": end_lsn, "commit_time": commit_time}
        self._mark({**progress, "offsets": offsets, "writer": self.writer})
        if abort:
            self._producer.flush(30 * PATIENCE)
            self._producer.abort_transaction(30 * PATIENCE)
        else:
            self._commit()
            for each in offsets:
                self._next[each["topic"], each["partition"]] = each["next_offset"]

    def forge(self, markers: Iterable[Mapping[str, Any]]) -> None:
        """Produce markers as they are given, in a transaction of their own."""
        self._producer.begin_transaction()
        for marker in markers:
            self._mark(marker)
        self._commit()

    def deliver(self) -> None:
        """Wait until the brokers have what was produced so far."""
        assert self._producer.flush(30 * PATIENCE) == 0

    def raw(self, records: Iterable[Record]) -> None:
        """Produce records as they are, in a transaction of their own, which no marker ends."""
        self._producer.begin_transaction()
        for record in records:
            self._produce(record)
        self._commit()

    def marker(self, body: bytes) -> bytes:
        """A record in the wire format that says it is a marker, with this as its Avro body."""
        return struct.pack(">bI", 0, self._marker_id) + body

    def _commit(self) -> None:
        """Commit, and wait until a job that reads to the end now reads what was committed."""
        self._producer.commit_transaction(30 * PATIENCE)
        await_visible(self._admin, [TopicPartition(*place) for place in self._written])
        self._written.clear()

    def _mark(self, datum: Mapping[str, Any]) -> None:
        value = encode(self._marker_id, self._marker_schema, datum)
        self._produce(Record(self.marker_topic, None, value, []))

    def _report(self, error: KafkaError | None, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert error is None
        assert topic is not None and partition is not None and offset is not None
        self._spans[topic, partition].append(offset)

    def _produce(
        self, record: Record, report: Callable[[KafkaError | None, Message], None] | None = None
    ) -> None:
        headers: list[tuple[str, str | bytes | None]] = [*record.headers]
        self._written.add((record.topic, record.partition))
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    headers=headers,
                    partition=record.partition,
                    on_delivery=report,
                )
                return
            except BufferError:
                self._producer.poll(1)


def produce_bomb(bootstrap_servers: str, topic: str, size: int, *, codec: str = "gzip") -> None:
    """Produce a record of `size` bytes, which take some kilobytes in transit and on disk."""
    failed: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "compression.type": codec,
            "message.max.bytes": 1_000_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
        }
    )
    producer.produce(topic, bytes(size), on_delivery=lambda error, _: failed.append(error))
    producer.flush(100 * PATIENCE)
    assert failed == [None]


def more_than_spark_has(spark: SparkSession) -> int:
    """Size of a record, in bytes, that the JVM of this session has no memory for when read."""
    jvm: Any = spark._jvm
    most = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    return min(most * 7 // 10, 900_000_000)
