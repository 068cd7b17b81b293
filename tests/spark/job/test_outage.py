"""What the job tells of itself while it runs, and how it ends when what is outside stays away."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.processes import free_port
from spark_consumer.cli import main
from tests.support.run.waiting import PATIENCE, wait_until
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]

COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]
HOUR_S = 3600


class Scene:
    """A subscription of one table on a broker of its own, and the job's configuration file."""

    def __init__(self, kafka: EmbeddedKafka, registry: str, folder: Path) -> None:
        ids = RegisteredSchemas(registry)
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self.topics = Topics(kafka.bootstrap_servers, ids, self.name)
        self.table = TableTopic(ids, f"{self.name}.public.t", COLUMNS, ["a"])
        for topic in (self.table.topic, self.topics.marker_topic):
            self.topics.create(topic)
        self.folder = folder / "warehouse" / self.name
        self.port = free_port()
        self.program = folder / "consumer.toml"
        self.program.write_text(
            f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap_servers}"\n'
            f'[registry]\nurl = "{registry}"\n'
            f'[consumer]\nsubscriptions = ["{self.name}"]\ntrigger_interval_s = 0.5\n'
            f'metrics_listen = "127.0.0.1:{self.port}"\n'
            # Java's own defaults take minutes to find out that a broker is away; a busy one, which
            # is not, has as long as everything else here.
            f'kafka_java = {{ "request.timeout.ms" = "{1_000 * PATIENCE}",'
            f' "default.api.timeout.ms" = "{2_000 * PATIENCE}" }}\n'
        )

    def publish(self, end_lsn: int) -> None:
        """Commit what the table has collected, as of an hour ago."""
        committed = int((time.time() - HOUR_S) * 1_000_000)
        marker = {"kind": "PROGRESS", "end_lsn": end_lsn, "commit_time": committed}
        self.topics.commit([self.table], [marker])

    def job(self) -> int:
        """Run the command until it ends; its exit code."""
        return main(["--config", str(self.program)])

    def metrics(self) -> dict[str, float]:
        """What Prometheus reads, without the prefix; nothing while the job does not serve it."""
        with (
            suppress(URLError, ConnectionError),
            urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as answer,
        ):
            labels = rf'subscription="{self.name}"(?:,phase="(\w+)")?'
            line = rf"^pgsluice_consumer_(\w+){{{labels}}} (\S+)$"
            found = re.findall(line, answer.read().decode(), re.MULTILINE)
            return {phase or name: float(value) for name, phase, value in found}
        return {}


@contextmanager
def meanwhile(act: object) -> Iterator[Future[None]]:
    """Run `act` in a thread while the block has the main one, where the job takes its signals."""
    with ThreadPoolExecutor(1) as pool:
        assert callable(act)
        done = pool.submit(act)
        yield done
        done.result()


def test_the_job_tells_what_it_does_and_ends_with_75_when_an_outage_lasts(
    spark: SparkSession,
    registry: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with EmbeddedKafka() as kafka:
        scene = Scene(kafka, registry, tmp_path)
        scene.table.truncate(0x90, 0, snapshot="first")
        for key in (1, 2):
            scene.table.change("r", 0x90, 0, after={"a": key, "b": "copied"})
        scene.publish(0x100)

        # No state can be kept: a file is where the folder of the manifests would be.
        (scene.folder / ".pgsluice").parent.mkdir(parents=True)
        (scene.folder / ".pgsluice").write_text("in the way")

        def watch_the_lag() -> None:
            wait_until(lambda: scene.metrics().get("lag_seconds", 0) >= HOUR_S, 120, "the lag")

        with caplog.at_level(logging.INFO, "spark_consumer"), meanwhile(watch_the_lag):
            assert scene.job() == 75

        waits = re.findall(r"retrying in (\d+) s: \S+/\.pgsluice cannot be used", caplog.text)
        assert waits == ["1", "2", "4"]
        assert "/.pgsluice cannot be used" in capsys.readouterr().err
        caplog.clear()

        # Another start goes on where that one stopped.
        (scene.folder / ".pgsluice").unlink()
        scene.table.change("u", 0x108, 1, after={"a": 2, "b": "changed"})
        scene.table.change("u", 0x108, 3, after={"a": 7, "b": "not there"})
        found: dict[str, float] = {}

        def look_and_take_the_broker_away() -> None:
            wait_until(lambda: scene.metrics().get("end_lsn") == 0x100, 120, "the first cut")
            scene.publish(0x200)
            wait_until(
                lambda: scene.metrics().get("end_lsn") == 0x200 and "micro-batch" in caplog.text,
                120,
                "the second cut",
            )
            found.update(wait_until(told, 120, "what the listener is told"))
            for path in ("healthz", "readyz"):
                with urlopen(f"http://127.0.0.1:{scene.port}/{path}", timeout=30) as answer:
                    assert (answer.status, answer.read()) == (200, b"ok\n")
            kafka.kill()

        def told() -> dict[str, float]:
            metrics = scene.metrics()
            is_told = metrics.get("lag_seconds") == 0 and metrics.get("stream", 0) > 0
            return metrics if is_told else {}

        with (
            caplog.at_level(logging.INFO, "spark_consumer"),
            meanwhile(look_and_take_the_broker_away),
        ):
            assert scene.job() == 75

        assert "pgsluice-consume: the Kafka broker does not answer: " in capsys.readouterr().err
        assert (found["records_total"], found["cuts_total"]) == (5, 2)
        assert (found["skipped_total"], found["tables_held"], found["unread_markers"]) == (1, 0, 0)
        assert found["silent_seconds"] < HOUR_S
        assert all(found[phase] > 0 for phase in ("stream", "plan", "apply", "manifest"))
        assert HOUR_S <= time.time() - found["commit_timestamp_seconds"] < 2 * HOUR_S
        said = [text for text in caplog.messages if text.startswith("micro-batch done")]
        assert re.fullmatch(
            rf"micro-batch done: subscription={scene.name} markers=1 unread_markers=0"
            r" milliseconds=(\w+:\d+ ?)+",
            said[-1],
        )
        cuts = [text for text in caplog.messages if text.startswith("cut applied")]
        assert [text.rpartition(" seconds=")[0] for text in cuts] == [
            f"cut applied: subscription={scene.name} end_lsn=0/100 records=3 tables=1",
            f"cut applied: subscription={scene.name} end_lsn=0/200 records=2 tables=1",
        ]
    rows = spark.read.format("delta").load(str(scene.folder / "public" / "t")).collect()
    assert sorted(tuple(row) for row in rows) == [(1, "copied"), (2, "changed")]
