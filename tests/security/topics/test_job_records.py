"""Who may write to a topic or to the registry attacks the Spark job with what it reads there."""

from __future__ import annotations

import struct
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_consumer.errors import FatalConsumerError
from spark_consumer.job import planner
from spark_consumer.job.job import run
from spark_consumer.reader import state_at
from spark_consumer.settings import ConsumerSettings
from tests.support.backends.registry_answers import AnsweringRegistry, answering_registry
from tests.support.spark.kafka_topics import (
    RegisteredSchemas,
    Topics,
    more_than_spark_has,
    produce_bomb,
)
from tests.support.spark.records import Col, Record, TableTopic, value_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]
OURS = {"system_identifier": "7001", "database": "shop", "slot": "pgsluice", "gateway": "g"}
MALLORY = OURS | {"system_identifier": "6666"}
FAR_AHEAD = 1 << 60


def varint(number: int) -> bytes:
    """Avro's long."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


class Attacked:
    """A subscription with a healthy table, and one for each record that is no record."""

    def __init__(self, broker: str, registry: str, folder: Path) -> None:
        self.ids = RegisteredSchemas(registry)
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self.topics = Topics(broker, self.ids, self.name)
        self.topics.writer = OURS
        self.topics.create(self.topics.marker_topic)
        self.tables: dict[str, TableTopic] = {}
        self.folder = folder
        self.settings = ConsumerSettings(
            kafka={"bootstrap.servers": broker},
            registry_url=registry,
            warehouse=str(folder / "warehouse"),
            checkpoint=str(folder / "checkpoint"),
            subscriptions=(self.name,),
            available_now=True,
        )

    def add(self, name: str, columns: list[Col] = COLUMNS) -> TableTopic:
        table = TableTopic(self.ids, f"{self.name}.public.{name}", columns, ["a"], table=name)
        self.topics.create(table.topic)
        self.tables[name] = table
        table.truncate(0x90, 0, snapshot="first")
        table.change("r", 0x90, 0, after={"a": 1, "b": "copied"})
        return table

    def publish(self, end_lsn: int, *tables: str) -> None:
        marker = {"kind": "PROGRESS", "end_lsn": end_lsn}
        self.topics.commit([self.tables[name] for name in tables], [marker])

    def rows(self, spark: SparkSession, name: str) -> list[tuple[Any, ...]]:
        path = self.folder / "warehouse" / self.name / "public" / name
        rows = spark.read.format("delta").load(str(path)).collect()
        return sorted(tuple(row) for row in rows)


def test_a_marker_of_others_neither_moves_a_table_nor_claims_anything(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    attacked, victim = (Attacked(kafka, registry, tmp_path) for _ in range(2))
    victim.add("secret")
    victim.publish(0x100, "secret")
    attacked.add("t")
    attacked.publish(0x100, "t")
    ranges = {"partition": 0, "first_offset": 0, "next_offset": 2, "previous_offset": 0}
    secret = {"topic": f"{victim.name}.public.secret", "records": 2, **ranges}
    own = {"topic": f"{attacked.name}.public.t", "records": 2, **ranges}
    forged = [
        {"end_lsn": 0x180, "writer": OURS, "offsets": [secret]},
        {"end_lsn": FAR_AHEAD, "writer": MALLORY, "offsets": []},
        {"end_lsn": 0x180, "writer": MALLORY, "offsets": [own]},
    ]
    attacked.topics.forge({"kind": "PROGRESS", **one} for one in forged)
    attacked.tables["t"].change("c", 0x198, 1, after={"a": 2, "b": "later"})
    attacked.publish(0x200, "t")

    assert run(attacked.settings, spark, stopping=threading.Event()) == 0

    manifest = state_at(attacked.name, at=None, warehouse=attacked.settings.warehouse, spark=spark)
    assert manifest.end_lsn == 0x200
    assert set(manifest.tables) == {"public.t"}
    assert not (tmp_path / "warehouse" / attacked.name / "public" / "secret").exists()
    assert attacked.rows(spark, "t") == [(1, "copied"), (2, "later")]
    refused = [text for text in caplog.messages if text.startswith("marker skipped")]
    assert len(refused) == len(forged)
    assert f"it names topic {victim.name}.public.secret" in refused[0]
    assert all("on system 6666" in text for text in refused[1:])


def test_a_marker_with_a_partition_that_a_new_topic_lacks_stops_nothing(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    attacked = Attacked(kafka, registry, tmp_path)
    for name in ("healthy", "attacked"):
        attacked.add(name)
    topic = attacked.tables["attacked"].topic
    ranges = {"first_offset": 0, "next_offset": 2, "previous_offset": 0, "records": 2}
    forged = {"end_lsn": 0x80, "offsets": [{"topic": topic, "partition": 9, **ranges}]}
    attacked.topics.forge([{"kind": "PROGRESS", "writer": OURS, **forged}])
    attacked.publish(0x100, "healthy", "attacked")

    assert run(attacked.settings, spark, stopping=threading.Event()) == 0

    for name in ("healthy", "attacked"):
        assert attacked.rows(spark, name) == [(1, "copied")]


def test_new_tables_are_known_without_a_query(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*_: object) -> tuple[str, str]:
        raise AssertionError("Spark is asked for the name of a table")

    monkeypatch.setattr(planner, "source_table", asked)
    attacked = Attacked(kafka, registry, tmp_path)
    for name in ("one", "Two"):
        attacked.add(name)
    attacked.publish(0x100, "one", "Two")

    assert run(attacked.settings, spark, stopping=threading.Event()) == 0

    assert attacked.rows(spark, "one") == [(1, "copied")]


def test_a_record_that_claims_more_than_it_is_holds_its_table_and_no_other(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    with answering_registry(registry, {}) as hostile:
        _attack_with_records(spark, Attacked(kafka, registry, tmp_path), hostile)


def test_a_record_of_a_table_that_takes_more_memory_than_there_is_holds_this_table(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    attacked = Attacked(kafka, registry, tmp_path)
    for name in ("healthy", "bombed"):
        attacked.add(name)
    attacked.publish(0x100, "healthy", "bombed")
    assert run(attacked.settings, spark, stopping=threading.Event()) == 0
    bombed = attacked.tables["bombed"]
    bombed.change("c", 0x190, 1, after={"a": 2, "b": "before it"})
    bombed.change("c", 0x198, 1, after={"a": 3, "b": "after it"})
    last = bombed.records.pop()
    attacked.tables["healthy"].change("c", 0x198, 1, after={"a": 2, "b": "later"})

    def between() -> Iterator[Record]:
        """The bomb, between two records of one transaction of the gateway."""
        attacked.topics.deliver()
        produce_bomb(kafka, bombed.topic, more_than_spark_has(spark))
        yield last

    attacked.topics.commit(
        attacked.tables.values(), [{"kind": "PROGRESS", "end_lsn": 0x200}], more=between()
    )

    with pytest.raises(FatalConsumerError, match="a record takes more memory than Spark has"):
        run(attacked.settings, spark, stopping=threading.Event())

    manifest = state_at(attacked.name, at=None, warehouse=attacked.settings.warehouse, spark=spark)
    assert manifest.end_lsn == 0x200
    assert set(manifest.held_by_job) == {"public.bombed"}
    assert attacked.rows(spark, "healthy") == [(1, "copied"), (2, "later")]
    assert attacked.rows(spark, "bombed") == [(1, "copied")]


def _attack_with_records(
    spark: SparkSession, attacked: Attacked, hostile: AnsweringRegistry
) -> None:
    attacked.settings = replace(attacked.settings, registry_url=hostile.url)
    attacked.add("healthy")
    long = varint(1 << 40)
    # before: null; after: a row; a: 7; b: ...
    row = b"\x00\x02\x02\x0e"
    bodies = {
        "string_2_40": row + b"\x02" + long + b"x",
        "string_2_30": row + b"\x02" + varint(1 << 30) + b"x",
        "string_negative": row + b"\x02" + varint(-5) + b"x",
        "union_99": row + varint(99) + b"x",
        "nothing": b"\x00",
        "endless": b"\xff" * 200,
    }
    schemas = {name: value_schema("public", name, COLUMNS) for name in bodies}
    records = []
    for name, body in bodies.items():
        attacked.add(name)
        records.append((name, struct.pack(">bI", 0, attacked.ids.register(schemas[name])) + body))
    for name, count in (("array_2_40", 1 << 40), ("array_2_28", 1 << 28)):
        table = attacked.add(name)
        table.change("u", 0x98, 1, after={"a": 1, "b": None}, unchanged=["QQQQ"])
        value = table.records.pop().value
        assert value is not None and value.count(b"\x02\x08QQQQ") == 1
        records.append((name, value.replace(b"\x02\x08QQQQ", varint(count) + b"\x08QQQQ")))
    attacked.add("unknown_schema")
    records.append(("unknown_schema", struct.pack(">bI", 0, 999_999) + b"\x00" * 20))
    attacked.add("nested_schema")
    bomb = value_schema("public", "nested_schema", COLUMNS)
    kind: Any = "int"
    for _ in range(40):
        kind = {"type": "array", "items": kind}
    bomb["fields"].append({"name": "bomb", "type": kind, "default": []})
    records.append(
        ("nested_schema", struct.pack(">bI", 0, attacked.ids.register(bomb)) + b"\x00" * 20)
    )
    broken = {
        "answers_html": (200, b"<html>moved</html>"),
        "answers_number": (200, b'{"schema": 5}'),
        "answers_422": (422, b'{"error_code": 42201, "message": "no"}'),
    }
    for name, answer in broken.items():
        attacked.add(name)
        number = attacked.ids.register(
            value_schema("public", name, [*COLUMNS, Col("odd", "int", "integer")])
        )
        hostile.answers[number] = answer
        records.append((name, struct.pack(">bI", 0, number) + b"\x00" * 20))
    for name, value in records:
        table = attacked.tables[name]
        table.change("u", 0x98, 1, after={"a": 1, "b": "x"})
        good = table.records.pop()
        table.records.append(Record(good.topic, good.key, value, good.headers))
    attacked.add("_delta_log")
    attacked.add("cases", [Col("a", "int", "integer"), Col("b", "string", "text")])
    both = [*COLUMNS, Col("B_", "string", "text", "B", 3)]
    attacked.tables["cases"].columns = both
    attacked.tables["cases"].change("c", 0x98, 1, after={"a": 2, "b": "x", "B_": "y"})
    attacked.publish(0x100, *attacked.tables)

    with pytest.raises(FatalConsumerError):
        run(attacked.settings, spark, stopping=threading.Event())

    attacked.tables["healthy"].change("c", 0x198, 1, after={"a": 2, "b": "later"})
    attacked.publish(0x200, "healthy")
    with pytest.raises(FatalConsumerError):
        run(attacked.settings, spark, stopping=threading.Event())
    manifest = state_at(attacked.name, at=None, warehouse=attacked.settings.warehouse, spark=spark)
    assert manifest.end_lsn == 0x200
    assert set(manifest.tables) == {"public.healthy"}
    assert attacked.rows(spark, "healthy") == [(1, "copied"), (2, "later")]
    reasons = {
        name.removeprefix("public."): why.reason for name, why in manifest.held_by_job.items()
    }
    assert set(reasons) == set(attacked.tables) - {"healthy"}
    undecodable = [name for name in reasons if name.split("_")[0] in ("string", "union", "array")]
    for name in (*undecodable, "nothing", "endless"):
        assert "a record is not what its Avro schema says" in reasons[name], (name, reasons[name])
    assert "Delta reserves folders called _delta_log" in reasons["_delta_log"]
    for name in broken:
        assert "the schema registry gives no schema for id" in reasons[name]
    assert not (attacked.folder / "warehouse" / attacked.name / "public" / "_delta_log").exists()
    assert "no schema with id 999999" in reasons["unknown_schema"]
    assert "nested more than 10 deep" in reasons["nested_schema"]
    assert "the columns 'b' and 'B' differ by case alone" in reasons["cases"]
