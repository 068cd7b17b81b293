"""Print the changes of a topic as they come, with asyncio: aiokafka, and Confluent's deserializer.

    python examples/topic_asyncio.py localhost:9092 http://localhost:8081 s1.public.t1

aiokafka is a client of its own, not librdkafka, and needs lz4 to read what the gateway compresses:
`pip install 'aiokafka[lz4]' 'confluent-kafka[avro,schemaregistry]'`.
"""

import argparse
import asyncio

from aiokafka import AIOKafkaConsumer
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


async def follow(bootstrap: str, registry: str, topic: str, *, to_end: bool) -> None:
    """Print each change from the beginning of the topic on."""
    context = SerializationContext(topic, MessageField.VALUE)
    async with (
        AsyncSchemaRegistryClient({"url": registry}) as schemas,
        AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",  # never a part of a transaction
            auto_offset_reset="earliest",  # without a group: of every partition
        ) as consumer,
    ):
        avro = await AsyncAvroDeserializer(schemas)
        ends = await consumer.end_offsets(consumer.assignment())
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    if record.value is not None:  # else a tombstone
                        change = await avro(record.value, context)
                        lsn = dict(record.headers)["lsn"].decode()
                        print(lsn, change["op"], change["before"], change["after"], flush=True)
            if to_end and all([await consumer.position(p) >= end for p, end in ends.items()]):
                return


def main() -> None:
    """Follow the topic."""
    parser = argparse.ArgumentParser(description="print the changes of a topic")
    for name in ("bootstrap", "registry", "topic"):
        parser.add_argument(name)
    parser.add_argument("--to-end", action="store_true", help="stop at what is there now")
    given = parser.parse_args()
    asyncio.run(follow(given.bootstrap, given.registry, given.topic, to_end=given.to_end))


if __name__ == "__main__":
    main()
