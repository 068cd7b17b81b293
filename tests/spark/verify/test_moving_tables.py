"""``pgsluice verify`` of a table whose rows other tables select, while they move."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.commands.consume import consumer_settings
from gateway.config import load_settings
from spark_consumer.job.job import run
from tests.support.backends.servers import Database
from tests.support.gateway.scene import IN_TIME, Ended, Scene, cli, running, scene
from tests.support.run.seeds import in_turn
from tests.support.run.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

EU = "customer IN (SELECT id FROM customers WHERE region = 'EU')"
DEFINITIONS = (
    f"CREATE PUBLICATION p FOR TABLE orders WHERE ({EU});"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
LOST = 77
"""An order that is to be missed: of a customer who stays elsewhere."""
TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, customer int, note text);
ALTER TABLE customers REPLICA IDENTITY FULL; ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO customers SELECT n, CASE WHEN n % 2 = 0 THEN 'EU' ELSE 'US' END
    FROM generate_series(1, 30) AS n;
INSERT INTO orders SELECT n, n % 30 + 1, 'note ' || n FROM generate_series(1, 600) AS n;
INSERT INTO customers VALUES (99, 'US'); UPDATE orders SET customer = 99 WHERE id = 77;
"""
PLAIN = "CREATE TABLE customers (id int PRIMARY KEY, region text);"
PARTITIONED = """
CREATE TABLE customers (id int, region text) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF customers FOR VALUES FROM (MINVALUE) TO (16);
CREATE TABLE high PARTITION OF customers FOR VALUES FROM (16) TO (MAXVALUE);
ALTER TABLE low REPLICA IDENTITY FULL; ALTER TABLE high REPLICA IDENTITY FULL;
"""
WRITES = (
    "UPDATE customers SET region = CASE region WHEN 'EU' THEN 'US' ELSE 'EU' END WHERE id = {a}",
    "UPDATE customers SET region = CASE region WHEN 'EU' THEN 'US' ELSE 'EU' END WHERE id = {b}",
    "UPDATE orders SET customer = {a} WHERE id % 30 = {b} AND id <> 77",
    "UPDATE orders SET note = note || '!' WHERE id % 30 = {a}",
    "DELETE FROM orders WHERE id = {a} * {b} AND id <> 77",
)
SELDOM = 60
"""Number of writes, ten a second at most, after which a partition comes or goes."""
COMES_AND_GOES = (
    "ALTER TABLE customers DETACH PARTITION low",
    "ALTER TABLE customers ATTACH PARTITION low FOR VALUES FROM (MINVALUE) TO (16)",
)


def kind_of(customers: str) -> str:
    return "partitioned" if customers is PARTITIONED else "plain"


@pytest.mark.parametrize("customers", in_turn(__name__, [PLAIN, PARTITIONED]), ids=kind_of)
def test_rows_on_the_move_are_no_difference_and_a_missing_one_is(
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    tmp_path: Path,
    seed: int,
    customers: str,
) -> None:
    s = scene(
        DEFINITIONS,
        copy={"chunk_rows": 40},
        definitions={"watch_interval_s": 0.2},
        consumer={
            "warehouse": str(tmp_path / "warehouse"),
            "checkpoint": str(tmp_path / "checkpoint"),
            "trigger_interval_s": 0.5,
        },
    )
    settings = consumer_settings(load_settings(s.project.write()), [s.slot], None)
    with database.connect() as connection:
        connection.execute(f"{customers} {TABLES}".encode())

    changes: list[str] = []

    def job(stop: threading.Event) -> None:
        assert run(settings, spark, stopping=stop) == 0

    def write(stop: threading.Event) -> None:
        chance = random.Random(seed)
        come_and_go = itertools.cycle(COMES_AND_GOES)
        with s.connect() as writer:
            for number in itertools.takewhile(lambda _: not stop.wait(0.1), itertools.count(1)):
                a, b = chance.randrange(1, 31), chance.randrange(30)
                writer.execute(chance.choice(WRITES).format(a=a, b=b).encode())
                gateway.log()  # it logs much of that, and would stand still with a full pipe
                # Rarely enough that rows that have to move for it have moved before the next time.
                if customers is PARTITIONED and number % SELDOM == 0:
                    changes.append(next(come_and_go))
                    writer.execute(changes[-1].encode())

    gateway = s.project.start()
    gateway.wait_until_copied()
    with running(job), running(write):
        if customers is PARTITIONED:
            wait_until(lambda: changes, 60, "a partition to go")

        def verify_while_partitions_move() -> Ended | None:
            before = len(changes)
            found = s.cli("verify", *IN_TIME)
            is_enough = found.code or customers is PLAIN or len(changes) > before
            return found if is_enough else None

        # On a fast machine it can end before the next partition comes or goes.
        verified = wait_until(verify_while_partitions_move, 60, "partitions to come or go")
        assert verified is not None
        # In a file of its own: the gateway reads its file again when a partition comes or goes.
        definitions = s.project.definitions.replace(f"({EU})", f"({EU} OR id = {LOST})")
        (tmp_path / "other").mkdir()
        project = replace(s.project, folder=tmp_path / "other", definitions=definitions)
        other = cli("verify", *IN_TIME, "--config", str(project.write()))

        def moves() -> int:
            return sum(marker["kind"] == "MOVE" for marker in s.markers())

        wait_until(lambda: moves() > 4, 60, "rows to move")
    assert gateway.terminate() == 0

    assert verified.code == 0, verified.out + verified.err
    assert f"{s.slot}: 1 of 1 tables equal the source at " in verified.out
    assert other.code == 1, other.out
    assert f"    1 missing:\n      ({LOST})\n" in other.out, other.out
    assert "unexpected" not in other.out and "other values" not in other.out
