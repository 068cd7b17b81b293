"""Stops and crashes in the middle of a micro-batch, between the commits of its tables."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.jars import ivy as jars
from schemas.settings.tables import TableFormatName
from spark_consumer.job.job import run
from spark_consumer.reader import state_at
from spark_consumer.settings import ConsumerSettings
from tests.support.backends.servers import BRIEF_JAVA
from tests.support.run.seeds import in_turn
from tests.support.run.waiting import wait_until
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]
ENDPOS = 0x200
PROCESS = """
import sys
from spark_consumer.settings import ConsumerSettings
from spark_consumer.job.job import run
from spark_consumer.spark.session import build_session

broker, registry, folder, name, topic, kind, jars = sys.argv[1:]
settings = ConsumerSettings(
    kafka={"bootstrap.servers": broker},
    registry_url=registry,
    warehouse=folder + "/warehouse",
    checkpoint=folder + "/checkpoint",
    subscriptions=(name,),
    topics=(topic,),
    format=kind,
    trigger_interval_s=0.5,
    parallel_tables=1,
)
sys.exit(run(settings, build_session(settings, jars.split(","))))
"""


class Scene:
    """Three tables, the first of them in a topic that is named by hand."""

    def __init__(
        self, broker: str, registry: str, folder: Path, kind: TableFormatName = "delta"
    ) -> None:
        ids = RegisteredSchemas(registry)
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self.folder = folder
        self.kind = kind
        self.topics = Topics(broker, ids, self.name)
        self.named = f"{uuid.uuid4().hex[:8]}-named"
        places = [self.named, f"{self.name}.public.t2", f"{self.name}.public.t3"]
        self.tables = [
            TableTopic(ids, topic, COLUMNS, ["a"], table=f"t{number}")
            for number, topic in enumerate(places, 1)
        ]
        for topic in (*places, self.topics.marker_topic):
            self.topics.create(topic)
        self.settings = ConsumerSettings(
            kafka={"bootstrap.servers": broker},
            registry_url=registry,
            warehouse=str(folder / "warehouse"),
            checkpoint=str(folder / "checkpoint"),
            subscriptions=(self.name,),
            topics=(self.named,),
            format=kind,
            trigger_interval_s=0.5,
        )

    def produce(self) -> None:
        """A copy, and changes whose repetition would show: 1 goes, 2 becomes 3, 4 comes."""
        for table in self.tables:
            table.truncate(0x90, 0, snapshot="first")
            for key in (1, 2):
                table.change("r", 0x90, 0, after={"a": key, "b": "copied"})
            table.change("d", 0x98, 1, before={"a": 1})
            table.rekey(0x98, 3, before={"a": 2}, after={"a": 3, "b": None}, unchanged=["b"])
            table.change("c", 0x98, 5, after={"a": 4, "b": "new"})
        end = {"kind": "END", "end_lsn": ENDPOS, "commit_lsn": 0x98, "xid": 7}
        self.topics.commit(self.tables, [end])

    def is_written(self, table: int) -> bool:
        """The table has a commit."""
        folder = self.folder / "warehouse" / self.name / "public" / f"t{table}"
        return (folder / FIRST[self.kind]).exists()

    def finish(self, spark: SparkSession) -> list[list[tuple[Any, ...]]]:
        """Run to the end in this process; the tables' rows."""
        done = replace(self.settings, endpos=ENDPOS)
        assert run(done, spark, stopping=threading.Event()) == 0
        manifest = state_at(self.name, at=None, warehouse=done.warehouse, spark=spark)
        assert manifest.complete_lsn == ENDPOS
        assert set(manifest.tables) == {"public.t1", "public.t2", "public.t3"}
        public = self.folder / "warehouse" / self.name / "public"
        found = []
        for number in (1, 2, 3):
            rows = spark.read.format(self.kind).load(str(public / f"t{number}")).collect()
            found.append(sorted(tuple(row) for row in rows))
        return found


FIRST = {"delta": f"_delta_log/{0:020}.json", "iceberg": "metadata/v1.metadata.json"}
"""The file of a table's first commit, by format."""
EXPECTED = [[(3, "copied"), (4, "new")]] * 3


@pytest.fixture(params=in_turn(__name__, ["delta", "iceberg"]))
def scene(kafka: str, registry: str, tmp_path: Path, request: pytest.FixtureRequest) -> Scene:
    made = Scene(kafka, registry, tmp_path, request.param)
    made.produce()
    return made


@pytest.fixture
def process(scene: Scene) -> Iterator[subprocess.Popen[bytes]]:
    arguments = [
        scene.settings.kafka["bootstrap.servers"],
        scene.settings.registry_url,
        str(scene.folder),
        scene.name,
        scene.named,
        scene.kind,
        ",".join(str(jar) for name in ("spark", "iceberg") for jar in jars.jars(name)),
    ]
    with (scene.folder / "log").open("wb") as log:
        running = subprocess.Popen(
            [sys.executable, "-c", PROCESS, *arguments],
            env={**os.environ, "JAVA_TOOL_OPTIONS": BRIEF_JAVA},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield running
    finally:
        # The whole session: a JVM that outlives its Python would write on.
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


@pytest.mark.slow
def test_tables_end_right_when_the_process_was_killed_between_two_of_them(
    spark: SparkSession, scene: Scene, process: subprocess.Popen[bytes]
) -> None:
    # One table after the other: writing two more takes longer than seeing the first.
    wait_until(
        lambda: process.poll() is not None or any(map(scene.is_written, (1, 2, 3))),
        180,
        "a table's commit",
        poll_s=0.01,
    )
    assert process.poll() is None, (scene.folder / "log").read_text()[-4000:]
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    assert not all(map(scene.is_written, (1, 2, 3)))
    assert scene.finish(spark) == EXPECTED
