"""A large cut is read in pieces; one that is too large for Spark is taken in smaller ones."""

from __future__ import annotations

import logging
import secrets
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_consumer.cli import main
from spark_consumer.job.job import run
from spark_consumer.settings import ConsumerSettings
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]
ROWS = 20
TEXT = 4000
LIMIT = "spark.driver.maxResultSize"


@pytest.fixture
def little_room(spark: SparkSession) -> Iterator[None]:
    """Spark refuses to bring to the driver what is more than one and a half transactions."""
    # The session's own way to set it comes too late, the scheduler reads it for each stage.
    context: Any = spark.sparkContext._jsc
    conf = context.sc().conf()
    before = conf.get(LIMIT, "1g")
    conf.set(LIMIT, str(ROWS * TEXT * 3 // 2))
    try:
        yield
    finally:
        conf.set(LIMIT, before)


@pytest.mark.usefixtures("little_room")
def test_a_cut_that_fails_for_its_size_is_taken_in_halves(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = RegisteredSchemas(registry)
    name = f"s{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka, ids, name)
    table = TableTopic(ids, f"{name}.public.t", COLUMNS, ["a"], table="t")
    for topic in (table.topic, topics.marker_topic):
        topics.create(topic)
    table.truncate(0x90, 0, snapshot="first")
    for lsn in (0x100, 0x200):
        for key in range(ROWS):
            text = secrets.token_hex(TEXT // 2)
            table.change("c", lsn - 8, key + 1, after={"a": lsn + key, "b": text})
        topics.commit([table], [{"kind": "PROGRESS", "end_lsn": lsn}])
    settings = ConsumerSettings(
        kafka={"bootstrap.servers": kafka},
        registry_url=registry,
        warehouse=str(tmp_path),
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=(name,),
        # So that Spark applies it: the driver reads few records itself, and has no such limit.
        delta_private="never",
        available_now=True,
    )

    with caplog.at_level(logging.INFO, "spark_consumer"):
        assert run(settings, spark, stopping=threading.Event()) == 0

    cuts = [text for text in caplog.messages if text.startswith("cut applied")]
    assert [text.split()[3] for text in cuts] == ["end_lsn=0/100", "end_lsn=0/200"]
    assert sum(text.startswith("retrying") for text in caplog.messages) == 1
    rows = spark.read.format("delta").load(str(tmp_path / name / "public" / "t"))
    assert rows.count() == 2 * ROWS


def test_a_large_cut_is_read_in_as_many_pieces_as_the_configuration_says(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    many, pieces = 30_000, 7
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
