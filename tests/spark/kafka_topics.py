"""Put records into real topics, in transactions, with schemas in a real registry."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

import schemas
from tests.spark.records import Record, TableTopic, encode


class RegisteredSchemas:
    """Gives schemas ids in a schema registry."""

    def __init__(self, url: str) -> None:
        self._client = SchemaRegistryClient({"url": url})

    def register(self, schema: dict[str, Any]) -> int:
        subject = f"{schema['namespace']}.{schema['name']}-{uuid.uuid4().hex}"
        return self._client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))


class Topics:
    """The topics of a subscription, with the markers that tell their totals."""

    def __init__(self, bootstrap_servers: str, registry: RegisteredSchemas, name: str) -> None:
        self.subscription = name
        self.marker_topic = f"{name}.transaction"
        self._registry = registry
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "transactional.id": f"test-{uuid.uuid4().hex}"}
        )
        self._producer.init_transactions(30)
        self._totals: Counter[str] = Counter()
        self._marker_schema = schemas.load("transaction")
        self._marker_id = registry.register(self._marker_schema)

    def create(self, topic: str, partitions: int = 1) -> None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        self._admin.create_topics([new])[topic].result(30)

    def commit(
        self,
        tables: Iterable[TableTopic],
        markers: Iterable[Mapping[str, Any]],
        *,
        abort: bool = False,
    ) -> None:
        """Produce what the tables have collected, and the markers, in one Kafka transaction.

        A marker of kind END or a COPY that is ready gets the running totals of the tables' topics.
        """
        tables = list(tables)
        self._producer.begin_transaction()
        counts: Counter[str] = Counter()
        for table in tables:
            for record in table.records:
                self._produce(record)
                counts[record.topic] += record.value is not None
            table.records.clear()
        totals = self._totals + counts
        spoken = [
            {"topic": t.topic, "partition": 0, "records": counts[t.topic], "total": totals[t.topic]}
            for t in tables
        ]
        for marker in markers:
            datum = {"partitions": [] if marker["kind"] == "PROGRESS" else spoken, **marker}
            value = encode(self._marker_id, self._marker_schema, datum)
            self._produce(Record(self.marker_topic, None, value, []))
        if abort:
            self._producer.flush(30)
            self._producer.abort_transaction(30)
        else:
            self._producer.commit_transaction(30)
            self._totals = totals

    def _produce(self, record: Record) -> None:
        headers: list[tuple[str, str | bytes | None]] = [*record.headers]
        self._producer.produce(
            record.topic, key=record.key, value=record.value, headers=headers, partition=0
        )
