"""Large batches of rows that have no key, or get another one, in little driver heap."""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import eq
from pathlib import Path
from typing import Any

import polars
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.support.backends.servers import Database
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Scene, current_lsn, scene

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow]

ROWS = int(os.environ.get("PGSLUICE_HEAP_ROWS", "100000"))
HEAP_MB = ROWS // 250 + 80
"""2 GB for half a million rows; Spark itself wants 450 MB at least."""
TABLES = """
CREATE TABLE keyed (id int PRIMARY KEY, note text);
CREATE TABLE keyless (id int, note text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
"""


def test_many_rows_without_a_key_and_with_another_one_take_little_heap(
    scene: Callable[..., Scene], database: Database, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    s = scene(
        "CREATE PUBLICATION p FOR TABLE keyed, keyless;"
        " CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        consumer={"warehouse": str(warehouse), "checkpoint": str(tmp_path / "checkpoint")},
        **{"consumer.spark": {"spark.driver.memory": f"{HEAP_MB}m"}},
    )
    with database.connect() as connection:
        connection.execute(TABLES)
        for table in ("keyed", "keyless"):
            connection.execute(
                f"INSERT INTO {table} SELECT n, 'note ' || n % 1000"
                f" FROM generate_series(1, {ROWS}) n".encode()
            )
        s.run_to(current_lsn(connection))
        with connection.transaction():
            connection.execute(f"UPDATE keyed SET id = id + {ROWS}".encode())
            connection.execute("UPDATE keyless SET note = note || '!'")
        end = current_lsn(connection)
        s.run_to(end)

        path = str(s.project.write())
        with GatewayProcess(["consume", "--config", path, "--endpos", end]) as job:
            assert job.wait(900) == 0, job.log()

        for table in ("keyed", "keyless"):
            query = f"SELECT id, note FROM {table} ORDER BY id".encode()
            expected = connection.execute(query).fetchall()
            rebuilt = rows(warehouse / s.slot / "public" / table)
            assert len(rebuilt) == len(expected) == ROWS
            # Not by ==, whose report would compare all rows once more.
            assert all(map(eq, rebuilt, expected)), f"other rows in {table}"


def rows(path: Path) -> list[tuple[Any, ...]]:
    """The rows of a Delta table by ``id``, read without a Spark session.

    The test needs none beside that of its job, and runs in any of the processes of a run.
    """
    found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT id, note FROM t")
    return sorted(polars.DataFrame(found).rows())
