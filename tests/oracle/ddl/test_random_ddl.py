"""A random workload of DDL and rows, with the gateway down for stretches, beside a native judge.

``PGSLUICE_DDL_STEPS=500`` makes it longer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import pytest

from gateway.source.provisioning.event_trigger import INSTALL
from tests.oracle.ddl.test_changing_publications import published_to
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.process import GatewayProcess
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.models.rebuild import Rebuilt
from tests.support.run.majors import EVALUATED_ON
from tests.support.run.waiting import wait_until
from tests.support.workloads.ddl import TABLES, Alterations, Workload, ddl_of, is_quiet, toggle

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

STEPS = int(os.environ.get("PGSLUICE_DDL_STEPS", "24"))


MakeScene = Callable[..., Scene]


def test_random_ddl_ends_in_the_native_tables(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, seed: int
) -> None:
    _play(scene, database, make_database, seed, Workload, "FOR ALL TABLES", "")


def test_random_alterations_of_a_publication_end_in_the_native_tables(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, seed: int
) -> None:
    listed = f"FOR TABLE {', '.join(TABLES)}"
    # A table that is copied again, for it was rewritten, has what was not published in between.
    told = f"{INSTALL} ALTER EVENT TRIGGER pgsluice_rewritten DISABLE;"
    _play(scene, database, make_database, seed, Alterations, listed, told)


def _play(
    scene: MakeScene,
    database: Database,
    make_database: DatabaseFactory,
    seed: int,
    kind: type[Workload],
    published: str,
    before: str,
) -> None:
    rng, tables = Random(seed), list(TABLES)
    ddl = ddl_of(tables)
    with database.connect() as connection:
        connection.execute(f"{ddl} {before}".encode())
        connection.execute(f"CREATE PUBLICATION p {published}".encode())
        native = NativeSubscription(database, make_database, ddl, ["p"])
        s = scene(
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            definitions={"watch_interval_s": 0.5},
        )
        workload = kind(connection, native, rng, tables)
        process: GatewayProcess | None = s.project.start()
        assert process is not None
        process.wait_until_copied()
        for _ in range(STEPS):
            workload.step()
            if process is None or rng.random() < 0.2:
                process = toggle(s, process, rng)
        process = process or s.project.start()
        shown = [*tables, workload.one_more()]
        try:
            wait_until(lambda: is_quiet(s, shown), 120, f"all of {shown} after {workload.done}")
        except AssertionError as late:
            late.add_note(f"{s.cli('status')}\n{process.log()}")
            raise
        end = current_lsn(connection)
        published_to(s, end)
        native.wait_until_applied(end)
        assert process.terminate() == 0, process.log()

    for table in tables:
        with native.database.connect() as subscriber:
            cursor = subscriber.execute(f"SELECT * FROM {table} LIMIT 0".encode())
            columns = [column.name for column in cursor.description or ()]
        rebuilt = Rebuilt().apply(s.reader.read(f"{s.slot}.{table}")).rows(columns)
        assert rebuilt == native.rows(table), (table, workload.done)
