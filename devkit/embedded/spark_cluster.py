"""Spark's standalone cluster as local processes: a master and two workers of one core each."""

import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from devkit.embedded.base import Embedded
from devkit.embedded.processes import Server, ServerError
from gateway.jars.java import java_home

_WORKERS = 2
_READY_S = 120.0
_DEPLOY = "org.apache.spark.deploy"
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")


def spark_home() -> Path:
    """The folder of Spark, as pyspark brings it.

    Raises:
        ServerError: pyspark is not installed.
    """
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise ServerError("pyspark is not installed")
    return Path(found.submodule_search_locations[0])


class EmbeddedSparkCluster(Embedded):
    """A cluster on 127.0.0.1, with what pyspark brings.

    Args:
        settings: settings of every program that is submitted (``spark-defaults.conf``).
        java_options: options of its own JVMs and those of programs.
    """

    def __init__(self, settings: Mapping[str, str], java_options: str = "") -> None:
        super().__init__("the Spark cluster")
        self._settings = settings
        self._java_options = java_options
        self._workers: list[Server] = []

    @property
    def master(self) -> str:
        """Its address, for ``--master``."""
        found = _MASTER.search(self.log.read_text(errors="replace"))
        if found is None:
            raise ServerError("the Spark cluster has no master")
        return found[1]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of ``spark-submit``, which is found by its name."""
        programs = spark_home() / "bin"
        return {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_TOOL_OPTIONS": self._java_options,
            "SPARK_WORKER_DIR": str(self.folder / "work"),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
        }

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers, whose children the executors are."""
        return [worker.pid for worker in self._workers]

    def _make(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pgsluice-spark-"))
        (self.folder / "conf").mkdir()
        lines = (f"{name} {value}\n" for name, value in self._settings.items())
        (self.folder / "conf" / "spark-defaults.conf").write_text("".join(lines))
        self._server = self._launch()

    def _launch(self) -> Server:
        master = self._run("Master", "--host", "127.0.0.1", "--port", "0", log=self.log)
        master.await_ready(lambda: "Starting Spark master at" in self._said(), _READY_S)
        self._workers = [
            self._run("Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g",
                      self.master, log=self.folder / f"worker{number}")
            for number in range(1, _WORKERS + 1)
        ]  # fmt: skip
        master.await_ready(lambda: self._said().count("Registering worker") == _WORKERS, _READY_S)
        return master

    def _run(self, kind: str, *arguments: str, log: Path) -> Server:
        main = f"{_DEPLOY}.{kind.lower()}.{kind}"
        return Server(
            f"Spark's {kind.lower()}",
            [spark_home() / "bin" / "spark-class", main, "--webui-port", "0", *arguments],
            log=log,
            env=self.environment,
            cwd=self.folder,
        )

    def _said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _end(self, server: Server) -> None:
        for worker in self._workers:
            worker.kill()
        super()._end(server)
