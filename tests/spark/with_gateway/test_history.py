"""From PostgreSQL through gateway and job: histories show what a native subscription had.

A run takes one format; ``make test-all`` takes both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.core.lsn import parse_lsn
from spark_consumer.job.job import run
from spark_consumer.settings import ConsumerSettings
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Scene, current_lsn, scene
from tests.support.run.seeds import in_turn
from tests.support.spark.every_format import FORMATS, formats_of, subscriptions
from tests.support.spark.versioned import as_of
from tests.support.workloads.dml import PUBLICATIONS, TABLES, Workload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres]

NATIVE = ("pa", "pb")
NAMES = ("filtered", "bag", "toasted")
"""Tables of which rows come into a filter and go, that have no key, and that have large values."""
STOPS = 15
LAST = """
UPDATE toasted SET b = coalesce(b, 0) + 1; UPDATE toasted SET a = a + 1000; TRUNCATE bag;
INSERT INTO bag VALUES (1, 1, 'x'), (1, 1, 'x'); DELETE FROM filtered;
"""


def test_histories_show_at_each_lsn_the_rows_of_the_native_subscription(
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
            subscriptions=tuple(formats),
            formats=formats,
            history=tuple(f"public.{name}" for name in NAMES),
            endpos=parse_lsn(endpos),
        )
        assert run(settings, spark, stopping=threading.Event()) == 0

    kinds = in_turn(__name__, FORMATS)
    with database.connect() as connection:
        connection.execute(f"{TABLES} {PUBLICATIONS}".encode())
        workload = Workload(connection, seed)
        workload.run(30)
        native = NativeSubscription(database, make_database, TABLES, NATIVE)
        s = scene(PUBLICATIONS + subscriptions("{s}", ", ".join(NATIVE), kinds))
        formats = formats_of(s.slot, kinds)
        s.run_to("0/1")
        begin = end = current_lsn(connection)
        s.run_to(end)
        consume(end)
        states: dict[str, dict[str, list[tuple[Any, ...]]]] = {}
        for number in range(STOPS + 1):
            if number:
                workload.run(4)
            if number == STOPS:
                connection.execute(LAST.encode())
            end = current_lsn(connection)
            native.wait_until_applied(end)
            states[end] = {name: native.rows(name) for name in NAMES}
        s.run_to(end)
        consume(end)

    assert begin in states or len(states) > 1
    for subscription, kind in formats.items():
        for name in NAMES:
            path = tmp_path / "warehouse" / subscription / "public" / f"{name}__history"
            versions = spark.read.format(kind).load(str(path)).collect()
            for lsn, rows in states.items():
                assert as_of(versions, parse_lsn(lsn)) == rows[name], (kind, name, lsn)
            ends = {row["_to_op"] for row in versions}
            assert ends <= {None, "u", "d", "t"}
            live = [row for row in versions if row["_from_op"] != "s"]
            assert all(row["_from_xid"] and row["_from_time"] for row in live), (kind, name)
