"""``pgsluice verify`` while writes go on: against the source, and against a native subscription."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from gateway.commands.consume import consumer_settings
from gateway.commands.verify import source as source_module
from gateway.commands.verify.source import SourceReader, SourceTable
from gateway.config import load_settings
from gateway.copy import Snapshot
from gateway.copy.lines import CopyRow
from spark_consumer.job.job import run
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import IN_TIME, Connection, Scene, running, scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

PUBLICATIONS = """
CREATE PUBLICATION p FOR TABLE orders WHERE (region = 'EU' OR abs(qty) > 90), bag;
CREATE PUBLICATION log FOR TABLE log WITH (publish = 'insert');
"""
TABLES = """
CREATE TABLE orders (id numeric(10, 2), half real, region text, qty int, ordered timestamptz,
    big text, PRIMARY KEY (half, id));
ALTER TABLE orders ALTER big SET STORAGE EXTERNAL;
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE bag (x int, y text);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE log (id int PRIMARY KEY);
"""
ROWS = """
INSERT INTO orders SELECT n, n / 2.0, CASE WHEN n % 3 = 0 THEN 'US' ELSE 'EU' END, n % 100,
    '2001-02-03 04:05:06.789+00'::timestamptz + n * interval '1 s', repeat(n::text, 3000)
    FROM generate_series(1, 300) AS n;
INSERT INTO bag SELECT n % 7, CASE WHEN n % 2 = 0 THEN 'even' END FROM generate_series(1, 50) AS n;
INSERT INTO log VALUES (1);
"""
WRITES = (
    "UPDATE orders SET qty = (random() * 99)::int WHERE id = {a}",
    "UPDATE orders SET region = CASE region WHEN 'EU' THEN 'US' ELSE 'EU' END WHERE id = {a}",
    "UPDATE orders SET id = id + 1000 WHERE id = {a}",
    "UPDATE orders SET id = id - 1000 WHERE id = {a} + 1000",
    "DELETE FROM orders WHERE id = {a}",
    "INSERT INTO orders VALUES ({a}, {a} / 2.0, 'EU', {b}, now(), 'new') ON CONFLICT DO NOTHING",
    "INSERT INTO bag VALUES ({a} % 7, 'odd')",
    "UPDATE bag SET y = y || '!' WHERE x = {a} % 7",
    "DELETE FROM bag WHERE x = {b} % 7 AND y LIKE '%!!'",
)


def writing(connect: Callable[[], Connection], seed: int) -> Callable[[threading.Event], None]:
    """Writes in small transactions until it is told to stop."""

    def work(stop: threading.Event) -> None:
        chance = random.Random(seed)
        with connect() as connection:
            while not stop.wait(0.3):
                with suppress(psycopg.errors.UniqueViolation), connection.transaction():
                    for statement in chance.choices(WRITES, k=3):
                        a, b = chance.randrange(1, 301), chance.randrange(100)
                        connection.execute(statement.format(a=a, b=b).encode())

    return work


def restless(connect: Callable[[], Connection], reads: list[str]) -> type[SourceReader]:
    """Reads as verify does, and each time it has read a table without a key, empties it."""

    class Restless(SourceReader):
        def snapshot_rows(self, source: SourceTable) -> tuple[Snapshot, Iterator[CopyRow]]:
            snapshot, rows = super().snapshot_rows(source)

            def read() -> Iterator[CopyRow]:
                yield from rows
                reads.append(str(source.table))
                with connect() as connection:
                    connection.execute(f"TRUNCATE {source.table}".encode())

            return snapshot, read()

    return Restless


def test_tables_are_verified_while_writes_go_on(
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[str] = []
    s = scene(
        f"{PUBLICATIONS} CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p, log;",
        copy={"chunk_rows": 40},
        consumer={
            "warehouse": str(tmp_path / "warehouse"),
            "checkpoint": str(tmp_path / "checkpoint"),
            "trigger_interval_s": 0.5,
        },
    )
    settings = consumer_settings(load_settings(s.project.write()), [s.slot], None)
    with database.connect() as connection:
        for statements in (TABLES, ROWS, PUBLICATIONS):
            connection.execute(statements.encode())
    native = NativeSubscription(database, make_database, TABLES, ["p", "log"])

    def job(stop: threading.Event) -> None:
        try:
            assert run(settings, spark, stopping=stop) == 0
        except Exception:
            logging.exception("the job has ended")
            raise

    gateway = s.project.start()
    gateway.wait_until_copied()
    with running(job):
        with running(writing(s.connect, seed)):
            source = s.cli("verify", *IN_TIME)
            assert source.code == 0, source.out + source.err
            assert f"{s.slot}: 2 of 2 tables equal the source at " in source.out
            natively = s.cli("verify", *IN_TIME, "--native", native.database.dsn)
            assert natively.code == 0, natively.out + natively.err
            assert f"{s.slot}: 3 of 3 tables equal the native subscriber at " in natively.out
        log = s.cli("verify", *IN_TIME, "--table", "log")
        with monkeypatch.context() as patch:
            patch.setattr(source_module, "SourceReader", restless(s.connect, reads))
            bag = s.cli("verify", *IN_TIME, "--table", "public.bag")
        s.project.definitions = s.project.definitions.replace("region = 'EU'", "region = 'US'")
        both = ("--table", "public.orders", "--table", "public.bag")
        other = s.cli("verify", *IN_TIME, *both)
    tables = s.cli("tables")
    late = s.cli("verify", "--timeout", "1", "--table", "public.orders")
    assert gateway.terminate() == 0

    assert tables.code == 0
    assert f"subscription: {s.slot}\n" in tables.out
    assert "table public.orders: ready, version " in tables.out
    first = source.out.splitlines()[0]
    assert first.startswith(f"{s.slot}: public.log: not compared: its publications do not publish")
    assert source.out.endswith("; 1 cannot be compared\n")
    for line in ("reading the source table=public.bag number=1 of=2", "comparing table=public.bag"):
        assert line in source.err
    assert log.code == 1
    assert "none of these tables can be compared with the source" in log.err
    assert "public.log: not compared: its publications do not publish delete and update" in log.out
    assert bag.code == 1
    assert "public.bag: not compared: it was truncated or copied again meanwhile" in bag.out
    assert reads == ["public.bag"] * 4
    assert late.code == 75
    assert ", and do not reach " in late.err
    assert other.code == 1
    assert "public.orders: different: " in other.out and "public.bag: equal: " in other.out
    assert " missing:\n" in other.out and " unexpected:\n" in other.out
