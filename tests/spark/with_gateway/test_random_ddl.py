"""Random DDL at the source: the Delta tables end as a native subscription's do."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from gateway.core.lsn import parse_lsn
from spark_consumer.errors import FatalConsumerError
from spark_consumer.job.job import run
from spark_consumer.settings import ConsumerSettings
from tests.oracle.ddl.test_changing_publications import published_to
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, Scene, current_lsn, scene
from tests.support.run.waiting import wait_until
from tests.support.workloads.ddl import TABLES, Workload, ddl_of, is_quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

STEPS = int(os.environ.get("PGSLUICE_DDL_STEPS", "12"))
CUTS = 3
"""How often the job looks at what has come."""
UNKNOWN = "catalog did not say|look the same|what its values are now is not in the topic"
"""The errors of `spark_consumer.formats.schema_evolution` that stop a table whose columns the topic
cannot tell."""


def repaired(s: Scene, error: FatalConsumerError, connection: Connection) -> str:
    """Do what the error says where the catalog could not tell any more what a column is.

    Returns the position at which that has been published.
    """
    assert re.search(UNKNOWN, error.message), error
    command = re.search(r"pgsluice (copy \S+ --subscription [^\s)]+)", error.hint or "")
    assert command is not None, error
    ended = s.cli(*command[1].split())
    assert ended.code == 0, ended.err
    end = current_lsn(connection)
    published_to(s, end)
    return end


def test_random_ddl_ends_in_the_native_tables(
    spark: SparkSession,
    scene: Callable[..., Scene],
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
    tmp_path: Path,
    seed: int,
) -> None:
    rng, tables = Random(seed), list(TABLES)
    seen: list[str] = []
    warehouse = tmp_path / "warehouse"

    def consume(endpos: str) -> None:
        settings = ConsumerSettings(
            kafka={"bootstrap.servers": kafka},
            registry_url=registry,
            warehouse=str(warehouse),
            checkpoint=str(tmp_path / "checkpoint"),
            subscriptions=(s.slot,),
            endpos=parse_lsn(endpos),
        )
        assert run(settings, spark, stopping=threading.Event()) == 0, workload.done

    with database.connect() as connection:
        connection.execute(ddl_of(tables).encode())
        connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
        native = NativeSubscription(database, make_database, ddl_of(tables), ["p"])
        s = scene(
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            definitions={"watch_interval_s": 0.5},
        )
        workload = Workload(connection, native, rng, tables)
        process = s.project.start()
        process.wait_until_copied()
        for number in range(1, STEPS + 1):
            workload.step()
            if number % (STEPS // CUTS) == 0:
                seen.append(workload.one_more())
                wait_until(lambda: is_quiet(s, [*tables, *seen]), 120, f"all of {tables}")
                end = current_lsn(connection)
                published_to(s, end)
                for _ in range(len(tables) + 1):  # each may have to be repaired
                    try:
                        consume(end)
                        break
                    except FatalConsumerError as error:
                        end = repaired(s, error, connection)
                else:
                    pytest.fail(f"one table after the other was repaired: {workload.done}")
        native.wait_until_applied(end)
        assert process.terminate() == 0, process.log()

    for table in tables:
        with native.database.connect() as subscriber:
            cursor = subscriber.execute(f"SELECT * FROM {table} LIMIT 0".encode())
            columns = [column.name for column in cursor.description or ()]
        frame = spark.read.format("delta").load(str(warehouse / s.slot / Path(*table.split("."))))
        rows = sorted((tuple(row) for row in frame.select(*columns).collect()), key=repr)
        assert rows == native.rows(table), (table, workload.done)
