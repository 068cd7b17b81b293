"""Print the changes of a topic as they come, with asyncio: aiokafka, and Confluent's deserializer.

    python examples/topic_asyncio.py localhost:9092 http://localhost:8081 s1.public.t1
    python examples/topic_asyncio.py --config pgsluice.toml s1.public.t1

aiokafka is a client of its own, not librdkafka, and needs lz4 to read what the gateway compresses:
`pip install 'aiokafka[lz4]' 'confluent-kafka[avro,schemaregistry]'`.
`--config` connects as [kafka] and [registry] of a file say, with their passwords.
"""

import argparse
import asyncio
import tomllib
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from confluent_kafka.schema_registry.avro import AsyncAvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

OPTIONS = {
    "bootstrap.servers": "bootstrap_servers",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
"""Names of librdkafka's properties in aiokafka, which takes an `ssl_context` for TLS instead."""


async def follow(config: dict[str, Any], topic: str, *, to_end: bool) -> None:
    """Print each change from the beginning of the topic on."""
    kafka = {OPTIONS[name]: value for name, value in config["kafka"].items() if name in OPTIONS}
    context = SerializationContext(topic, MessageField.VALUE)
    async with (
        AsyncSchemaRegistryClient(config["registry"]) as schemas,
        AIOKafkaConsumer(
            topic,
            **kafka,
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
    for name in ("bootstrap", "registry"):
        parser.add_argument(name, nargs="?")
    parser.add_argument("topic")
    parser.add_argument("--config", help="a pgsluice.toml, instead of bootstrap and registry")
    parser.add_argument("--to-end", action="store_true", help="stop at what is there now")
    given = parser.parse_args()
    if given.config:
        config = tomllib.loads(Path(given.config).read_text())
    elif given.registry:
        config = {
            "kafka": {"bootstrap.servers": given.bootstrap},
            "registry": {"url": given.registry},
        }
    else:
        parser.error("give bootstrap and registry, or --config")
    try:
        asyncio.run(follow(config, given.topic, to_end=given.to_end))
    except KafkaError as error:  # no broker answers, for one
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
