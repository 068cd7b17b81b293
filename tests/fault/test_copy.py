"""Tables that are copied while everything in them changes, and the gateway is killed meanwhile."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from threading import Event

import pytest

from tests.copy_load import ALL, PUBLICATIONS, SOME, CopyLoad
from tests.gateway_scene import Scene, assert_exactly_once, current_lsn, running
from tests.native import NativeSubscription
from tests.servers import Database, DatabaseFactory

pytestmark = [pytest.mark.postgres, pytest.mark.kafka, pytest.mark.slow]

MakeScene = Callable[..., Scene]
ROWS = int(os.environ.get("PGSLUICE_COPY_ROWS", "6000"))
CHUNKS = 40


@pytest.mark.parametrize("postgres_major", [16, 18], indirect=True)
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
        with ExitStack() as stack:
            for worker in range(3):
                stack.enter_context(running(partial(load.change, worker)))
            native = NativeSubscription(database, make_database, load.tables, ("p_all", "p_root"))
            some = NativeSubscription(database, make_database, load.tables, ("p_some",))
            gateway = s.project.start()
            for _ in range(5):
                gateway.wait_for("streaming")
                Event().wait(pick.random() * 3)  # a moment, not a condition
                gateway.kill()
                gateway = s.project.start()
            gateway.wait_for("all tables are copied", 300)
            gateway.kill()
        native.wait_until_copied()
        some.wait_until_copied()
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
