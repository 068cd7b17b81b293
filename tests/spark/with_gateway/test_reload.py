"""From PostgreSQL through gateway and job into tables, while the definitions change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.gateway.scene import Scene, current_lsn, scene
from tests.support.spark.every_format import EveryFormat

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, region text, total int);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE customers (id int PRIMARY KEY, name text);
INSERT INTO orders SELECT n, (ARRAY['EU', 'US', NULL])[n % 3 + 1], n
FROM generate_series(1, 90) AS n;
INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 5) AS n;
"""
BEFORE = """
CREATE PUBLICATION p FOR TABLE orders WHERE (region = 'EU');
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""
AFTER = """
CREATE PUBLICATION p FOR TABLE orders WHERE (region = 'US' OR id < 20), TABLE customers;
CREATE PUBLICATION q FOR TABLE orders WHERE (id > 50);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
CREATE SUBSCRIPTION {s}_q CONNECTION '' PUBLICATION q;
"""


def test_rebuilt_tables_follow_changed_definitions(
    spark: SparkSession, scene: Callable[..., Scene], kafka: str, registry: str, tmp_path: Path
) -> None:
    s = scene(BEFORE)
    other = f"{s.slot}_q"

    tables = EveryFormat(spark, tmp_path, kafka, registry)

    with s.connect() as connection:
        connection.execute(TABLES.encode())
        end = current_lsn(connection)
        s.run_to(end)
        tables.complete(end, s.slot)
        assert tables.rows(s.slot, "orders") == s.source_rows(
            "SELECT * FROM orders WHERE region = 'EU'"
        )

        process = s.project.start()
        process.wait_until_copied()
        connection.execute("UPDATE orders SET total = -total WHERE id % 5 = 0")
        s.project.definitions = AFTER.replace("{s}", s.slot)
        ended = s.cli("reload")
        assert ended.code == 0, ended.err
        connection.execute("UPDATE orders SET region = 'US' WHERE id = 1")
        connection.execute("UPDATE orders SET id = id + 1000 WHERE id IN (2, 60)")
        connection.execute("DELETE FROM orders WHERE id IN (3, 4, 61)")
        connection.execute("DELETE FROM customers WHERE id = 1")
        end = current_lsn(connection)
        assert process.terminate() == 0, process.log()
        s.run_to(end)
        tables.complete(end, s.slot, other)

    assert tables.rows(s.slot, "orders") == s.source_rows(
        "SELECT * FROM orders WHERE region = 'US' OR id < 20"
    )
    assert tables.rows(s.slot, "customers") == s.source_rows("SELECT * FROM customers")
    assert tables.rows(other, "orders") == s.source_rows("SELECT * FROM orders WHERE id > 50")
