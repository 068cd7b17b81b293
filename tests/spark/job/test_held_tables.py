"""What a table cannot have is seen before anything of it is applied; the other tables go on."""

from __future__ import annotations

import shutil
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from delta.tables import DeltaTable
from deltalake.exceptions import DeltaError
from polars.exceptions import PolarsError
from pyspark.sql.types import IntegerType

from spark_consumer.errors import FatalConsumerError
from spark_consumer.job.job import run
from spark_consumer.reader import state_at
from spark_consumer.settings import ConsumerSettings
from tests.support.backends.broker import delete_topics
from tests.support.run.waiting import wait_until
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]
HEALTHY = "healthy"
REPAIRED = ("deleted", "restored", "foreign")
TRIMMED, REMADE, RETYPED = "trimmed", "remade", "retyped"
EVERY = (HEALTHY, *REPAIRED, TRIMMED, REMADE, RETYPED)


class Scene:
    """A subscription of tables, one for each thing that happens to one."""

    def __init__(self, broker: str, registry: str, folder: Path, *names: str) -> None:
        ids = RegisteredSchemas(registry)
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self.topics = Topics(broker, ids, self.name)
        self.topics.create(self.topics.marker_topic)
        self.admin = AdminClient({"bootstrap.servers": broker})
        self.tables: dict[str, TableTopic] = {}
        for name in names:
            topic = f"{self.name}.public.{name}"
            self.tables[name] = TableTopic(ids, topic, list(COLUMNS), ["a"], table=name)
            self.topics.create(topic)
        self.folder = folder / "warehouse" / self.name / "public"
        self.settings = ConsumerSettings(
            kafka={"bootstrap.servers": broker},
            registry_url=registry,
            warehouse=str(folder / "warehouse"),
            checkpoint=str(folder / "checkpoint"),
            subscriptions=(self.name,),
        )
        self.end_lsn = 0x100
        self.said: list[dict[str, Any]] = []

    def copy(self, *names: str) -> None:
        for name in names:
            self.tables[name].truncate(self.end_lsn, 0, snapshot="first")
            for key in (1, 2):
                self.tables[name].change("r", self.end_lsn, 0, after={"a": key, "b": "copied"})

    def add(self, key: int, *names: str, **changed: Any) -> None:
        for name in names:
            self.tables[name].change(
                "c", self.end_lsn, key, after={"a": key, "b": "added", **changed}
            )

    def say(self, table: str, state: str, reason: str | None = None) -> None:
        copy = {"schema": "public", "table": table, "state": state, "reason": reason}
        self.said.append({"kind": "COPY", "end_lsn": self.end_lsn, "copy": copy})
        move = {"schema": "public", "table": copy["table"], "state": "begun"}
        self.said.append({"kind": "MOVE", "end_lsn": self.end_lsn, "move": move})  # passed over

    def publish(self) -> None:
        self.end_lsn += 0x100
        marker = {"kind": "PROGRESS", "end_lsn": self.end_lsn}
        self.topics.commit(self.tables.values(), [*self.said, marker])
        self.said.clear()

    def run(self, spark: SparkSession) -> None:
        settings = replace(self.settings, endpos=self.end_lsn)
        assert run(settings, spark, stopping=threading.Event()) == 0

    def keys(self, name: str) -> list[int]:
        """The keys of a table's rows, read without Spark: some tests ask again and again."""
        return sorted(polars.read_delta(str(self.folder / name))["a"].to_list())

    def trim(self, name: str) -> None:
        end = TopicPartition(self.tables[name].topic, 0, -1)
        for answer in self.admin.delete_records([end]).values():
            answer.result()

    def remake(self, name: str) -> None:
        topic = self.tables[name].topic
        delete_topics(self.admin, [topic])
        self.topics.create(topic)


def test_tables_that_fail_are_repaired_or_held_and_the_others_go_on(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    scene = Scene(kafka, registry, tmp_path, *EVERY)
    scene.copy("restored")
    scene.publish()
    scene.run(spark)
    kept = tmp_path / "kept"
    shutil.copytree(scene.folder / "restored", kept)
    scene.copy(*(name for name in EVERY if name != "restored"))
    scene.add(3, *EVERY)
    scene.publish()
    scene.run(spark)

    shutil.rmtree(scene.folder / "deleted")
    shutil.rmtree(scene.folder / "restored")
    shutil.copytree(kept, scene.folder / "restored")
    DeltaTable.forPath(spark, str(scene.folder / "foreign")).delete("a = 1")
    scene.tables[RETYPED].columns = [COLUMNS[0], Col("b", "int", "integer")]
    scene.add(4, *(name for name in EVERY if name != RETYPED))
    scene.add(4, RETYPED, b=4)
    scene.publish()
    scene.trim(TRIMMED)
    scene.remake(REMADE)
    scene.add(5, HEALTHY, REMADE, TRIMMED)
    scene.publish()

    with pytest.raises(FatalConsumerError) as stopped:
        scene.run(spark)

    for name, reason in [
        (TRIMMED, r"records from offset \d+ on are gone"),
        (REMADE, r"topic \S+ was recreated"),
        (RETYPED, r"column 'b' is string in the table and int in the topic"),
    ]:
        assert stopped.match(rf"table public\.{name} is held by the job: [^;]*{reason}")
        assert scene.keys(name) == [1, 2, 3]
    assert scene.keys(HEALTHY) == [1, 2, 3, 4, 5]
    for name in REPAIRED:
        assert scene.keys(name) == [1, 2, 3, 4], name
    manifest = state_at(scene.name, at=None, warehouse=scene.settings.warehouse, spark=spark)
    assert set(manifest.held_by_job) == {"public.trimmed", "public.remade", "public.retyped"}
    assert manifest.complete_lsn is None

    scene.copy(TRIMMED, REMADE)
    scene.tables[RETYPED].truncate(scene.end_lsn, 0, snapshot="first")
    scene.tables[RETYPED].change("r", scene.end_lsn, 0, after={"a": 7, "b": 7})
    scene.publish()
    scene.run(spark)

    assert scene.keys(TRIMMED) == scene.keys(REMADE) == [1, 2]
    retyped = spark.read.format("delta").load(str(scene.folder / RETYPED))
    assert [tuple(row) for row in retyped.collect()] == [(7, 7)]


def test_tables_that_are_removed_or_restored_while_the_job_runs_are_read_again(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    scene = Scene(kafka, registry, tmp_path, HEALTHY, *REPAIRED)
    tables = (HEALTHY, *REPAIRED)
    scene.copy(*tables)
    scene.publish()
    stopping = threading.Event()
    settings = replace(scene.settings, trigger_interval_s=0.5)
    ended: list[int] = []
    job = threading.Thread(target=lambda: ended.append(run(settings, spark, stopping=stopping)))
    job.start()

    def have(wanted: dict[str, list[int]]) -> bool:
        try:
            return {name: scene.keys(name) for name in wanted} == wanted
        except (DeltaError, PolarsError, OSError):  # not there yet, or no longer
            return False

    try:
        wait_until(lambda: have({key: [1, 2] for key in tables}), 60, "the copies")
        scene.add(3, *tables)
        scene.publish()
        wait_until(lambda: have({key: [1, 2, 3] for key in tables}), 60, "the third row")

        shutil.rmtree(scene.folder / "deleted")
        log = scene.folder / "restored" / "_delta_log"
        for path in log.glob(f"*{1:020}*"):
            path.unlink()
        scene.tables["restored"].truncate(scene.end_lsn, 4)
        scene.add(5, *tables)
        scene.publish()

        whole = {key: [1, 2, 3, 5] for key in tables}
        wait_until(lambda: have({**whole, "restored": [5]}), 60, "what was lost")
    finally:
        stopping.set()
        job.join()
    assert ended == [0]
    versions = sorted(int(path.stem) for path in log.glob("*.json"))
    assert versions == list(range(len(versions)))


def test_a_copy_from_another_topic_takes_the_table_over_and_fences_the_first(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    scene = Scene(kafka, registry, tmp_path, HEALTHY)
    first = scene.tables[HEALTHY]
    scene.copy(HEALTHY)
    scene.publish()
    scene.run(spark)
    # Its first record, the copy's, has offset 0, and the column another type.
    retyped = [COLUMNS[0], Col("b", "int", "integer")]
    second = replace(first, topic=f"{scene.name}-renamed", records=[], columns=retyped)
    scene.topics.create(second.topic)
    scene.settings = replace(scene.settings, topics=(second.topic,))
    scene.tables["second"] = second
    scene.tables["second"].truncate(scene.end_lsn, 0, snapshot="first")
    second.change("r", scene.end_lsn, 0, after={"a": 7, "b": 70})
    scene.publish()
    scene.add(3, HEALTHY)
    scene.add(8, "second", b=80)
    scene.publish()
    scene.run(spark)

    assert scene.keys(HEALTHY) == [7, 8]
    assert spark.read.load(str(scene.folder / HEALTHY), format="delta").schema["b"].dataType == (
        IntegerType()
    )


def test_a_held_table_ends_the_wait_with_its_reason_and_one_that_is_gone_keeps_nothing_waiting(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    scene = Scene(kafka, registry, tmp_path, HEALTHY, TRIMMED)
    scene.copy(HEALTHY, TRIMMED)
    scene.publish()
    scene.say(HEALTHY, "ready")
    scene.say(TRIMMED, "held", "no identity")
    scene.publish()

    with pytest.raises(FatalConsumerError, match=r"table public\.trimmed is held .*: no identity"):
        scene.run(spark)
    scene.say(TRIMMED, "gone")
    scene.add(3, HEALTHY)
    scene.publish()
    scene.run(spark)

    assert scene.keys(HEALTHY) == [1, 2, 3]
    assert scene.keys(TRIMMED) == [1, 2]


def test_a_range_with_fewer_records_than_its_marker_says_changes_nothing(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    scene = Scene(kafka, registry, tmp_path, HEALTHY, TRIMMED)
    scene.copy(HEALTHY, TRIMMED)
    scene.publish()
    scene.run(spark)
    scene.add(3, HEALTHY, TRIMMED)
    scene.topics.miscount(scene.tables[TRIMMED].topic)
    scene.publish()

    with pytest.raises(FatalConsumerError, match=r"1 records, and the markers say 2"):
        scene.run(spark)

    assert scene.keys(TRIMMED) == [1, 2]
    assert scene.keys(HEALTHY) == [1, 2, 3]


def test_two_tables_that_a_file_system_takes_for_one_are_not_written_into_one_another(
    spark: SparkSession, kafka: str, registry: str, tmp_path: Path
) -> None:
    scene = Scene(kafka, registry, tmp_path, HEALTHY)
    upper = HEALTHY.upper()
    first = scene.tables[HEALTHY]
    topic = f"{scene.name}.public.{upper}"
    scene.tables[upper] = replace(first, topic=topic, table=upper, records=[])
    scene.topics.create(topic)
    scene.copy(HEALTHY)
    scene.publish()
    scene.run(spark)
    # As where case does not count: another way to the same folder.
    (scene.folder / upper).symlink_to(scene.folder / HEALTHY)
    scene.copy(upper)
    scene.add(3, HEALTHY, upper)
    scene.publish()

    with pytest.raises(
        FatalConsumerError, match=r"public\.HEALTHY.* is that of table public\.heal"
    ):
        scene.run(spark)
    assert scene.keys(HEALTHY) == [1, 2, 3]

    # Where it does, both are there, however they come.
    (scene.folder / upper).unlink()
    scene.copy(upper, HEALTHY)
    scene.publish()
    scene.run(spark)
    assert scene.keys(HEALTHY) == scene.keys(upper) == [1, 2]
