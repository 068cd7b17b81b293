"""A stop in a long batch ends in good order, and so does the end of Spark itself."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from spark_consumer.errors import SettingsError
from spark_consumer.job.job import run
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import may_pass
from spark_consumer.spark.session import check_session
from tests.support.backends.answers import AnsweringHandler, serving
from tests.support.run.waiting import PATIENCE, wait_until
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class SlowRegistry(ThreadingHTTPServer):
    """Passes requests on to a registry; those for one schema wait until they are let go."""

    def __init__(self, url: str, slow: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = url.rstrip("/")
        self.slow = f"/schemas/ids/{slow}"
        self.asked = threading.Event()
        self.let_go = threading.Event()


class _Handler(AnsweringHandler):
    server: SlowRegistry

    def do_GET(self) -> None:
        if self.path.split("?")[0].endswith(self.server.slow):
            self.server.asked.set()
            self.server.let_go.wait()
        with urlopen(self.server.behind + self.path) as answer:
            kind = answer.headers["Content-Type"]
            self.answer(answer.read(), status=answer.status, kind=kind)


@contextmanager
def slow_registry(url: str, slow: int) -> Iterator[SlowRegistry]:
    with serving(SlowRegistry(url, slow)) as server:
        try:
            yield server
        finally:
            server.let_go.set()


def test_a_stop_in_a_batch_that_takes_longer_is_a_stop_and_the_next_start_goes_on(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    ids = RegisteredSchemas(registry)
    name = f"s{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka, ids, name)
    table = TableTopic(ids, f"{name}.public.t", [Col("a", "int", "integer")], ["a"])
    for topic in (table.topic, topics.marker_topic):
        topics.create(topic)
    table.truncate(0x90, 0, snapshot="first")
    table.change("r", 0x90, 0, after={"a": 1})
    value = table.records[-1].value
    assert value is not None
    topics.commit([table], [{"kind": "PROGRESS", "end_lsn": 0x100}])
    with slow_registry(registry, int.from_bytes(value[1:5], "big")) as server:
        settings = ConsumerSettings(
            kafka={"bootstrap.servers": kafka},
            registry_url=f"http://127.0.0.1:{server.server_port}",
            warehouse=str(tmp_path / "warehouse"),
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=(name,),
            shutdown_timeout_s=0.5,
        )
        stopping = threading.Event()
        codes: list[int] = []
        job = threading.Thread(target=lambda: codes.append(run(settings, spark, stopping=stopping)))
        job.start()
        wait_until(server.asked.is_set, 30, "the long batch")
        stopping.set()
        job.join(30 * PATIENCE)

        assert codes == [0]
        assert any(text.startswith("batch abandoned") for text in caplog.messages)
        assert "stopped" in caplog.messages
        assert not (tmp_path / "warehouse" / name / "public" / "t").exists()
        server.let_go.set()
        wait_until(
            lambda: all(query.name != f"pgsluice {name}" for query in spark.streams.active),
            30,
            "the abandoned query to end",
        )

        done = replace(settings, endpos=0x100)
        assert run(done, spark, stopping=threading.Event()) == 0
    rows = spark.read.format("delta").load(str(tmp_path / "warehouse" / name / "public" / "t"))
    assert [row.a for row in rows.collect()] == [1]


def test_what_passes_is_told_from_what_does_not_and_another_spark_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm = spark._jvm
    assert jvm is not None
    errors = jvm.org.apache.kafka.common.errors
    newer = "The leader epoch in the request is newer than the epoch on the broker."
    wrapped = jvm.java.util.concurrent.ExecutionException
    for error in (
        errors.UnknownLeaderEpochException(newer),
        errors.FencedLeaderEpochException("fenced"),
        errors.NotLeaderOrFollowerException("moved"),
        errors.TimeoutException("late"),
    ):
        assert may_pass(wrapped(error))
    for error in (
        errors.TopicAuthorizationException("denied"),
        errors.SaslAuthenticationException("who?"),
        jvm.java.lang.IllegalStateException("odd"),
    ):
        assert not may_pass(wrapped(error))

    check_session(spark)
    monkeypatch.setattr("spark_consumer.spark.session._SPARK", "3.5")
    with pytest.raises(SettingsError, match=r"this is Spark 4\.1\.1, not 3\.5"):
        check_session(spark)
