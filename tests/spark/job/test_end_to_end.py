"""The job on a real broker and a real registry: from topics to tables, to an LSN, and again."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from schemas.settings.tables import TableFormatName
from spark_consumer.errors import TableError
from spark_consumer.job.job import run
from spark_consumer.reader import read, state_at
from spark_consumer.settings import ConsumerSettings
from tests.support.backends.collector import Collector, values
from tests.support.run.waiting import wait_until
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, TableTopic
from tests.support.spark.view_readers import DuckDbReader, Reader, SparkReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]


def rows(spark: SparkSession, path: Path, kind: str = "delta") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format(kind).load(str(path)).collect())


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_are_complete_at_each_endpos_and_stay_so_under_a_new_checkpoint(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    kind: TableFormatName,
) -> None:
    ids = RegisteredSchemas(registry)
    name = f"s{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka, ids, name)
    filled = TableTopic(ids, f"{name}.public.t1", COLUMNS, ["a"], table="t1")
    empty = TableTopic(ids, f"{name}.public.t2", COLUMNS, ["a"], table="t2")
    for topic in (filled.topic, empty.topic, topics.marker_topic):
        topics.create(topic)
    settings = ConsumerSettings(
        kafka={"bootstrap.servers": kafka, "linger.ms": "5"},
        registry_url=registry,
        warehouse=str(tmp_path / "warehouse"),
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=(name,),
        formats={name: kind},
        views=("spark", "duckdb"),
        endpos=0x100,
    )
    tables = tmp_path / "warehouse" / name / "public"
    ready = {"kind": "COPY", "end_lsn": 0x90}

    def copied(table: str) -> dict[str, Any]:
        state = {"schema": "public", "table": table, "state": "ready", "consistent_point": 0x90}
        return {**ready, "copy": state}

    filled.truncate(0x80, 0, snapshot="first")
    filled.change("r", 0x80, 0, after={"a": 66, "b": "of an aborted transaction"})
    topics.commit([filled], [], abort=True)
    filled.truncate(0x90, 0, snapshot="first")
    empty.truncate(0x90, 0, snapshot="first")
    filled.change("r", 0x90, 0, after={"a": 1, "b": "copied"})
    filled.change("r", 0x90, 0, after={"a": 2, "b": "copied"})
    topics.commit([filled, empty], [copied("t1"), copied("t2")])
    filled.change("d", 0x90, 1, before={"a": 1})
    topics.commit([filled], [{"kind": "END", "end_lsn": 0x98, "commit_lsn": 0x90, "xid": 7}])
    topics.commit([], [{"kind": "PROGRESS", "end_lsn": 0x100}])

    assert run(settings, spark, stopping=threading.Event()) == 0
    assert rows(spark, tables / "t1", kind) == [(2, "copied")]
    assert rows(spark, tables / "t2", kind) == []
    assert state_at(name, at=None, warehouse=settings.warehouse, spark=spark).complete_lsn == 0x100

    # Nothing is left to do: it ends at once, without reading.
    assert run(settings, spark, stopping=threading.Event()) == 0

    filled.rekey(0x110, 1, before={"a": 2}, after={"a": 3, "b": None}, unchanged=["b"])
    filled.rekey(0x110, 3, before={"a": 50}, after={"a": 51, "b": "absent"})
    topics.commit([filled], [{"kind": "END", "end_lsn": 0x118, "commit_lsn": 0x110, "xid": 8}])
    topics.commit([], [{"kind": "PROGRESS", "end_lsn": 0x200}])

    assert run(replace(settings, endpos=0x200), spark, stopping=threading.Event()) == 0
    assert rows(spark, tables / "t1", kind) == [(3, "copied")]

    topics.commit([], [{"kind": "PROGRESS", "end_lsn": 0x300}])
    versions = state_at(name, at=None, warehouse=settings.warehouse, spark=spark).tables
    again = replace(settings, checkpoint=str(tmp_path / "another"), endpos=0x300)

    assert run(again, spark, stopping=threading.Event()) == 0
    assert rows(spark, tables / "t1", kind) == [(3, "copied")]
    assert state_at(name, at=None, warehouse=settings.warehouse, spark=spark).tables == versions

    def then(at: str) -> list[tuple[Any, ...]]:
        kept = read(name, "public.t1", at=at, warehouse=settings.warehouse, spark=spark)
        return [tuple(row) for row in kept.collect()]

    # Readers without the job's code: the file is of the last cut that changed a table.
    readers: dict[str, Reader] = {"spark": SparkReader(spark), "duckdb": DuckDbReader()}
    for engine, reader in readers.items():
        view = f"`{name}.public.t1`" if engine == "spark" else f'"{name}".public.t1'
        file = tables.parent / f"views.{engine}.sql"
        assert reader.ask(file, f"SELECT * FROM {view}") == (0x118, [(3, "copied")])

    assert then("0/98") == then("0/10F") == [(2, "copied")]
    assert then("0/118") == then("0/300") == [(3, "copied")]
    with pytest.raises(TableError, match="no state at or before 2001-01-01"):
        then("2001-01-01")


def test_a_table_of_many_partitions_is_cut_at_source_transactions_and_collectors_are_told(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = RegisteredSchemas(registry)
    name = f"s{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka, ids, name)
    table = TableTopic(ids, f"{name}.public.wide", COLUMNS, ["a"], table="wide", partitions=3)
    topics.create(table.topic, partitions=3)
    topics.create(topics.marker_topic)
    settings = ConsumerSettings(
        kafka={"bootstrap.servers": kafka},
        registry_url=registry,
        warehouse=str(tmp_path / "warehouse"),
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=(name,),
        max_batch_records=20,
        endpos=0x300,
        opentelemetry=True,
        openlineage=True,
    )
    table.truncate(0x90, 0, snapshot="first")
    for key in range(30):
        table.change("r", 0x90, 0, after={"a": key, "b": "copied"})
    topics.commit([table], [{"kind": "PROGRESS", "end_lsn": 0x100}])
    # Each transaction moves all rows on, so that a cut inside one would show two rounds.
    for number in (1, 2):
        for key in range(30):
            old = key + 100 * (number - 1)
            table.rekey(
                0x100 + 0x80 * number,
                key * 2 + 1,
                before={"a": old},
                after={"a": key + 100 * number, "b": None},
                unchanged=["b"],
            )
        topics.commit([table], [{"kind": "PROGRESS", "end_lsn": 0x100 + 0x100 * number}])

    with Collector() as collector:
        for variable, value in collector.environment().items():
            monkeypatch.setenv(variable, value)
        assert run(settings, spark, stopping=threading.Event()) == 0
        started, *_, ended = wait_until(collector.ended_run, 60, "the end of the run")

    path = tmp_path / "warehouse" / name / "public" / "wide"
    assert (started["eventType"], ended["eventType"]) == ("START", "COMPLETE")
    assert ended["run"]["runId"] == started["run"]["runId"]
    assert ended["job"]["name"] == f"pgsluice.consumer.{name}"
    (source,), (target,) = ended["inputs"], ended["outputs"]
    assert (source["namespace"], source["name"]) == (f"kafka://{kafka}", table.topic)
    assert (target["namespace"], target["name"]) == ("file", str(path))
    metrics = collector.metrics()
    (applied,) = metrics["pgsluice_consumer_records"].sum.data_points
    assert values(applied.attributes) == {"subscription": name}
    assert applied.as_double > 0
    (reached,) = metrics["pgsluice_consumer_end_lsn"].gauge.data_points
    assert reached.as_double in (0x100, 0x200, 0x300)
    # The end waits a second for the spans of the last cut.
    first, *_ = (span for span in collector.spans() if span.name == "cut")
    assert values(first.attributes)["pgsluice.end_lsn"] == "0/100"
    steps = [span for span in collector.spans() if span.parent_span_id == first.span_id]
    assert {"plan", "apply", "manifest"} <= {step.name for step in steps}
    assert rows(spark, path) == [(key + 200, "copied") for key in range(30)]
    for version in range(3):
        table_then = spark.read.format("delta").option("versionAsOf", version).load(str(path))
        keys = sorted(row.a for row in table_then.collect())
        assert keys == [key + 100 * version for key in range(30)]
