"""Whom a gateway that starts has to wait for, it names."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.support.gateway_scene import Scene, value_of
from tests.support.servers import Database

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]


def test_the_transactions_that_the_slot_waits_for_are_named(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
    s = scene(
        "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    )
    gid = f"payment-{database.name}"
    with psycopg.connect(database.dsn, application_name="nightly batch") as open_one:
        open_one.execute("INSERT INTO t VALUES (1)")
        with database.connect() as connection:
            connection.execute(f"BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION '{gid}'")
        pid = value_of(open_one, "SELECT pg_backend_pid()")
        where = f"database '{database.name}')"
        names = {
            "open": f"awaited=\"pid {pid} (application 'nightly batch', {where}",
            "prepared": f"awaited=\"prepared transaction '{gid}' ({where}",
        }
        gateway = s.project.start()
        gateway.wait_for("the slot waits for transactions that are still running")
        # It waits for one after the other, in an order of its own.
        first = next(kind for kind, name in names.items() if name in gateway.log())
        for kind in sorted(names, key=lambda kind: kind != first):
            gateway.wait_for(names[kind])
            if kind == "open":
                open_one.commit()
            else:
                with database.connect() as connection:
                    connection.execute(f"COMMIT PREPARED '{gid}'")
    gateway.wait_for("all tables are copied")
    assert gateway.terminate() == 0
    assert s.rebuilt("t") == [(1,), (2,)]
