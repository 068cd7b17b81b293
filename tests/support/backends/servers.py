"""The servers that tests run against, started on first use and once in a run.

Containers where a Docker engine answers, the embedded parts otherwise, behind the same three
methods. ``PGSLUICE_TEST_SERVERS`` set to ``embedded`` or ``containers`` decides by hand; a path is
that of servers which are up (``tests.support.backends.shared_servers``).
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from devkit.embedded.registry import API_PATH, EmbeddedRegistry, accepts_compatibility
from tests.support.run.environment import memory_folder
from tests.support.run.seeds import setseed
from tests.support.run.waiting import wait_until

BRIEF_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For a JVM that lives for a minute or two: code is compiled sooner, to run longer."""
LONG_JAVA: Final = "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m"
"""For a JVM that lives for half an hour: all that it compiles has room, and runs fast. With the
first compiler only, small cuts take less CPU, large ones more: in all of them a quarter more."""

REGISTRY_IMAGE = "apicurio/apicurio-registry:3.0.9"
KAFKA_IMAGE = "confluentinc/cp-kafka:7.9.1"

SERVERS: Final = "PGSLUICE_TEST_SERVERS"
"""Name of the environment variable that says which servers the tests run against."""

_NEVER_KILLED: Final = {"broker.session.timeout.ms": "60000"}
"""For a broker without a successor. Without a heartbeat it loses its partitions after that, which
look then as if they were not there; on a starved machine, three seconds are not enough."""

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresServer(Protocol):
    """A PostgreSQL server as tests know it, wherever it runs."""

    @property
    def major(self) -> int:
        """The server's major version."""

    def dsn(self, dbname: str = "postgres") -> str:
        """A connection URI for a superuser, as this process reaches the server."""

    def server_dsn(self, dbname: str = "postgres") -> str:
        """The same as the server reaches itself: for CREATE SUBSCRIPTION ... CONNECTION."""


@dataclass(frozen=True)
class LocalPostgres:
    """An embedded server."""

    server: EmbeddedPostgres

    @property
    def major(self) -> int:
        return self.server.major

    def dsn(self, dbname: str = "postgres") -> str:
        return self.server.dsn(dbname)

    def server_dsn(self, dbname: str = "postgres") -> str:
        return self.server.dsn(dbname)


@dataclass(frozen=True)
class ContainerPostgres:
    """A server in a container."""

    major: int
    host: str
    port: int
    password: str

    def dsn(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres:{self.password}@{self.host}:{self.port}/{dbname}"

    def server_dsn(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:5432/{dbname}"


_DATABASE: Final = "any_database"


@dataclass(frozen=True)
class RemotePostgres:
    """A server that another process has started."""

    major: int
    pattern: str
    server_pattern: str

    @classmethod
    def of(cls, server: PostgresServer) -> RemotePostgres:
        """How other processes reach this server."""
        return cls(server.major, server.dsn(_DATABASE), server.server_dsn(_DATABASE))

    def as_dict(self) -> dict[str, str]:
        """Its addresses, to be sent to another process."""
        return {"pattern": self.pattern, "server_pattern": self.server_pattern}

    def dsn(self, dbname: str = "postgres") -> str:
        return self.pattern.replace(_DATABASE, dbname)

    def server_dsn(self, dbname: str = "postgres") -> str:
        return self.server_pattern.replace(_DATABASE, dbname)


@dataclass(frozen=True)
class Database:
    """A database of one test's own."""

    name: str
    server: PostgresServer

    @property
    def dsn(self) -> str:
        """A superuser's connection URI."""
        return self.server.dsn(self.name)

    @property
    def server_dsn(self) -> str:
        """The connection URI by which the server itself reaches it, for CREATE SUBSCRIPTION."""
        return self.server.server_dsn(self.name)

    def connect(self) -> Connection:
        """A new autocommit connection; use it as a context manager, or close it.

        Its ``random()`` is seeded, ``gen_random_uuid()`` cannot be.
        """
        connection = psycopg.connect(self.dsn, autocommit=True)
        connection.execute(setseed())
        return connection


class Servers:
    """All servers of a run; each is started on its first use."""

    def __init__(self) -> None:
        self.containers = _use_containers()
        self._open = contextlib.ExitStack()
        self._postgres: dict[int, PostgresServer] = {}
        self._bootstrap_servers: str | None = None
        self._registry_url: str | None = None

    def describe(self) -> str:
        """One line that says what the tests run against."""
        if self.containers:
            return f"containers: postgres:*, {KAFKA_IMAGE}, {REGISTRY_IMAGE}"
        return "embedded PostgreSQL, Kafka and registry (no Docker engine answers)"

    def postgres(self, major: int) -> PostgresServer:
        """The run's server of this major version."""
        if major not in self._postgres:
            start = self._container_postgres if self.containers else self._local_postgres
            self._postgres[major] = start(major)
        return self._postgres[major]

    def kafka(self) -> str:
        """``bootstrap.servers`` of the run's broker."""
        if self._bootstrap_servers is None:
            if self.containers:
                self._bootstrap_servers = self._container_kafka()
            else:
                broker = EmbeddedKafka(config=_NEVER_KILLED)
                self._bootstrap_servers = self._open.enter_context(broker).bootstrap_servers
        return self._bootstrap_servers

    def registry(self) -> str:
        """URL of the run's schema registry."""
        if self._registry_url is None:
            if self.containers:
                self._registry_url = self._container_registry()
            else:
                self._registry_url = self._open.enter_context(EmbeddedRegistry()).url
        return self._registry_url

    def stop(self) -> None:
        """Stop all of them."""
        self._open.close()

    def _local_postgres(self, major: int) -> PostgresServer:
        server = EmbeddedPostgres(major, trust_roles=True, parent=memory_folder())
        return LocalPostgres(self._open.enter_context(server))

    def _container_postgres(self, major: int) -> PostgresServer:
        from testcontainers.community.postgres import PostgresContainer

        password = uuid.uuid4().hex
        container = PostgresContainer(
            f"postgres:{major}", username="postgres", password=password, driver=None
        ).with_command(
            "postgres -c wal_level=logical -c max_wal_senders=64 -c max_replication_slots=64 "
            "-c max_logical_replication_workers=64 -c max_worker_processes=80 "
            "-c max_prepared_transactions=20 -c timezone=UTC -c fsync=off"
        )
        running = self._open.enter_context(container)
        return ContainerPostgres(
            major, running.get_container_host_ip(), int(running.get_exposed_port(5432)), password
        )

    def _container_kafka(self) -> str:
        from testcontainers.community.kafka import KafkaContainer

        container = (
            KafkaContainer(KAFKA_IMAGE)
            .with_kraft()
            .with_env("KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
            .with_env("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1")
            .with_env("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1")
        )
        return str(self._open.enter_context(container).get_bootstrap_server())

    def _container_registry(self) -> str:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(REGISTRY_IMAGE).with_exposed_ports(8080)
        running = self._open.enter_context(container)
        host = running.get_container_host_ip()
        port = int(running.get_exposed_port(8080))
        wait_until(lambda: accepts_compatibility(host, port), 120, "the schema registry")
        return f"http://{host}:{port}{API_PATH}"


class DatabaseFactory:
    """Makes fresh databases and drops them again, with all that hangs on them."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        # The other one writes 7 MB of WAL, which every walsender of the server then reads.
        self._strategy = sql.SQL("STRATEGY file_copy" if server.major >= 15 else "")
        self._made: list[Database] = []

    def __call__(self, prefix: str = "test") -> Database:
        """A new, empty database whose name begins with ``prefix``."""
        database = Database(f"{prefix}_{uuid.uuid4().hex[:12]}", self._server)
        with psycopg.connect(self._server.dsn(), autocommit=True) as connection:
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE template0 {}").format(
                    sql.Identifier(database.name), self._strategy
                )
            )
        self._made.append(database)
        return database

    def drop_all(self) -> None:
        """Drop what was made: subscriptions first, then slots, then the databases."""
        for database in self._made:
            with database.connect() as connection:
                _drop_subscriptions(connection)
                _roll_back_prepared(connection)
        with psycopg.connect(self._server.dsn(), autocommit=True) as connection:
            for database in self._made:
                _drop_slots(connection, database.name)
            for database in self._made:
                _drop(connection, database.name)
        self._made.clear()


def _drop_subscriptions(connection: Connection) -> None:
    names = connection.execute(
        "SELECT subname FROM pg_subscription s JOIN pg_database d ON d.oid = s.subdbid"
        " WHERE d.datname = current_database()"
    ).fetchall()
    for (name,) in names:
        subscription = sql.Identifier(name)
        connection.execute(sql.SQL("ALTER SUBSCRIPTION {} DISABLE").format(subscription))
        # Its slot may be gone, or in use by somebody else: it is dropped by itself, afterwards.
        connection.execute(
            sql.SQL("ALTER SUBSCRIPTION {} SET (slot_name = NONE)").format(subscription)
        )
        connection.execute(sql.SQL("DROP SUBSCRIPTION {}").format(subscription))


def _roll_back_prepared(connection: Connection) -> None:
    gids = connection.execute(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    ).fetchall()
    for (gid,) in gids:
        connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(gid)))


def _drop_slots(connection: Connection, dbname: str) -> None:
    def none_left() -> bool:
        slots = connection.execute(
            "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = %s", [dbname]
        ).fetchall()
        for name, pid in slots:
            if pid is not None:
                connection.execute("SELECT pg_terminate_backend(%s)", [pid])
            # Its walsender may need a moment to let go; then the next look finds it again.
            with contextlib.suppress(psycopg.errors.ObjectInUse, psycopg.errors.UndefinedObject):
                connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
        return not slots

    wait_until(none_left, 60, f"the slots of {dbname} to be dropped")


def _drop(connection: Connection, dbname: str) -> None:
    dropped = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(dbname))

    def is_dropped() -> bool:
        # The server waits for five seconds until the sessions that it ends have gone.
        with contextlib.suppress(psycopg.errors.ObjectInUse):
            connection.execute(dropped)
            return True
        return False

    wait_until(is_dropped, 60, f"database {dbname} to be dropped")


def _use_containers() -> bool:
    wish = os.environ.get(SERVERS, "")
    choices: dict[str, Callable[[], bool]] = {
        "": _docker_answers,
        "embedded": lambda: False,
        "containers": lambda: True,
    }
    return choices[wish]()


def _docker_answers() -> bool:
    # The client leaks its socket when nobody listens, so look before it does.
    if not _somebody_listens(os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")):
        return False
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=10)
    except DockerException:
        return False
    try:
        return bool(client.ping())
    except (DockerException, OSError):
        return False
    finally:
        client.close()


def _somebody_listens(address: str) -> bool:
    parts = urlsplit(address)
    try:
        if parts.scheme == "unix":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(parts.path)
        else:
            socket.create_connection((parts.hostname, parts.port or 2375), timeout=5).close()
    except OSError:
        return False
    return True
