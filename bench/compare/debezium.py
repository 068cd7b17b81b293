"""Debezium's PostgreSQL connector in a worker of Kafka Connect, exactly once.

Not their defaults: no snapshot unless a scenario asks for one; the publication is ours; a worker
that was killed does not wait for five minutes before it gives the connector to the next one
(``scheduled.rebalance.max.delay.ms``), nor for ten seconds of a dead member's session
(``session.timeout.ms``).
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, Final

from bench.compare.stage import ROLE, Source, Stage
from bench.processes import BenchError
from devkit.embedded.processes import Server, free_port
from gateway.jars import ivy as jars
from gateway.jars.java import java

__all__ = ["Debezium"]

_START_S: Final = 600.0
_POLL_S: Final = 0.2
_LOG4J: Final = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n
"""


class Debezium:
    """A worker with one connector, whose prefix of topics is the database's name."""

    def __init__(
        self,
        stage: Stage,
        source: Source,
        tables: Mapping[str, str | None],
        *,
        snapshot: bool = False,
    ) -> None:
        self._name = name = source.dbname
        self._stage = stage
        self._folder = stage.scratch(f"{name}-files")
        self._port = free_port()
        self._server: Server | None = None
        listed = ", ".join(
            table if where is None else f"{table} WHERE ({where})"
            for table, where in tables.items()
        )
        source.execute(f"CREATE PUBLICATION {name} FOR TABLE {listed}")
        self._connector = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": "127.0.0.1",
            "database.port": f"{source.server.port}",
            "database.user": ROLE,
            "database.password": source.password,
            "database.dbname": name,
            "topic.prefix": name,
            "plugin.name": "pgoutput",
            "slot.name": name,
            "publication.name": name,
            "publication.autocreate.mode": "disabled",
            "table.include.list": ",".join(f"public.{table}" for table in tables),
            "snapshot.mode": "initial" if snapshot else "no_data",
            "exactly.once.support": "required",
            "transaction.boundary": "poll",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "1",
        }
        self._configure_worker()

    def _configure_worker(self) -> None:
        plugins = self._folder / "plugins"
        plugins.mkdir()
        for plugin in ("connect-avro", "connect-debezium"):
            (plugins / plugin).symlink_to(jars.folder(plugin))
        converters: dict[str, str] = {}
        for part in ("key", "value"):
            converters |= {
                f"{part}.converter": "io.apicurio.registry.utils.converter.AvroConverter",
                f"{part}.converter.apicurio.registry.url": self._stage.registry.url.replace(
                    "/apis/ccompat/v7", "/apis/registry/v2"
                ),
                f"{part}.converter.apicurio.registry.as-confluent": "true",
                f"{part}.converter.apicurio.registry.use-id": "contentId",
                f"{part}.converter.apicurio.registry.auto-register": "true",
                f"{part}.converter.apicurio.registry.headers.enabled": "false",
            }
        settings = {
            "bootstrap.servers": self._stage.kafka.bootstrap_servers,
            "group.id": f"connect-{self._name}",
            "exactly.once.source.support": "enabled",
            "plugin.path": str(plugins),
            "listeners": f"http://127.0.0.1:{self._port}",
            "scheduled.rebalance.max.delay.ms": "0",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "2000",
            **{
                f"{kind}.storage.topic": f"connect-{self._name}-{kind}"
                for kind in ("config", "offset", "status")
            },
            **{
                f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")
            },
            "offset.storage.partitions": "1",
            "status.storage.partitions": "1",
            **converters,
        }
        (self._folder / "worker.properties").write_text(
            "".join(f"{key}={value}\n" for key, value in settings.items())
        )
        (self._folder / "log4j.properties").write_text(_LOG4J)

    def start(self) -> None:
        """Start the worker, and give it the connector."""
        self._server = Server(
            "Kafka Connect",
            [
                java(),
                "-Xmx2g",
                f"-Dlog4j.configuration=file:{self._folder / 'log4j.properties'}",
                "-cp",
                f"{jars.folder('connect')}/*",
                "org.apache.kafka.connect.cli.ConnectDistributed",
                str(self._folder / "worker.properties"),
            ],
            log=self._folder / "log",
            cwd=self._folder,
            env=dict(os.environ),
        )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                self._call("PUT", f"connectors/{self._name}/config", self._connector)
            except OSError as error:
                if time.monotonic() > deadline or self._server.returncode() is not None:
                    raise BenchError(
                        f"Kafka Connect did not take the connector: {error}\n"
                        f"{self._server.log_tail()}"
                    ) from error
                time.sleep(_POLL_S)
            else:
                return

    def stop(self) -> None:
        """Stop the worker by SIGTERM."""
        if self._server is not None:
            self._server.stop(timeout_s=60)

    def kill(self) -> None:
        """Kill the worker."""
        if self._server is None:
            raise BenchError("Kafka Connect was not started")
        self._server.kill()

    @property
    def pid(self) -> int | None:
        """The worker."""
        server = self._server
        return server.pid if server is not None and server.returncode() is None else None

    def fault(self) -> str | None:
        """Return what the failed connector or task says."""
        if self.pid is None:
            return None
        try:
            status = self._call("GET", f"connectors/{self._name}/status")
        except OSError:
            return None
        for part in (status["connector"], *status["tasks"]):
            if part["state"] == "FAILED":
                causes = [x for x in part["trace"].splitlines() if not x.startswith("\tat ")]
                return causes[-1].strip() if causes else "failed"
        return None

    def follow_advice(self) -> bool:
        """Return that it advises nothing."""
        return False

    def topic(self, table: str) -> str:
        """Return the topic of a table."""
        return f"{self._name}.public.{table}"

    def _call(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())
