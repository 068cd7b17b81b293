"""README's recipe on a standalone cluster of two workers with its tables in S3; and a signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from devkit.embedded.s3 import EmbeddedS3
from devkit.embedded.spark_cluster import EmbeddedSparkCluster, spark_home
from gateway.jars.ivy import jars
from gateway.jars.java import java_home
from spark_consumer.spark.session import TUNED
from tests.spark.job.test_interrupted import COLUMNS, Scene
from tests.spark.job.test_stopping import slow_registry
from tests.support.backends.servers import BRIEF_JAVA
from tests.support.run.waiting import PATIENCE, wait_until
from tests.support.spark.kafka_topics import RegisteredSchemas
from tests.support.spark.records import value_schema

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def recipe() -> str:
    """The command as the README prints it."""
    found = re.search(r"```sh\n(spark-submit .*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def s3() -> Iterator[EmbeddedS3]:
    with EmbeddedS3() as server:
        yield server


@pytest.fixture
def cluster(s3: EmbeddedS3) -> Iterator[EmbeddedSparkCluster]:
    with EmbeddedSparkCluster(s3.spark_settings, BRIEF_JAVA) as started:
        yield started


def test_the_recipe_of_the_readme_rebuilds_tables_on_a_cluster(
    cluster: EmbeddedSparkCluster, s3: EmbeddedS3, kafka: str, registry: str, tmp_path: Path
) -> None:
    built = [sys.executable, str(ROOT / "tools" / "dist.py"), "--s3", str(tmp_path / "dist")]
    subprocess.run(built, check=True, cwd=ROOT)
    scene = Scene(kafka, registry, s3.bucket)
    scene.produce()
    # The checkpoint not there: this server does not list a folder that has nothing in it yet.
    (tmp_path / "consumer.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka}"\n[registry]\nurl = "{registry}"\n'
        f'[consumer]\nsubscriptions = ["{scene.name}"]\ntopics = ["{scene.named}"]\n'
        f'warehouse = "s3a://lake/warehouse"\ncheckpoint = "{tmp_path}/checkpoint"\n'
    )

    def said() -> str:
        return (tmp_path / "log").read_text(errors="replace")

    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", recipe()],
            cwd=tmp_path,
            env={**cluster.environment, "MASTER": cluster.master},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until(lambda: process.poll() is not None or "cut applied" in said(), 300, "a cut")
            assert process.poll() is None, said()[-4000:]
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60 * PATIENCE)
        finally:
            _end(process)

    assert "cut applied" in said(), said()[-4000:]
    assert all(map(scene.is_written, (1, 2, 3)))
    assert cluster.log.read_text().count("Launching executor") >= 2


SUBMITTED = "import sys\nfrom spark_consumer.__main__ import main\nsys.exit(main())\n"


@pytest.mark.parametrize("submitted", [False, True], ids=["python -m", "spark-submit"])
def test_a_signal_in_a_long_batch_ends_the_job_and_it_says_so(
    kafka: str, registry: str, tmp_path: Path, submitted: bool
) -> None:
    """As a terminal does it, to the whole process group; spark-submit's JVM ends by it at once."""
    scene = Scene(kafka, registry, tmp_path)
    scene.produce()
    # The same schema has the same id: it is that of the third table.
    slow = RegisteredSchemas(registry).register(value_schema("public", "t3", COLUMNS))
    program, listed = tmp_path / "consumer.toml", ",".join(str(jar) for jar in jars("spark"))
    command = [sys.executable, "-m", "spark_consumer", "--config", str(program)]
    if submitted:
        (tmp_path / "consume.py").write_text(SUBMITTED)
        conf = [f"--conf={key}={value}" for key, value in TUNED.items()]
        submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]", *conf]
        command = [*submit, "--jars", listed, str(tmp_path / "consume.py"), *command[-2:]]
    with slow_registry(registry, slow) as server, (tmp_path / "log").open("wb") as log:
        program.write_text(
            f'[kafka]\n"bootstrap.servers" = "{kafka}"\n'
            f'[registry]\nurl = "http://127.0.0.1:{server.server_port}"\n'
            f'[consumer]\nsubscriptions = ["{scene.name}"]\ntopics = ["{scene.named}"]\n'
            f'shutdown_timeout_s = 2.0\nspark = {{ "spark.jars" = "{listed}" }}\n'
        )
        process = subprocess.Popen(
            command,
            env={
                **os.environ,
                "JAVA_HOME": str(java_home()),
                "JAVA_TOOL_OPTIONS": BRIEF_JAVA,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(ROOT),
            },
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until(
                lambda: process.poll() is not None or server.asked.is_set(), 300, "a long batch"
            )
            assert process.poll() is None, (tmp_path / "log").read_text(errors="replace")[-4000:]
            os.killpg(process.pid, signal.SIGTERM)
            code = process.wait(60 * PATIENCE)
            wait_until(lambda: not _lives(process.pid), 60, "the end of the process group")
        finally:
            _end(process)

    text = (tmp_path / "log").read_text(errors="replace")
    # spark-submit's own process is the JVM: it has the exit code that Java has for a signal, and
    # passes on nothing that the job says after it.
    assert code == (143 if submitted else 0), text[-4000:]
    assert submitted or re.search(r"INFO stopped$", text, re.MULTILINE), text[-4000:]
    assert "Traceback" not in text
    # What spark-submit logs before there is a session.
    assert len(re.findall(r"^\S+ \S+ INFO [A-Z]\w+: ", text, re.MULTILINE)) < 30
    assert not scene.is_written(3)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
