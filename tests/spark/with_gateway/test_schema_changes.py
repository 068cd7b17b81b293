"""ALTER TABLE on the source, a table for each kind: what the Delta table and a subscriber end as.

The native subscriber's owner does the same ALTER TABLE there, which is what PostgreSQL asks of him.
With the event trigger a run takes one format; ``make test-all`` takes both.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.core.lsn import parse_lsn
from gateway.source.provisioning.event_trigger import INSTALL
from schemas.settings.tables import TableFormatName
from spark_consumer.errors import FatalConsumerError
from spark_consumer.job.job import run
from spark_consumer.settings import ConsumerSettings
from tests.oracle.ddl.test_changing_publications import published_to, started
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, Scene, current_lsn, scene
from tests.support.run.seeds import in_turn
from tests.support.run.waiting import wait_until
from tests.support.spark.every_format import FORMATS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]


@dataclass(frozen=True)
class Kind:
    """What is done to a table, and what becomes of the Delta table.

    Attributes:
        alters: After ``ALTER TABLE name``.
        columns: Of the table, beside its key ``a``; all take numbers.
        key: Of ``a``.
        held: The reason for which the table is held; empty when it is not.
        copies: How often it is copied.
    """

    alters: tuple[str, ...]
    columns: str = "b int, c text"
    key: str = "PRIMARY KEY"
    held: str = ""
    copies: int = 1


FOLLOWED = {
    "followed": Kind(
        (
            "ADD d timestamptz DEFAULT '2001-02-03 04:05:06+00'",
            "ADD e int",
            "RENAME b TO f",
            "DROP c",
            "ADD c text DEFAULT 'again'",
            "DROP g",
            "ADD g bigint DEFAULT 99",
        ),
        "b int, c text, g int",
        copies=2,  # c and g are other columns now
    ),
    "replaced": Kind(("DROP c", "RENAME b TO c"), "b text, c text"),
    "rekeyed": Kind(
        ("DROP CONSTRAINT rekeyed_pkey", "ADD PRIMARY KEY (b)"), "b int NOT NULL, c text", copies=2
    ),
    "identified": Kind(("REPLICA IDENTITY FULL", "ADD d int DEFAULT 5")),
    "bag": Kind(("ADD d int DEFAULT 5", "DROP c"), key=""),
}
TOLD = FOLLOWED | {
    "moved": Kind(("SET ACCESS METHOD another", "ALTER b SET DEFAULT 5")),
    "rewritten": Kind(
        (
            "ALTER b TYPE int USING b + 1000",
            "ALTER c TYPE bigint USING c * 10000000000",
            "ALTER d TYPE text USING upper(d || 'x')",
            "ALTER e TYPE numeric(10,1)",
            "ALTER f TYPE varchar(2) USING right(f, 2)",
            "ADD h bigserial",
        ),
        "b int, c int, d varchar, e numeric(10,2), f text",
        copies=2,
    ),
}
"""Where an event trigger on the source has the stream tell of rewritten tables."""
UNTOLD = {
    "narrowed": Kind(("ALTER b TYPE numeric(6,2)",), "b numeric(10,2)", copies=2),
    "volatile": Kind(("ADD d bigserial",), copies=2),
    "rounded": Kind(("ALTER b TYPE numeric(10,1)",), "b numeric(10,2)", copies=2),
    "exchanged": Kind(
        ("RENAME b TO d", "RENAME c TO b", "RENAME d TO c"),
        "b text, c text",
        held="exchanged their names",
    ),
    "cut": Kind(("ALTER c TYPE varchar(2) USING right(c, 2)",), copies=2),
}
KINDS = TOLD | UNTOLD


def made(tables: list[str]) -> str:
    """The tables; those without a key have REPLICA IDENTITY FULL."""
    statements = ["CREATE ACCESS METHOD another TYPE TABLE HANDLER heap_tableam_handler;"]
    for name in tables:
        kind = KINDS[name]
        statements.append(f"CREATE TABLE {name} (a int {kind.key}, {kind.columns});")
        if not kind.key:
            statements.append(f"ALTER TABLE {name} REPLICA IDENTITY FULL;")
    return "".join(statements)


def write(connection: Connection, tables: list[str], first: int) -> None:
    """Rows of all tables, by columns that they always have, or by their places."""
    for name in tables:
        columns = connection.execute(f"SELECT * FROM {name} LIMIT 0".encode()).description or ()
        names = ", ".join(column.name for column in columns[:2])
        for a in (first, first + 1, first + 2):
            connection.execute(f"INSERT INTO {name} ({names}) VALUES ({a}, {a})".encode())
        connection.execute(f"UPDATE {name} SET a = a + 1000 WHERE a = {first + 1}".encode())
        connection.execute(f"DELETE FROM {name} WHERE a IN ({first + 2}, {first - 8})".encode())


@pytest.mark.parametrize(
    ("told", "table_format"),
    [*((True, kind) for kind in in_turn(__name__, FORMATS)), (False, "delta")],
)
def test_each_kind_of_change_ends_in_the_native_table_or_holds_the_table(
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
    tmp_path: Path,
    told: bool,
    table_format: TableFormatName,
) -> None:
    tables = list(TOLD if told else UNTOLD)
    warehouse = tmp_path / "warehouse"

    def consume(endpos: str) -> None:
        settings = ConsumerSettings(
            kafka={"bootstrap.servers": kafka},
            registry_url=registry,
            warehouse=str(warehouse),
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=(s.slot,),
            format=table_format,
            endpos=parse_lsn(endpos),
        )
        assert run(settings, spark, stopping=threading.Event()) == 0

    def alter() -> None:
        statements = [f"ALTER TABLE {t} {alter}" for t in tables for alter in KINDS[t].alters]
        for one in (native.database, database):
            with one.connect() as server:
                server.execute("; ".join(statements).encode())
        if "moved" in tables:
            connection.execute("VACUUM FULL moved")
            connection.execute("CLUSTER moved USING moved_pkey")

    with database.connect() as connection:
        connection.execute(f"{made(tables)} {INSTALL if told else ''}".encode())
        for name in tables:
            rows = "generate_series(1, 6) AS n"
            values = ", ".join("n" for _ in range(2 + KINDS[name].columns.count(", ")))
            connection.execute(f"INSERT INTO {name} SELECT {values} FROM {rows}".encode())
        connection.execute(f"CREATE PUBLICATION p FOR TABLE {', '.join(tables)}".encode())
        native = NativeSubscription(database, make_database, made(tables), ["p"])
        s = scene(
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            definitions={"watch_interval_s": 0.5},
        )
        process = started(s)
        write(connection, tables, 10)
        native.wait_until_applied(end := current_lsn(connection))
        published_to(s, end)
        consume(end)
        alter()
        write(connection, tables, 20)
        end = current_lsn(connection)
        published_to(s, end)
        # Without the trigger the watch finds the rewritten tables.
        wait_until(lambda: copies(s) == {t: KINDS[t].copies for t in tables}, 60, "copies")
        wait_until(lambda: s.cli("status").out.count(": ready") == len(tables), 60, "copies")
        published_to(s, end := current_lsn(connection))
        if told:
            consume(end)
        else:
            with pytest.raises(FatalConsumerError) as failed:
                consume(end)
            found = held(failed.value)
            assert found == {name: kind.held for name, kind in UNTOLD.items() if kind.held}
            for table in found:
                assert s.cli("copy", table, "--subscription", s.slot).code == 0
            published_to(s, end := current_lsn(connection))
            consume(end)
        native.wait_until_applied(end)
        assert process.terminate() == 0, process.log()

    for table in tables:
        path = warehouse / s.slot / "public" / table
        frame = spark.read.format(table_format).load(str(path))
        assert rebuilt(frame, native, table) == native.rows(table), table


def copies(s: Scene) -> dict[str, int]:
    """How many have begun, by table."""
    ready = [m["copy"]["table"] for m in s.markers() if m["kind"] == "COPY" and
             m["copy"]["state"] == "ready"]  # fmt: skip
    return {table: ready.count(table) for table in ready}


def held(error: FatalConsumerError) -> dict[str, str]:
    """The tables that are held, and which of the expected reasons each has."""
    found = {}
    for table, reason in re.findall(
        r"table public\.(\S+) is held by the job: (.*?)(?:;|$)", error.message
    ):
        expected = KINDS[table].held
        found[table] = expected if expected and expected in reason else reason
        assert f"pgsluice copy public.{table} --subscription" in (error.hint or "")
    return found


def rebuilt(frame: DataFrame, native: NativeSubscription, table: str) -> list[tuple[Any, ...]]:
    with native.database.connect() as subscriber:
        cursor = subscriber.execute(f"SELECT * FROM {table} LIMIT 0".encode())
        columns = [column.name for column in cursor.description or ()]
    rows = frame.select(*columns).collect()
    return sorted((tuple(map(_plain, row)) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value
