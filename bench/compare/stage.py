"""The servers that both tools use, and a database of its own for each use of a tool."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import EmbeddedRegistry

__all__ = ["ROLE", "Source", "Stage", "servers"]

ROLE = "replicator"


@dataclass(frozen=True, slots=True)
class Source:
    """A database whose changes are read.

    Attributes:
        server: Its server.
        dbname: Its name; slot, publication and topics of the tool are called like it.
        password: Password of the role `ROLE`, which both tools use.
    """

    server: EmbeddedPostgres
    dbname: str
    password: str

    def connect(self) -> psycopg.Connection[Any]:
        """Return a new autocommit connection of the superuser."""
        return self.server.connect(self.dbname)

    def execute(self, statements: str) -> None:
        """Run statements, each in a transaction of its own unless they begin one."""
        with self.connect() as connection:
            connection.execute(statements.encode())

    def value(self, query: str) -> Any:
        """Return the one value of a query."""
        with self.connect() as connection:
            row = connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]

    @property
    def dsn(self) -> str:
        """Connection URI of the tools' role."""
        return f"postgresql://{ROLE}:{self.password}@127.0.0.1:{self.server.port}/{self.dbname}"


class Stage:
    """Servers that run.

    Attributes:
        folder: Folder for the files of the tools.
        postgres: Source of all scenarios but those that need one of their own.
        kafka: Broker.
        registry: Registry of the schemas.
    """

    def __init__(
        self,
        folder: Path,
        postgres: EmbeddedPostgres,
        kafka: EmbeddedKafka,
        registry: EmbeddedRegistry,
    ) -> None:
        self.folder = folder
        self.postgres = postgres
        self.kafka = kafka
        self.registry = registry
        self._password = secrets.token_hex(16)
        self._prepared: set[int] = set()

    def source(self, name: str, schema: str, server: EmbeddedPostgres | None = None) -> Source:
        """Make a database with the tables of a schema."""
        server = self.postgres if server is None else server
        with server.connect() as connection:
            if server.port not in self._prepared:
                connection.execute(
                    f"CREATE ROLE {ROLE} LOGIN SUPERUSER REPLICATION"
                    f" PASSWORD '{self._password}'".encode()
                )
                self._prepared.add(server.port)
            connection.execute(f"CREATE DATABASE {name} OWNER {ROLE}".encode())
        source = Source(server, name, self._password)
        source.execute(schema)
        return source

    def scratch(self, name: str) -> Path:
        """Make an empty folder for one use of a tool."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder


@contextmanager
def servers(folder: Path) -> Iterator[Stage]:
    """Start the servers, and stop them.

    Raises:
        ServerError: one of them did not start.
    """
    parts = EmbeddedPostgres(18), EmbeddedKafka(heap_mb=1024), EmbeddedRegistry()
    with ExitStack() as stack:
        for part in parts:
            stack.callback(part.stop)
        with ThreadPoolExecutor() as pool:
            for started in [pool.submit(part.start) for part in parts]:
                started.result()
        yield Stage(folder, *parts)
