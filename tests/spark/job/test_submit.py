"""README's recipe on a standalone cluster of two workers with its tables in S3; and a signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

import pytest

from devkit.embedded.processes import free_port, port_answers
from gateway.jars.ivy import jars
from gateway.jars.java import java, java_home
from spark_consumer.spark.session import TUNED
from tests.spark.job.test_interrupted import COLUMNS, Scene
from tests.spark.job.test_stopping import slow_registry
from tests.support.backends.servers import BRIEF_JAVA
from tests.support.run.waiting import wait_until
from tests.support.spark.kafka_topics import RegisteredSchemas
from tests.support.spark.records import value_schema

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def recipe() -> str:
    """The command as the README prints it."""
    found = re.search(r"```sh\n(spark-submit .*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def spark_home() -> Path:
    """The folder of Spark, as pyspark brings it."""
    import pyspark

    return Path(next(iter(pyspark.__path__)))


class Cluster:
    """A master and two workers of one core each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.bin = spark_home() / "bin"
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_TOOL_OPTIONS": BRIEF_JAVA,
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_CONF_DIR": str(folder / "conf"),
        }
        spark = "org.apache.spark.deploy"
        self.start(
            "master", f"{spark}.master.Master --host 127.0.0.1 --port 0 --webui-port 0".split()
        )
        wait_until(lambda: "Starting Spark master at" in self.log("master"), 120, "the master")
        found = re.search(r"Starting Spark master at (spark://\S+)", self.log("master"))
        assert found is not None
        self.master = found[1]
        for number in (1, 2):
            arguments = f"{spark}.worker.Worker --host 127.0.0.1 --cores 1 --memory 1g"
            self.start(f"worker{number}", [*arguments.split(), "--webui-port", "0", self.master])
        wait_until(lambda: self.log("master").count("Registering worker") == 2, 120, "workers")

    def serve_s3(self, bucket: str) -> Path:
        """Start an S3 server that the cluster's own settings name; the folder of the bucket."""
        port, store = free_port(), self.folder / "s3"
        (store / bucket).mkdir(parents=True)
        server = {
            "s3proxy.endpoint": f"http://127.0.0.1:{port}",
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": "spark",
            "s3proxy.credential": "not a secret",
            "jclouds.provider": "filesystem",
            "jclouds.filesystem.basedir": str(store),
        }
        self._write("s3.properties", "=", server)
        path = os.pathsep.join(map(str, jars("s3-server")))
        command = [java(), *BRIEF_JAVA.split(), "-Xmx128m", "-DLOG_LEVEL=warn", "-cp", path]
        main = ["org.gaul.s3proxy.Main", "--properties", str(self.folder / "s3.properties")]
        self.run("s3.log", [*command, *main])
        client = {
            "endpoint": f"http://127.0.0.1:{port}",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": "spark",
            "secret.key": "not a secret",
        }
        (self.folder / "conf").mkdir()
        named = {f"spark.hadoop.fs.s3a.{name}": value for name, value in client.items()}
        self._write("conf/spark-defaults.conf", " ", named)
        wait_until(lambda: port_answers(port), 120, "the S3 server")
        return store / bucket

    def _write(self, name: str, between: str, lines: Mapping[str, str]) -> None:
        text = "".join(f"{key}{between}{value}\n" for key, value in lines.items())
        (self.folder / name).write_text(text)

    def start(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        return self.run(name, [str(self.bin / "spark-class"), *arguments])

    def run(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        log: IO[bytes] = self.stack.enter_context((self.folder / name).open("wb"))
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self.environment, "MASTER": getattr(self, "master", "")},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self.stack.callback(_end, process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / name).read_text(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def test_the_recipe_of_the_readme_rebuilds_tables_on_a_cluster(
    cluster: Cluster, kafka: str, registry: str, tmp_path: Path
) -> None:
    built = [sys.executable, str(ROOT / "tools" / "dist.py"), "--s3", str(tmp_path / "dist")]
    subprocess.run(built, check=True, cwd=ROOT)
    scene = Scene(kafka, registry, cluster.serve_s3("lake"))
    scene.produce()
    # The checkpoint not there: this server does not list a folder that has nothing in it yet.
    (tmp_path / "consumer.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka}"\n[registry]\nurl = "{registry}"\n'
        f'[consumer]\nsubscriptions = ["{scene.name}"]\ntopics = ["{scene.named}"]\n'
        f'warehouse = "s3a://lake/warehouse"\ncheckpoint = "{tmp_path}/checkpoint"\n'
    )

    process = cluster.run("job", ["bash", "-c", recipe()])
    wait_until(
        lambda: process.poll() is not None or "cut applied" in cluster.log("job"), 300, "a cut"
    )
    assert process.poll() is None, cluster.log("job")[-4000:]
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(60)

    log = cluster.log("job")
    assert "cut applied" in log, log[-4000:]
    assert all(map(scene.is_written, (1, 2, 3)))
    assert cluster.log("master").count("Launching executor") >= 2


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
            code = process.wait(60)
            wait_until(lambda: not _lives(process.pid), 60, "the end of the process group")
        finally:
            _end(process)

    text = (tmp_path / "log").read_text(errors="replace")
    # spark-submit's own process is the JVM: it has the exit code that Java has for a signal, and
    # passes on nothing that the job says after it.
    assert code == (143 if submitted else 0), text[-4000:]
    assert submitted or re.search(r"INFO stopped$", text, re.MULTILINE), text[-4000:]
    assert "Traceback" not in text
    assert not scene.is_written(3)


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
