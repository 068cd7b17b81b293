"""A large cut is read in pieces; one that is too large for Spark is taken in smaller ones."""

from __future__ import annotations

import logging
import secrets
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_consumer.apply.driver import writer as small_writer
from spark_consumer.cli import main
from spark_consumer.formats.delta import merge
from spark_consumer.job.job import run
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark import tuning
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]
ROWS = 20
TEXT = 4000
LIMIT = "spark.driver.maxResultSize"


@contextmanager
def little_room(spark: SparkSession) -> Iterator[None]:
    """Let Spark refuse to bring the keys of more than one transaction to the driver."""
    # The session's own way to set it comes too late, the scheduler reads it for each stage.
    context: Any = spark.sparkContext._jsc
    conf = context.sc().conf()
    before = conf.get(LIMIT, "1g")
    conf.set(LIMIT, str(ROWS * TEXT * 3 // 2))
    try:
        yield
    finally:
        conf.set(LIMIT, before)


def test_a_cut_that_fails_for_its_size_is_taken_in_halves(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Keys are looked for in the table by a join with them, for which each task gets all of them.
    monkeypatch.setattr(small_writer, "LARGEST_BYTES", -1)
    monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    ids = RegisteredSchemas(registry)
    name = f"s{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka, ids, name)
    table = TableTopic(ids, f"{name}.public.t", COLUMNS, ["b"], table="t")
    for topic in (table.topic, topics.marker_topic):
        topics.create(topic)
    keys = [secrets.token_hex(TEXT // 2) for _ in range(2 * ROWS)]
    table.truncate(0x90, 0, snapshot="first")
    for key in keys:
        table.change("r", 0x90, 0, after={"a": 0, "b": key})
    topics.commit([table], [{"kind": "PROGRESS", "end_lsn": 0x100}])
    settings = ConsumerSettings(
        kafka={"bootstrap.servers": kafka},
        registry_url=registry,
        warehouse=str(tmp_path),
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=(name,),
        available_now=True,
    )
    assert run(settings, spark, stopping=threading.Event()) == 0
    for lsn, some in ((0x200, keys[:ROWS]), (0x300, keys[ROWS:])):
        for number, key in enumerate(some):
            table.change("u", lsn - 8, number + 1, after={"a": lsn, "b": key})
        topics.commit([table], [{"kind": "PROGRESS", "end_lsn": lsn}])

    with caplog.at_level(logging.INFO, "spark_consumer"), little_room(spark):
        assert run(settings, spark, stopping=threading.Event()) == 0

    cuts = [text for text in caplog.messages if text.startswith("cut applied")]
    assert [text.split()[3] for text in cuts] == ["end_lsn=0/200", "end_lsn=0/300"]
    assert sum(text.startswith("retrying") for text in caplog.messages) == 1
    rows = spark.read.format("delta").load(str(tmp_path / name / "public" / "t"))
    assert rows.groupBy("a").count().orderBy("a").collect() == [(0x200, ROWS), (0x300, ROWS)]


def test_a_large_cut_is_read_in_as_many_pieces_as_the_configuration_says(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many, pieces = 700, 7
    monkeypatch.setattr(tuning, "_MOST_RECORDS", many - 1)
    ids = RegisteredSchemas(registry)
    name = f"s{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka, ids, name)
    table = TableTopic(ids, f"{name}.public.t", COLUMNS, None)
    for topic in (table.topic, topics.marker_topic):
        topics.create(topic)
    table.truncate(0x90, 0, snapshot="first")
    table.change("r", 0x90, 0, after={"a": 1, "b": "copied"})
    table.records += table.records[-1:] * (many - 1)
    topics.commit([table], [{"kind": "PROGRESS", "end_lsn": 0x100}])
    program = tmp_path / "consumer.toml"
    program.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka}"\n[registry]\nurl = "{registry}"\n'
        f'[consumer]\nsubscriptions = ["{name}"]\nmin_partitions = {pieces}\n'
    )

    assert main(["--config", str(program), "--available-now"]) == 0

    # Rows of a copy are written as they are read, by each task into a file.
    rows = spark.read.format("delta").load(str(tmp_path / "warehouse" / name / "public" / "t"))
    assert (rows.count(), len(rows.inputFiles())) == (many, pieces)
