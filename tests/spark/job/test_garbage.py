"""Objects of the JVM that a cut has used: they do not wait until Python looks for cycles."""

from __future__ import annotations

import gc
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from py4j.java_gateway import JavaObject  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from spark_consumer.job import rebuild
from spark_consumer.job.job import run
from spark_consumer.settings import ConsumerSettings
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = [Col("a", "int", "integer")]
ROWS = 50


@pytest.fixture
def _no_look() -> Iterator[None]:
    """Let Python not look for cycles by itself."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def known_classes() -> Iterator[str]:
    """Yield the class of each object that the JVM keeps for Python."""
    for one in gc.get_objects():
        if isinstance(one, JavaObject):
            with suppress(Py4JError):  # one that the JVM has forgotten is not kept
                yield str(one.getClass().getName())


@pytest.mark.usefixtures("_no_look")
@pytest.mark.parametrize("most", [ROWS, 10 * ROWS], ids=["collected", "kept until later"])
def test_records_of_a_cut_are_forgotten_after_so_many(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    monkeypatch.setattr(rebuild, "_GARBAGE_RECORDS", most)
    ids = RegisteredSchemas(registry)
    name = f"s{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka, ids, name)
    table = TableTopic(ids, f"{name}.public.t", COLUMNS, ["a"], table="t")
    for topic in (table.topic, topics.marker_topic):
        topics.create(topic)
    table.truncate(0x90, 0, snapshot="first")
    for key in range(ROWS):
        table.change("r", 0x90, 0, after={"a": key})
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

    assert ("pgsluice.small.Records" in set(known_classes())) == (most > ROWS)
