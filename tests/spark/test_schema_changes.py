"""ALTER TABLE on the source: the Delta table ends as the source is, or is set aside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.lsn import parse_lsn
from spark_consumer.config import ConsumerSettings
from spark_consumer.errors import FatalConsumerError
from spark_consumer.job import run
from tests.support.gateway_scene import Scene, current_lsn, scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE keyed, bag, rewritten;
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""
TABLES = """
CREATE TABLE keyed (id int PRIMARY KEY, b int, c text, d text);
CREATE TABLE bag (x int, y text);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE rewritten (id int PRIMARY KEY, b int);
INSERT INTO keyed SELECT n, n, 'c' || n, 'd' || n FROM generate_series(1, 6) AS n;
INSERT INTO bag VALUES (1, 'a'), (1, 'a'), (2, 'b'), (3, NULL);
INSERT INTO rewritten VALUES (1, 1), (2, 2);
"""
CHANGES = [
    "INSERT INTO keyed VALUES (7, 7, 'c7', 'd7')",
    "ALTER TABLE keyed ADD COLUMN added timestamptz DEFAULT '2001-02-03 04:05:06+00'",
    "ALTER TABLE keyed RENAME COLUMN c TO renamed",
    "ALTER TABLE keyed DROP COLUMN b",
    "ALTER TABLE keyed ADD COLUMN b int DEFAULT 99",
    "ALTER TABLE keyed DROP COLUMN d",
    "ALTER TABLE keyed ADD COLUMN d text",
    "UPDATE keyed SET renamed = 'changed' WHERE id = 2",
    "DELETE FROM keyed WHERE id = 3",
    "INSERT INTO keyed (id) VALUES (8)",
    "ALTER TABLE bag ADD COLUMN z int DEFAULT 5",
    "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE x = 1)",
    "UPDATE bag SET z = 6 WHERE x = 2",
    "ALTER TABLE bag DROP COLUMN y",
    "DELETE FROM bag WHERE x = 3",
    "INSERT INTO bag VALUES (1, 5)",
    "ALTER TABLE rewritten ADD COLUMN c double precision DEFAULT random()",
    "INSERT INTO rewritten VALUES (3, 3)",
]


def test_tables_follow_alter_table_and_stop_where_the_topic_does_not_have_the_values(
    spark: SparkSession, scene: Callable[..., Scene], kafka: str, registry: str, tmp_path: Path
) -> None:
    s = scene(DEFINITIONS)

    def consume(endpos: str) -> None:
        settings = ConsumerSettings(
            kafka={"bootstrap.servers": kafka},
            registry_url=registry,
            warehouse=str(tmp_path / "warehouse"),
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=(s.slot,),
            endpos=parse_lsn(endpos),
        )
        assert run(settings, spark, stopping=threading.Event()) == 0

    def rebuilt(table: str, columns: str) -> list[tuple[Any, ...]]:
        path = tmp_path / "warehouse" / s.slot / "public" / table
        frame = spark.read.format("delta").load(str(path)).selectExpr(*columns.split(", "))
        return sorted((tuple(row) for row in frame.collect()), key=repr)

    with s.connect() as connection:
        connection.execute(TABLES.encode())
        end = current_lsn(connection)
        s.run_to(end)
        consume(end)
        for statement in CHANGES:
            connection.execute(statement.encode())
            if not statement.startswith("ALTER"):
                # The catalog is not ahead of the stream then.
                s.run_to(end := current_lsn(connection))

        with pytest.raises(FatalConsumerError, match="'c' came with values that PostgreSQL"):
            consume(end)

    assert rebuilt("keyed", "id, renamed, unix_micros(added), b, d") == s.source_rows(
        "SELECT id, renamed, (extract(epoch FROM added) * 1000000)::int8, b, d FROM keyed"
    )
    assert rebuilt("bag", "x, z") == s.source_rows("SELECT x, z FROM bag")
    assert rebuilt("rewritten", "*") == [(1, 1), (2, 2)]
