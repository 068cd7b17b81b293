"""``pgsluice verify`` of tables with masked columns, their keys among them, while writes go on."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from gateway.commands.consume import consumer_settings
from gateway.config import load_settings
from spark_consumer.job.job import run
from tests.support.backends.servers import Database
from tests.support.gateway.scene import IN_TIME, Scene, running, scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE people WHERE (salary > 20), bag;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
TABLES = """
CREATE TABLE people (ssn numeric(10, 2) PRIMARY KEY, name text, born date, salary int, note text,
    rises time, sums int[], tags text[]);
ALTER TABLE people ALTER note SET STORAGE EXTERNAL;
ALTER TABLE people REPLICA IDENTITY FULL;
CREATE TABLE bag (x text, n int);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO people SELECT n, 'name ' || n, '1987-06-05', n % 100, repeat(n::text, 3000),
    '24:00', ARRAY[[n, n]], ARRAY['tag ' || n]
    FROM generate_series(1, 200) AS n;
INSERT INTO bag SELECT 'bag ' || n % 5, n % 2 FROM generate_series(1, 30) AS n;
"""
WRITES = (
    "UPDATE people SET salary = (random() * 99)::int WHERE ssn = {a}",
    "UPDATE people SET ssn = ssn + 1000 WHERE ssn = {a}",
    "UPDATE people SET name = name || '!' WHERE ssn = {a}",
    "DELETE FROM people WHERE ssn = {a}",
    "INSERT INTO people VALUES ({a}, 'new', now(), 50, 'short') ON CONFLICT DO NOTHING",
    "INSERT INTO bag VALUES ('bag {a}', 3)",
    "UPDATE bag SET x = x || '!' WHERE n = 1",
    "DELETE FROM bag WHERE x LIKE '%!!'",
)
MASKS = {
    "people.ssn": "hash",
    "people.name": "truncate(6)",
    "people.born": "hash",
    "people.note": "null",
    "people.rises": "hash",
    "people.sums": "null",
    "people.tags": "hash",
    "bag.x": "hash",
}


def test_masked_tables_are_verified_while_writes_go_on(
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGSLUICE_COLUMNS__HASH_KEY", "a key of the tests, of forty characters.")
    s = scene(
        DEFINITIONS,
        copy={"chunk_rows": 40},
        types={"time": "native", "arrays": "native"},
        consumer={
            "warehouse": str(tmp_path / "warehouse"),
            "checkpoint": str(tmp_path / "checkpoint"),
            "trigger_interval_s": 0.5,
        },
    )
    masks = {f"{s.slot}.public.{name}": mask for name, mask in MASKS.items()}
    s.project.extra = {**s.project.extra, "columns": {"masks": masks}}
    settings = consumer_settings(load_settings(s.project.write()), [s.slot], None)
    with database.connect() as connection:
        connection.execute(TABLES.encode())

    def job(stop: threading.Event) -> None:
        assert run(settings, spark, stopping=stop) == 0

    def write(stop: threading.Event) -> None:
        chance = random.Random(seed)
        with s.connect() as writer:
            while not stop.wait(0.3):
                with suppress(psycopg.errors.UniqueViolation), writer.transaction():
                    for statement in chance.choices(WRITES, k=3):
                        writer.execute(statement.format(a=chance.randrange(1, 201)).encode())

    gateway = s.project.start()
    gateway.wait_until_copied()
    with running(job):
        with running(write):
            verified = s.cli("verify", *IN_TIME)
        monkeypatch.setenv(
            "PGSLUICE_COLUMNS__HASH_KEY", "another key, of forty characters or more."
        )
        other = s.cli("verify", *IN_TIME)
    assert gateway.terminate() == 0

    assert verified.code == 0, verified.out + verified.err
    assert f"{s.slot}: 2 of 2 tables equal the source at " in verified.out
    assert other.code == 1
    shown = re.findall(r"^ +\((.*)\)$", other.out, re.MULTILINE)
    assert len(shown) > len(MASKS)
    assert [row for row in shown if not re.search(r"[0-9a-f]{64}|\(64 bytes\)", row)] == []
    assert "bag " not in other.out
