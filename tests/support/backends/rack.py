"""One PostgreSQL server and one broker for all tests that kill them.

The fixture ``rack`` (``tests/fault/conftest.py``) gives them, up and in order, to one test at a
time; what a test has killed is started again on its data for the next one. Each test has a database
of its own, with the settings it asks for, and names of its own for slots and topics.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import psycopg
from confluent_kafka.admin import AdminClient

from devkit.embedded.kafka import EmbeddedKafka
from devkit.embedded.postgres import EmbeddedPostgres
from tests.support.backends.proxy import Proxy
from tests.support.backends.servers import Database, DatabaseFactory, LocalPostgres
from tests.support.run.environment import memory_folder
from tests.support.run.waiting import wait_until

__all__ = ["Rack", "RackServer"]

_MAJOR: Final = 18
_BROKER: Final = {
    # A transaction that has timed out is ended at once, not within ten seconds.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}


class RackServer:
    """The rack's PostgreSQL server, seen from one test's database.

    Attributes:
        name: Name of the database; unlike that of any other test, so also a prefix for other names.
    """

    def __init__(self, server: EmbeddedPostgres, database: Database) -> None:
        self._server = server
        self._database = database
        self.name = database.name
        self.kill = server.kill
        self.shut_down = server.shut_down
        self.restart = server.restart

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self._server.log

    def dsn(self) -> str:
        """A superuser's connection URI."""
        return self._database.dsn

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A new autocommit connection; the caller closes it."""
        return psycopg.connect(self.dsn(), autocommit=True)


class Rack:
    """Use it with ``with``: it is started at once and stopped afterwards.

    Attributes:
        kafka_proxy: Between clients of ``kafka_proxy.port`` and the broker.
    """

    def __init__(self) -> None:
        self.kafka_proxy = Proxy()
        self.broker = EmbeddedKafka(config=_BROKER, advertised_port=self.kafka_proxy.port)
        self.postgres = EmbeddedPostgres(_MAJOR, parent=memory_folder())
        self.databases = DatabaseFactory(LocalPostgres(self.postgres))

    def __enter__(self) -> Self:
        self.kafka_proxy.__enter__()
        try:
            self.broker.start()
            self.kafka_proxy.forward_to(self.broker.proxied_port)
            self.postgres.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        self.postgres.stop()
        self.broker.stop()
        self.kafka_proxy.close()

    def database(self, **settings: str) -> Database:
        """A database whose sessions, the walsender's too, have these settings."""
        made = self.databases("rack")
        with psycopg.connect(self.postgres.dsn(), autocommit=True) as connection:
            for name, value in settings.items():
                statement = f"ALTER DATABASE {made.name} SET {name} = '{value}'"
                connection.execute(statement.encode())
        return made

    def server(self, **settings: str) -> RackServer:
        """The server, with a database as `database` makes it."""
        return RackServer(self.postgres, self.database(**settings))

    def set_up(self) -> None:
        """Start again what has been killed, and let connections through."""
        if self.postgres.pid is None:
            self.postgres.restart()
        if self.broker.pid is None:
            self.broker.restart()
        self.kafka_proxy.accept()
        self.kafka_proxy.thaw()

    def clear(self) -> None:
        """Drop the databases and the topics of a test that has ended."""
        self.set_up()
        self.databases.drop_all()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})

        def topics() -> list[str]:
            return [t for t in admin.list_topics(timeout=60).topics if not t.startswith("__")]

        if left := topics():
            for deleted in admin.delete_topics(left).values():
                deleted.result()
            wait_until(lambda: not topics(), 60, "the topics to be deleted")
