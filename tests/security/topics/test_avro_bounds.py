"""Records that are small and take long, or that no client can decompress."""

from __future__ import annotations

import json
import struct
import time
import uuid
from typing import Any

import pytest

from gateway.core.errors import FatalError, ProtocolError
from gateway.core.records import Writer
from gateway.envelope.encoding.varint import encode_long
from gateway.sink.own_topics.claims import claim
from gateway.sink.own_topics.owners import Owner, read_owners
from gateway.sink.own_topics.requests import send
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.registry.registry import Registry
from gateway.sink.topics.topics import TopicSpec, ensure_topics
from spark_consumer.kafka.batch_profile import begins_copy
from tests.support.backends.registry_answers import answering_registry, schema_answer
from tests.support.spark.kafka_topics import produce_bomb
from tests.support.spark.records import Col, StaticSchemas, TableTopic, value_schema

LONG = 400_000
"""Bytes of a number that takes most of a minute to be made."""
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
MARKER: dict[str, Any] = {
    "type": "record",
    "name": "Marker",
    "namespace": "pgsluice",
    "fields": [
        {
            "name": "writer",
            "type": {
                "type": "record",
                "name": "Writer",
                "fields": [
                    {"name": "system_identifier", "type": DECIMAL},
                    *({"name": n, "type": "string"} for n in ("database", "slot", "gateway")),
                ],
            },
        }
    ],
}


def number(size: int) -> bytes:
    """A decimal of so many bytes, in Avro."""
    return encode_long(size) + b"\x7f" + b"\xa5" * (size - 1)


@pytest.mark.kafka
def test_a_marker_with_a_long_number_and_one_that_cannot_be_decompressed(
    kafka: str, registry: str
) -> None:
    properties = {"bootstrap.servers": kafka}
    name = f"long{uuid.uuid4().hex[:8]}"
    topic = f"{name}.transaction"
    writer = Writer("1", "shop", "slot", "gw")
    ensure_topics(properties, [TopicSpec(topic)])
    with Registry({"url": registry}) as schemas:
        claim(properties, schemas, writer, [name])
        forged = struct.pack(">bI", 0, schemas.register(f"{topic}-forged", MARKER))
        forged += number(LONG) + b"\0\0\0"
        send(properties, [(topic, 0, None, forged, [])], "forging")

        owners = read_owners(properties, schemas, [name])
        with pytest.raises(ProtocolError, match=f"a value of {LONG} bytes"):
            RegisteredSchemas(schemas).decode(forged)

        produce_bomb(kafka, topic, 120 << 20, codec="zstd")
        with pytest.raises(FatalError, match="cannot be read") as refused:
            read_owners(properties, schemas, [name])

    assert owners == {name: Owner(writer)}
    assert topic in refused.value.message
    assert "kafka-delete-records" in (refused.value.hint or "")


def test_a_long_number_does_not_hold_up_the_driver() -> None:
    table = TableTopic(
        StaticSchemas(), "s.public.t", [Col("a", "int", "integer")], ["a"], table="t"
    )
    table.truncate(0x90, 0, snapshot="first")
    value = table.records[-1].value
    assert value is not None
    schema = json.loads(json.dumps(value_schema("public", "t", [Col("a", "int", "integer")])))
    schema["fields"].append({"name": "more", "type": DECIMAL})
    began = time.process_time()

    assert begins_copy(value[5:] + number(LONG), schema)

    assert time.process_time() - began < 5


def test_a_schema_that_is_none_and_many_long_ones_are_refused_by_name() -> None:
    record: dict[str, Any] = {"type": "record", "name": "R", "fields": []}
    kind = {"type": "fixed", "name": "F", "size": "many"}
    odd = schema_answer({**record, "fields": [{"name": "f", "type": kind}]})
    long = schema_answer({**record, "doc": "x" * 4_000_000})
    with (
        answering_registry(None, {1: odd, **dict.fromkeys(range(2, 12), long)}) as hostile,
        Registry({"url": hostile.url}) as registry,
    ):
        schemas = RegisteredSchemas(registry)
        with pytest.raises(ProtocolError, match="TypeError"):
            schemas.decode(struct.pack(">bI", 0, 1) + b"\0")

        taken = [number for number in range(2, 12) if decodes(schemas, number)]

    assert taken == [2, 3, 4, 5]


def decodes(schemas: RegisteredSchemas, number: int) -> bool:
    """Whether an empty record of a schema is decoded; False where the schemas are too long."""
    try:
        return schemas.decode(struct.pack(">bI", 0, number)) == {}
    except ProtocolError as error:
        assert "the topic's schemas are too long" in str(error)
        return False
