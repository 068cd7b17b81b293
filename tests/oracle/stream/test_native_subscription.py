"""The topics, folded by their contract, hold what a native subscription's tables hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import GatewayProject, TopicReader
from tests.support.models.rebuild import Rebuilt
from tests.support.run.majors import alternating
from tests.support.workloads.dml import FIRST, PUBLICATIONS, SECOND, TABLES, Workload

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

TRANSACTIONS = int(os.environ.get("PGSLUICE_TRANSACTIONS", "400"))

FIRST_TABLES = ("keyed", "filtered", "whole", "bag", "indexed", "toasted", "appended", "parted")
SECOND_TABLES = ("parted_low", "parted_high", "keyed", "filtered", "toasted")


@alternating(__name__, 16, 18)
def test_a_random_workload_ends_in_the_native_subscriptions_tables(
    database: Database,
    make_database: DatabaseFactory,
    kafka: str,
    registry: str,
    tmp_path: Path,
    seed: int,
) -> None:
    first, second = f"first_{database.name}", f"second_{database.name}"
    with database.connect() as connection:
        connection.execute(f"{TABLES} {PUBLICATIONS}".encode())
        workload = Workload(connection, seed)
        workload.run(TRANSACTIONS // 4)
        natives = {
            first: NativeSubscription(database, make_database, TABLES, FIRST),
            second: NativeSubscription(database, make_database, TABLES, SECOND),
        }
        definitions = (
            f"{PUBLICATIONS}"
            f"CREATE SUBSCRIPTION {first} CONNECTION '' PUBLICATION {', '.join(FIRST)};"
            f"CREATE SUBSCRIPTION {second} CONNECTION '' PUBLICATION {', '.join(SECOND)};"
        )
        project = GatewayProject(
            tmp_path, database.dsn, kafka, registry, f"gw_{database.name}", definitions
        )
        try:
            gateway = project.start()
            gateway.wait_until_copied()
            workload.run(TRANSACTIONS // 2)
            gateway.kill()
            workload.run(TRANSACTIONS // 4)
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            project.run_to(row[0])
            for native in natives.values():
                native.wait_until_applied(row[0])
        finally:
            project.stop_all()

    with TopicReader(kafka, registry) as reader:
        for name, tables in ((first, FIRST_TABLES), (second, SECOND_TABLES)):
            for table in tables:
                rebuilt = Rebuilt().apply(reader.read(f"{name}.public.{table}"))
                assert rebuilt.rows() == natives[name].rows(table), f"{name}: {table}"
