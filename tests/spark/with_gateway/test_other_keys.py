"""From PostgreSQL through gateway and job into Delta, under other keys than the identity's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.core.lsn import parse_lsn
from spark_consumer.formats.delta.session import APPLICATION
from spark_consumer.job.job import run
from spark_consumer.settings import ConsumerSettings
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Scene, current_lsn, scene
from tests.support.workloads.dml import PUBLICATIONS, Workload
from tests.support.workloads.keys import IDENTITIES, KEYS, NATIVE, PARTITION_BY, TABLES, chosen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

MOVES = """
DELETE FROM keyed WHERE a >= 900; INSERT INTO keyed VALUES (900, 1), (901, 2), (902, 3);
UPDATE keyed SET b = b + 1 WHERE a >= 900; UPDATE keyed SET b = b + 1 WHERE a = 900;
UPDATE keyed SET a = 903, b = 7 WHERE a = 902; DELETE FROM keyed WHERE a = 901;
DELETE FROM whole WHERE a >= 900; DELETE FROM filtered WHERE a < 0;
INSERT INTO whole VALUES (900, 9, 'x'), (901, 5, NULL);
UPDATE whole SET b = b - 2 WHERE a >= 900;
UPDATE whole SET b = b + 1, c = c || 'y' WHERE a >= 900;
UPDATE whole SET a = a + 10 WHERE a >= 900;
INSERT INTO filtered VALUES (-1, 7), (-2, 7), (-3, 7);
UPDATE filtered SET a = -4 WHERE a = -3;
UPDATE filtered SET b = 8 WHERE a = -1;
DELETE FROM filtered WHERE a = -2;
INSERT INTO bag VALUES (1, 5), (1, 5), (2, 5); UPDATE bag SET b = 6 WHERE a = 1;
"""


def test_tables_under_other_keys_are_those_of_the_native_subscription(
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    seed: int,
    tmp_path: Path,
) -> None:
    def consume(endpos: str) -> None:
        settings = ConsumerSettings(
            kafka={"bootstrap.servers": s.project.bootstrap},
            registry_url=s.project.registry,
            warehouse=str(tmp_path / "warehouse"),
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=(s.slot,),
            endpos=parse_lsn(endpos),
        )
        assert run(settings, spark, stopping=threading.Event()) == 0

    def rebuilt(table: str) -> list[tuple[Any, ...]]:
        path = tmp_path / "warehouse" / s.slot / "public" / table
        frame = spark.read.format("delta").load(str(path))
        return sorted((tuple(row) for row in frame.collect()), key=repr)

    def writer(table: str) -> str:
        """Metadata of the newest commit, which names its writer."""
        log = tmp_path / "warehouse" / s.slot / "public" / table / "_delta_log"
        first = max(log.glob("*.json")).read_text().splitlines()[0]
        return str(json.loads(first)["commitInfo"]["engineInfo"])

    with database.connect() as connection:
        connection.execute(f"{TABLES} {PUBLICATIONS}".encode())
        native = NativeSubscription(database, make_database, TABLES, NATIVE)
        s = scene(
            f"{PUBLICATIONS}"
            f"CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION {', '.join(NATIVE)};",
            topics={"partitions": 3},
            **{"topics.keys": chosen(KEYS), "topics.partition_by": chosen(PARTITION_BY)},
        )
        s.run_to("0/1")
        workload = Workload(connection, seed)
        for _ in range(2):
            workload.run(60)
            connection.execute(MOVES.encode())
            end = current_lsn(connection)
            s.run_to(end)
            consume(end)
            native.wait_until_applied(end)
            for table in IDENTITIES:
                rows = rebuilt(table)
                assert rows == native.rows(table), table
                # A table that a TRUNCATE leaves empty is emptied by Spark.
                assert not rows or writer(table) == APPLICATION, "by the driver, not by Spark"
