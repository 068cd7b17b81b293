"""The same definitions natively and through the gateway: tables compared, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.backends.servers import Connection, Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import GatewayProject, TopicReader
from tests.support.gateway.scene import current_lsn
from tests.support.models.rebuild import Rebuilt

Phase = Callable[[Connection], None]


@dataclass(frozen=True)
class Subscriber:
    """One subscription.

    Attributes:
        tables: Name to the definitions of its columns, as the subscriber has them.
        constraints: Further statements for the native subscriber.
    """

    publications: tuple[str, ...]
    tables: Mapping[str, str]
    constraints: str = ""

    def ddl(self) -> str:
        """The tables of the native subscriber."""
        made = [f"CREATE TABLE {name} ({columns});" for name, columns in self.tables.items()]
        return " ".join([*made, self.constraints])


@dataclass(frozen=True)
class NativeScene:
    """Place of a comparison; both sides start from what the source holds then."""

    database: Database
    make_database: DatabaseFactory
    kafka: str
    registry: str
    folder: Path

    def compare(
        self,
        publications: str,
        subscribers: Mapping[str, Subscriber],
        phases: Iterable[Phase],
    ) -> None:
        """Run `phases` under native subscriptions and under the gateway; their tables must agree.

        The gateway is stopped and started again between phases.
        """
        names = {name: f"{name}_{self.database.name}" for name in subscribers}
        definitions = publications + "".join(
            f"CREATE SUBSCRIPTION {names[name]} CONNECTION '' PUBLICATION "
            f"{', '.join(subscriber.publications)};"
            for name, subscriber in subscribers.items()
        )
        project = GatewayProject(
            self.folder,
            self.database.dsn,
            self.kafka,
            self.registry,
            f"gw_{self.database.name}"[-50:],
            definitions,
        )
        with self.database.connect() as connection:
            connection.execute(publications.encode())
            natives = {
                name: NativeSubscription(
                    self.database, self.make_database, subscriber.ddl(), subscriber.publications
                )
                for name, subscriber in subscribers.items()
            }
            try:
                project.run_to("0/1")
                for phase in phases:
                    phase(connection)
                    end = current_lsn(connection)
                    project.run_to(end)
                    for native in natives.values():
                        native.wait_until_applied(end)
            finally:
                project.stop_all()
        with TopicReader(self.kafka, self.registry) as reader:
            for name, subscriber in subscribers.items():
                for table in subscriber.tables:
                    columns = _columns(natives[name], table)
                    rebuilt = Rebuilt().apply(reader.read(f"{names[name]}.public.{table}"))
                    natively = natives[name].rows(table)
                    assert natively, f"{name}: {table} is empty, which shows nothing"
                    difference = _difference(rebuilt.rows(columns), natively)
                    assert not difference, f"{name}: {table}\n{difference}"


def _difference(rebuilt: list[tuple[Any, ...]], natively: list[tuple[Any, ...]]) -> str:
    """Say what differs, if anything does: the first rows that only one side has."""
    here, there = Counter(map(repr, rebuilt)), Counter(map(repr, natively))
    sides = {"only rebuilt": here - there, "only natively": there - here}
    return "\n".join(
        f"{side}: {row[:300]}" for side, rows in sides.items() for row in sorted(rows)[:5]
    )


def _columns(native: NativeSubscription, table: str) -> Sequence[str]:
    with native.database.connect() as connection:
        cursor = connection.execute(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum",
            [table],
        )
        return [row[0] for row in cursor]
