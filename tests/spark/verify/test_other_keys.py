"""``pgsluice verify`` of tables whose records have other keys, while writes go on."""

from __future__ import annotations

import random
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
    "CREATE PUBLICATION p FOR TABLE orders, bag;"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, customer int, note text);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE bag (customer int, n int);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO orders SELECT n, n % 9, 'note ' || n FROM generate_series(1, 100) AS n;
INSERT INTO bag SELECT n % 9, n % 2 FROM generate_series(1, 30) AS n;
"""
WRITES = (
    "UPDATE orders SET customer = nullif({a} % 9, 3) WHERE id = {a}",
    "UPDATE orders SET id = id + 1000 WHERE id = {a}",
    "UPDATE orders SET note = note || '!' WHERE customer = {a}",
    "DELETE FROM orders WHERE id = {a}",
    "INSERT INTO orders VALUES ({a}, 4, 'new') ON CONFLICT DO NOTHING",
    "UPDATE bag SET n = {a} WHERE n = 1",
    "INSERT INTO bag VALUES (5, 1)",
)


def test_tables_under_other_keys_are_verified_while_writes_go_on(
    spark: SparkSession, scene: Callable[..., Scene], database: Database, tmp_path: Path, seed: int
) -> None:
    s = scene(
        DEFINITIONS,
        topics={"partitions": 3},
        consumer={
            "warehouse": str(tmp_path / "warehouse"),
            "checkpoint": str(tmp_path / "checkpoint"),
            "trigger_interval_s": 0.5,
        },
        **{
            "topics.keys": {"public.orders": ["customer"], "public.bag": ["customer"]},
            "topics.partition_by": {"public.bag": ["n"]},
        },
    )
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
                        writer.execute(statement.format(a=chance.randrange(1, 101)).encode())

    gateway = s.project.start()
    gateway.wait_until_copied()
    with running(job), running(write):
        verified = s.cli("verify", *IN_TIME)
    assert gateway.terminate() == 0

    assert verified.code == 0, verified.out + verified.err
    assert f"{s.slot}: 2 of 2 tables equal the source at " in verified.out
