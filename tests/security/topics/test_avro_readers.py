"""Who may write to a topic or to the registry attacks those who decode its records."""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_consumer.errors import ContractError
from spark_consumer.kafka.position import Position
from spark_consumer.kafka.registry import Registry
from spark_consumer.settings import ConsumerSettings
from spark_consumer.verify.window import Window, read_window
from tests.security.topics.test_job_records import varint
from tests.support.gateway.scene import Ended, Scene
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, Record, TableTopic, value_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.kafka]

TIMESTAMPTZ = {"type": "long", "logicalType": "timestamp-micros"}
COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 1000, "scale": 0}
LARGE = 900_000
"""Bytes of a decimal that would take minutes to make."""


class Attacked:
    """A subscription whose topics have records that are none."""

    def __init__(self, broker: str, registry: str, folder: Path) -> None:
        self.broker, self.registry = broker, registry
        self.ids = RegisteredSchemas(registry)
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self.topics = Topics(broker, self.ids, self.name)
        self._scene = Scene(folder, "postgresql://127.0.0.1:1/none", broker, registry, "s", "")

    def add(self, name: str, columns: list[Col]) -> TableTopic:
        table = TableTopic(self.ids, f"{self.name}.public.{name}", columns, ["a"], table=name)
        self.topics.create(table.topic)
        return table

    def framed(self, schema: dict[str, Any], body: bytes) -> bytes:
        return struct.pack(">bI", 0, self.ids.register(schema)) + body

    def tail(self) -> Ended:
        return self._scene.cli("tail", self.name, "--from-beginning", "--no-follow")

    def close(self) -> None:
        self._scene.close()


def record(**fields: Any) -> dict[str, Any]:
    """A schema of a record with these fields."""
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "namespace": "x", "fields": named}


def hostile(attacked: Attacked) -> dict[str, bytes]:
    """Values, by what `tail` says of them."""
    row = value_schema("public", "t", COLUMNS)
    nested: Any = "int"
    for _ in range(200):
        nested = {"type": "array", "items": nested}
    number = varint(LARGE) + b"\x7f" * LARGE
    # before: null; after: a row; a: 7; b: ...
    begun = b"\x00\x02\x02\x0e"
    return {
        "not in Confluent's wire format": b"nothing of ours",
        "no schema 999999": struct.pack(">bI", 0, 999_999) + b"\x00" * 20,
        f"{1 << 40} items": attacked.framed(
            record(n={"type": "array", "items": "null"}), varint(1 << 40)
        ),
        f"{1 << 40} bytes": attacked.framed(row, begun + b"\x02" + varint(1 << 40) + b"x"),
        "branch 99 of a union": attacked.framed(row, begun + varint(99)),
        f"a value of {LARGE} bytes": attacked.framed(record(n=DECIMAL), number),
        "nested too deeply": attacked.framed(record(n=nested), b"\x00"),
        "ends within a number": attacked.framed(row, b""),
    }


def test_tail_names_what_is_no_record_and_shows_all_others(
    kafka: str, registry: str, tmp_path: Path
) -> None:
    attacked = Attacked(kafka, registry, tmp_path)
    table = attacked.add("t", [*COLUMNS, Col("c", TIMESTAMPTZ, "timestamp with time zone")])
    table.change("c", 0x90, 0, after={"a": 1, "b": "before", "c": 2**63 - 1})
    good = table.records[-1]
    values = hostile(attacked)
    table.records += [replace(good, value=value) for value in values.values()]
    # Records of their schemas, and no changes: nothing is to be shown of them.
    odd = dict.fromkeys(("op", "before", "after", "source", "unchanged"), "string")
    table.records.append(
        replace(good, value=attacked.framed(record(**odd), b"\x02c" + b"\x02x" * 4))
    )
    table.records.append(replace(good, value=attacked.framed(record(n="int"), b"\x02")))
    table.records.append(replace(good, headers=[("lsn", b"\xff\xfe")]))
    table.change("c", 0x91, 0, after={"a": 2, "b": "behind", "c": -(2**63)})
    table.change("c", 0x92, 0, after={"a": 3, "b": None, "c": 253_402_300_800_000_000})
    attacked.topics.raw(table.records)

    ended = attacked.tail()

    assert ended.code == 1, ended.err
    shown = [line.partition("INSERT ")[2] for line in ended.out.splitlines()]
    assert shown == [
        "a=1 b=before c=infinity",
        "a=1 b=before c=infinity",
        "a=2 b=behind c=-infinity",
        "a=3 b=NULL c='10000-01-01 00:00:00+00'",
    ]
    refused = [line for line in ended.err.splitlines() if "record cannot be read" in line]
    assert len(refused) == len(values), ended.err
    for offset, (why, line) in enumerate(zip(values, refused, strict=True), start=1):
        assert why in line and f"topic={table.topic}" in line and f"offset={offset}" in line
    attacked.close()


@pytest.mark.spark
def test_verify_names_the_topic_of_a_record_that_is_none(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    attacked = Attacked(kafka, registry, tmp_path)
    table = attacked.add("t", COLUMNS)
    table.change("c", 0x90, 0, after={"a": 1, "b": "x"})
    good = table.records[-1]
    row = value_schema("public", "t", COLUMNS)
    body = b"\x00\x02\x02\x0e\x02" + varint(1 << 40) + b"x"
    values = [attacked.framed(row, body), struct.pack(">bI", 0, 999_999) + b"\x00" * 20]
    assert good.key is not None
    table.records += [Record(good.topic, good.key, value, good.headers) for value in values]
    table.records.append(Record(good.topic, good.key[:5] + b"\xff", good.value, good.headers))
    attacked.topics.raw(table.records)
    settings = ConsumerSettings(
        kafka={"bootstrap.servers": kafka},
        registry_url=registry,
        warehouse=str(tmp_path),
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=(attacked.name,),
    )
    schemas = Registry(registry, {})
    columns = spark.createDataFrame([], "a int, b string").schema

    def window(first: int, end: int) -> Window:
        begin = Position("j", 1, 0, None, table.topic, "id", {0: first})
        until = replace(begin, next={0: end})
        return read_window(spark, settings, schemas, begin, until, columns, ["a"])

    assert [change.row for change in window(0, 1).changes()] == [("=1", "=x")]
    for offset, read in ((1, Window.changes), (3, Window.changes), (3, Window.keys)):
        with pytest.raises(ContractError) as caught:
            read(window(offset, offset + 1))
        assert "a record is not what its Avro schema says" in caught.value.message
        assert table.topic in caught.value.message
    with pytest.raises(ContractError, match="no schema with id 999999"):
        window(2, 3)
    schemas.close()
    attacked.close()
