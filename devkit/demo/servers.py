"""The parts of the demo, each a process of its own, and the folder that they work in.

All of them end with us, however we end (`devkit.embedded.processes`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Final

from devkit.demo.console import DemoError
from devkit.demo.order import spark_settings
from devkit.demo.scenario import PUBLISHER, replication_sql
from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.processes import Server, stop_all
from devkit.embedded.registry import EmbeddedRegistry
from gateway.core.errors import FatalError

__all__ = ["SLOT", "Parts"]

SLOT: Final = "pgsluice"
_STOP_AGAIN_S: Final = 0.2
_PAGE: Final = re.compile(r"are served port=(\d+)")
_CONFIG: Final = """\
[source]
dsn = "{dsn}"
slot = "{slot}"

[definitions]
file = "replication.sql"

[kafka]
{kafka}

[registry]
{registry}

[http]
listen = "127.0.0.1:0"

[limits]
progress_interval_s = 0.2

[consumer]
warehouse = "warehouse"
checkpoint = "checkpoint"
trigger_interval_s = 1

[consumer.spark]
{spark}
"""


class Parts:
    """Servers and processes of one demo; `stop` ends them in good order, the last one first.

    Attributes:
        folder: Configuration, definitions, warehouse and checkpoint.
        logs: Below it, the log of each process.
    """

    def __init__(self, postgres_major: int) -> None:
        self.postgres = EmbeddedPostgres(postgres_major)
        self.kafka = EmbeddedKafka(password=secrets.token_hex(16))
        self.registry = EmbeddedRegistry(user=f"pgsluice:{secrets.token_hex(16)}")
        self.folder = Path(tempfile.mkdtemp(prefix="pgsluice-demo-"))
        self.logs = self.folder / "logs"
        for made in (self.logs, self.folder / "spark"):
            made.mkdir()
        self._pool = ThreadPoolExecutor(max_workers=3, thread_name_prefix="start")
        self._starting: list[Future[str]] = []
        self._processes: dict[str, Server] = {}

    @property
    def config(self) -> Path:
        """The configuration file of gateway and Spark job."""
        return self.folder / "pgsluice.toml"

    @property
    def warehouse(self) -> Path:
        """The folder in which the Spark job rebuilds the tables."""
        return self.folder / "warehouse"

    def pages(self, gateway: str) -> list[str]:
        """Return the addresses of the status page, one for each time that the gateway has begun."""
        log = (self.logs / f"{gateway}.log").read_text(errors="replace")
        return [f"http://127.0.0.1:{port}/" for port in _PAGE.findall(log)]

    def start_servers(self) -> dict[str, Future[str]]:
        """Start PostgreSQL, Kafka and the registry at once; each result says where it listens."""

        def timed(start: Callable[[], object], where: Callable[[], str]) -> Callable[[], str]:
            def run() -> str:
                begin = time.monotonic()
                start()
                return f"{where():<42} {time.monotonic() - begin:5.1f} s"

            return run

        postgres, kafka, registry = self.postgres, self.kafka, self.registry
        tasks = {
            f"PostgreSQL {postgres.major}": timed(
                postgres.start, lambda: f"127.0.0.1:{postgres.port}"
            ),
            "Kafka": timed(kafka.start, lambda: kafka.bootstrap_servers),
            "schema registry": timed(registry.start, lambda: registry.url),
        }
        starting = {name: self._pool.submit(task) for name, task in tasks.items()}
        self._starting.extend(starting.values())
        return starting

    def write_configuration(self) -> None:
        """Write the definitions and the configuration; the servers must be up."""
        (self.folder / "replication.sql").write_text(replication_sql())
        self.config.write_text(
            _CONFIG.format(
                dsn=self.postgres.dsn(PUBLISHER),
                slot=SLOT,
                kafka=_lines(self.kafka.client_settings),
                registry=_lines(self.registry.client_settings),
                spark=_lines(spark_settings(self.folder)),
            )
        )

    def launch(self, name: str, arguments: Sequence[str | Path]) -> Server:
        """Start a Python process of ours, in the demo's folder, with a log of its own."""
        server = Server(
            name,
            [sys.executable, *arguments],
            log=self.logs / f"{name}.log",
            env=_without_settings(os.environ),
            cwd=self.folder,
        )
        self._processes[name] = server
        return server

    def check(self) -> None:
        """See that what was launched still runs.

        Raises:
            DemoError: a process has ended, and not with exit code 0; with the end of its log.
        """
        for name, server in self._processes.items():
            if code := server.returncode():
                raise DemoError(f"the {name} ended with code {code}:\n{server.log_tail()}")

    def end(self, name: str, timeout_s: float) -> int:
        """Ask a process to stop and return its exit code.

        Raises:
            DemoError: it has not ended within `timeout_s` seconds.
        """
        server = self._processes[name]
        server.signal(signal.SIGTERM)
        if not server.wait(timeout_s):
            raise DemoError(f"the {name} does not stop on SIGTERM:\n{server.log_tail()}")
        code = server.returncode()
        assert code is not None
        return code

    def ended(self, name: str) -> bool:
        """Whether a process has ended."""
        return self._processes[name].returncode() is not None

    def pids(self) -> dict[str, int | None]:
        """The process of each part that runs."""
        servers = {
            f"PostgreSQL {self.postgres.major}": self.postgres.pid,
            "Kafka": self.kafka.pid,
            "schema registry": self.registry.pid,
        }
        ours = {n: s.pid for n, s in self._processes.items() if s.returncode() is None}
        return {**servers, **ours}

    def stop(self, *, keep_logs: bool) -> None:
        """Stop everything; remove the folder, or leave all logs in it."""
        for server in self._processes.values():
            server.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        # Whatever a starter has just launched is ended, until the starter gives up.
        while wait(self._starting, timeout=_STOP_AGAIN_S).not_done:
            stop_all()
        for name, part in (
            ("postgres", self.postgres),
            ("kafka", self.kafka),
            ("registry", self.registry),
        ):
            if keep_logs:
                with contextlib.suppress(FatalError, OSError):
                    shutil.copyfile(part.log, self.logs / f"{name}.log")
            part.stop()
        if not keep_logs:
            shutil.rmtree(self.folder, ignore_errors=True)


def _lines(settings: Mapping[str, str]) -> str:
    """They as lines of TOML."""
    return "\n".join(f"{json.dumps(name)} = {json.dumps(each)}" for name, each in settings.items())


def _without_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables that would override the demo's configuration."""
    return {
        name: value
        for name, value in environment.items()
        if not (name.startswith("PGSLUICE_") and "__" in name)
    }
