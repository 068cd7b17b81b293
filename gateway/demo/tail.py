"""Print the records of one topic, as any Kafka client can read them.

``python -m gateway.demo.tail BOOTSTRAP_SERVERS REGISTRY_URL TOPIC``; it follows until interrupted.
"""

from __future__ import annotations

import contextlib
import json
import sys

from confluent_kafka import DeserializingConsumer, KafkaException, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer


def main(bootstrap_servers: str, registry_url: str, topic: str) -> None:
    """Print headers, key and value of each record, one line each."""
    avro = AvroDeserializer(SchemaRegistryClient({"url": registry_url}))
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "pgsluice-demo-tail",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "key.deserializer": avro,
            "value.deserializer": avro,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    while True:
        record = consumer.poll(1.0)
        if record is None:
            continue
        if error := record.error():
            raise KafkaException(error)
        headers = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in dict(record.headers() or ()).items()
        }
        shown = {"headers": headers, "key": record.key(), "value": record.value()}
        print(json.dumps(shown, default=str, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main(*sys.argv[1:])
