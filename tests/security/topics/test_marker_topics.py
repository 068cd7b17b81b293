"""One subscription's markers are damaged, forged, of an unknown schema, or gone."""

from __future__ import annotations

import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient

from devkit.embedded.processes import free_port
from spark_consumer.errors import FatalConsumerError
from spark_consumer.job.job import run
from spark_consumer.kafka.topics import Topics as JobTopics
from spark_consumer.reader import state_at
from spark_consumer.settings import ConsumerSettings
from tests.support.backends.broker import delete_topics
from tests.support.run.waiting import PATIENCE, wait_until
from tests.support.spark.kafka_topics import (
    RegisteredSchemas,
    Topics,
    more_than_spark_has,
    produce_bomb,
)
from tests.support.spark.records import Col, Record, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]


class Victim:
    """A subscription of one table, whose first change is applied before anything is wrong."""

    def __init__(self, broker: str, ids: RegisteredSchemas, kind: str) -> None:
        self.ids = ids
        self.name = f"{kind}{uuid.uuid4().hex[:8]}"
        self.topics = Topics(broker, ids, self.name)
        self.table = TableTopic(ids, f"{self.name}.public.t", COLUMNS, ["a"])
        for topic in (self.table.topic, self.topics.marker_topic):
            self.topics.create(topic)
        self.copy()

    def copy(self) -> None:
        self.table.truncate(0x90, 0, snapshot="first")
        self.add(1)

    def add(self, key: int) -> None:
        """Commit a row, and the marker that names it; the marker's LSN is 0x100 * `key`."""
        self.table.change("c", 0x90 + key, 1, after={"a": key, "b": "x"})
        self.topics.commit([self.table], [{"kind": "PROGRESS", "end_lsn": 0x100 * key}])

    def put(self, value: bytes) -> None:
        """Commit a record that is no marker to the marker topic, and nothing that names it."""
        self.topics.raw([Record(self.topics.marker_topic, None, value, [])])


class Job:
    """All subscriptions in one job, in a thread; what it says of itself over HTTP."""

    def __init__(self, settings: ConsumerSettings, spark: SparkSession) -> None:
        self.port = free_port()
        self.stopping = threading.Event()
        self.outcome: list[object] = []
        self._settings = replace(settings, metrics_listen=f"127.0.0.1:{self.port}")
        self._spark = spark
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.outcome.append(run(self._settings, self._spark, stopping=self.stopping))
        except Exception as error:
            self.outcome.append(error)

    def read(self, path: str) -> str:
        with suppress(URLError, ConnectionError):
            try:
                with urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=30) as answer:
                    return str(answer.read().decode())
            except HTTPError as error:
                with error:
                    return str(error.read().decode())
        return ""

    def has(self, name: str, subscription: str) -> float | None:
        """A metric's value; fails when the job has ended."""
        assert self.thread.is_alive(), self.outcome
        for line in self.read("metrics").splitlines():
            if line.startswith(f'pgsluice_consumer_{name}{{subscription="{subscription}"}} '):
                return float(line.rpartition(" ")[2])
        return None

    def until(self, subscription: str, end_lsn: int) -> None:
        wait_until(
            lambda: self.has("end_lsn", subscription) == end_lsn,
            90,
            f"{subscription} to be at {end_lsn:X}",
        )


@contextmanager
def running(settings: ConsumerSettings, spark: SparkSession) -> Iterator[Job]:
    job = Job(settings, spark)
    job.thread.start()
    try:
        yield job
    finally:
        job.stopping.set()
        job.thread.join(60 * PATIENCE)


@pytest.fixture
def make_settings(kafka: str, registry: str, tmp_path: Path) -> Callable[..., ConsumerSettings]:
    def make(*victims: Victim) -> ConsumerSettings:
        return ConsumerSettings(
            kafka={"bootstrap.servers": kafka},
            registry_url=registry,
            warehouse=str(tmp_path / "warehouse"),
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=tuple(victim.name for victim in victims),
            trigger_interval_s=0.5,
        )

    return make


def test_markers_that_cannot_be_read_hold_their_subscription_and_no_other(
    spark: SparkSession,
    kafka: str,
    registry: str,
    make_settings: Callable[..., ConsumerSettings],
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids = RegisteredSchemas(registry)
    healthy, damaged, unknown, foreign, deleted, newer = victims = [
        Victim(kafka, ids, kind)
        for kind in ("healthy", "damaged", "unknown", "foreign", "deleted", "newer")
    ]
    settings = make_settings(*victims)
    for value in (b"", b"\0", b"\1" * 40, b"\0" + struct.pack(">I", 1)):
        damaged.put(value)
    damaged.put(damaged.topics.marker(b"\x00\x00\xff\xff\xff"))
    damaged.topics.forge([{"kind": "PROGRESS", "end_lsn": 0x180, "offsets": [nowhere(damaged)]}])
    damaged.add(2)
    for victim, value in (
        (unknown, struct.pack(">bI", 0, 999_999) + b"\0" * 20),
        (foreign, table_record(foreign)),
    ):
        victim.put(value)
        victim.add(2)
    state = Path(settings.warehouse) / newer.name / ".pgsluice"
    state.mkdir(parents=True)
    for each in ("newest.0", "newest.1"):
        (state / each).write_text('{"format": 99}')
    with running(settings, spark) as job:
        for victim, lsn in ((deleted, 0x100), (damaged, 0x200), (unknown, 0x100), (foreign, 0x100)):
            job.until(victim.name, lsn)
        admin = AdminClient({"bootstrap.servers": kafka})
        delete_topics(admin, [deleted.topics.marker_topic])
        held = {unknown.name, foreign.name, deleted.name, newer.name}
        wait_until(
            lambda: held == {v.name for v in victims if job.has("subscription_held", v.name)},
            90,
            "the held subscriptions",
        )
        healthy.add(2)
        job.until(healthy.name, 0x200)
        assert job.has("markers_refused_total", damaged.name) == 6
        ready = job.read("readyz")
        assert f"subscription {unknown.name} is held: " in ready
        # Made again, it is read from its beginning, and so is the copy in it.
        deleted.topics.create(deleted.topics.marker_topic)
        deleted.copy()
        deleted.add(3)
        job.until(deleted.name, 0x300)
    assert job.outcome == [0]
    reasons = {
        unknown.name: "marker at offset 2: the schema registry has no schema with id 999999",
        foreign.name: "that of a marker with offsets",
        newer.name: "has format 99",
        deleted.name: f"topic {deleted.topics.marker_topic} is gone",
    }
    for name, reason in reasons.items():
        found = [
            text
            for text in caplog.messages
            if text.startswith(f"subscription held: subscription={name}")
        ]
        assert len(found) == 1 and reason in found[0], (name, found)
    for name in (unknown.name, foreign.name):
        manifest = state_at(name, at=None, warehouse=settings.warehouse, spark=spark)
        assert manifest.end_lsn == 0x100
        assert any("marker at offset 2" in line for line in manifest.missing())
    with pytest.raises(FatalConsumerError) as ended:
        run(replace(settings, endpos=0x200), spark, stopping=threading.Event())
    assert ended.match("no schema with id 999999")
    assert ended.match("has format 99")


def test_a_marker_of_some_kilobytes_that_takes_more_memory_than_there_is(
    spark: SparkSession,
    kafka: str,
    registry: str,
    make_settings: Callable[..., ConsumerSettings],
) -> None:
    ids = RegisteredSchemas(registry)
    healthy, bombed = victims = [Victim(kafka, ids, kind) for kind in ("healthy", "bombed")]
    produce_bomb(kafka, bombed.topics.marker_topic, more_than_spark_has(spark))
    settings = replace(make_settings(*victims), available_now=True)

    with pytest.raises(FatalConsumerError, match="a record takes more memory than Spark has"):
        run(settings, spark, stopping=threading.Event())

    manifest = state_at(healthy.name, at=None, warehouse=settings.warehouse, spark=spark)
    assert manifest.end_lsn == 0x100


def test_a_topic_that_the_broker_refuses_is_no_broker_that_does_not_answer(kafka: str) -> None:
    settings = ConsumerSettings(
        kafka={"bootstrap.servers": kafka}, registry_url="http://127.0.0.1:1"
    )
    with pytest.raises(FatalConsumerError, match="the broker refuses topic no such topic!: "):
        JobTopics(settings).describe(["no such topic!"])


def nowhere(victim: Victim) -> dict[str, Any]:
    """Offsets of a topic that the broker refuses to describe."""
    ranges = {"partition": 0, "first_offset": 0, "next_offset": 2, "previous_offset": 0}
    return {"topic": f"{victim.name}.no such topic!", "records": 2, **ranges}


def table_record(victim: Victim) -> bytes:
    """A record of a table, for the wrong topic."""
    victim.table.change("c", 0x99, 1, after={"a": 9, "b": "x"})
    value = victim.table.records.pop().value
    assert value is not None
    return value
