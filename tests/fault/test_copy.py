"""Tables that are copied while everything in them changes, and the gateway is killed meanwhile."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from devkit.embedded.postgres import EmbeddedPostgres
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    reader_pid,
    running,
    value_of,
    wait_for_copy_marker,
)
from tests.support.run.majors import alternating
from tests.support.workloads.copy import ALL, PUBLICATIONS, SOME, CopyLoad

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

MakeScene = Callable[..., Scene]
ROWS = int(os.environ.get("PGSLUICE_COPY_ROWS", "6000"))
CHUNKS = 40


@alternating(__name__, 16, 18)
def test_a_copy_that_is_killed_again_and_again_ends_in_the_native_subscriptions_tables(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, seed: int
) -> None:
    pick = random.Random(seed)
    load = CopyLoad(database, seed, ROWS)
    with database.connect() as connection:
        connection.execute(f"{load.tables} {PUBLICATIONS}".encode())
        load.fill(connection)
        s = scene(
            f"{PUBLICATIONS}"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p_all, p_root;"
            "CREATE SUBSCRIPTION {s}_some CONNECTION '' PUBLICATION p_some;",
            copy={"chunk_rows": max(50, ROWS // CHUNKS)},
        )
        native = NativeSubscription(database, make_database, load.tables, ("p_all", "p_root"))
        some = NativeSubscription(database, make_database, load.tables, ("p_some",))
        with ExitStack() as stack:
            for worker in range(3):
                stack.enter_context(running(partial(load.change, worker)))
            gateway = s.project.start()
            for _ in range(5):
                gateway.wait_until_doing("streaming")
                Event().wait(pick.random() * 3)  # a moment, not a condition
                gateway.kill()
                gateway = s.project.start()
            gateway.wait_until_copied(300)
            gateway.kill()
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)
        some.wait_until_applied(end)
    for table in (*ALL, "tree"):
        assert s.rebuilt(table) == native.rows(table), table
    for table, width in SOME.items():
        rows = sorted((row[:width] for row in some.rows(table)), key=repr)
        assert s.rebuilt(table, f"{s.slot}_some") == rows, table
    assert_exactly_once(s, (*ALL, "tree"))


def test_the_slot_is_not_idle_while_tables_are_copied(
    tmp_path: Path, kafka: str, registry: str
) -> None:
    limit = {"idle_replication_slot_timeout": "1s"}
    with EmbeddedPostgres(18, config=limit) as server, server.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        connection.execute("INSERT INTO t SELECT generate_series(1, 4000)")
        s = Scene(
            tmp_path,
            server.dsn(),
            kafka,
            registry,
            f"idle_{server.port}",
            "CREATE PUBLICATION p FOR TABLE t;CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            {"copy": {"rows_per_second": 1000}},
        )
        with closing(s):
            gateway = s.project.start()
            wait_for_copy_marker(s, "t", "copying")
            reading = reader_pid(connection, s.slot)
            gateway.wait_until_copied()
            connection.execute("CHECKPOINT")  # this is when idle slots are invalidated
            invalid = "SELECT invalidation_reason FROM pg_replication_slots WHERE slot_name = %s"
            assert value_of(connection, invalid, s.slot) is None
            assert reader_pid(connection, s.slot) == reading
            assert gateway.terminate() == 0
            assert s.rebuilt("t") == s.source_rows("SELECT * FROM t")
