"""Whom a gateway has to wait for, it names: in the log, to `pgsluice status`, over HTTP."""

from __future__ import annotations

import signal
from collections.abc import Callable

import psycopg
import pytest

from tests.integration.monitor.test_gateway_monitor import Monitored
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    value_of,
    wait_for_copy_marker,
)
from tests.support.run.waiting import wait_until

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
            "open": f"pid {pid} (application 'nightly batch', {where}",
            "prepared": f"prepared transaction '{gid}' ({where}",
        }
        gateway = s.project.start()
        gateway.wait_for("the slot waits for transactions that are still running")

        def awaited() -> list[str]:
            log = gateway.log()
            return [kind for kind, name in names.items() if f'awaited="{name}' in log]

        # It waits for one after the other, in an order of its own, also for those of other tests.
        (first,) = wait_until(awaited, 60, "one of these to be awaited")
        shown = s.cli("status")
        assert shown.code == 75
        waits = "for now: the slot waits for transactions that are still running: "
        assert waits + names[first] in shown.out
        for kind in sorted(names, key=lambda kind: kind != first):
            gateway.wait_for(f'awaited="{names[kind]}')
            if kind == "open":
                open_one.commit()
            else:
                with database.connect() as connection:
                    connection.execute(f"COMMIT PREPARED '{gid}'")
    gateway.wait_until_copied()
    assert gateway.terminate() == 0
    assert s.rebuilt("t") == [(1,), (2,)]


def test_those_that_a_copy_and_a_reload_wait_for_are_named(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        connection.execute("CREATE TABLE u (a int PRIMARY KEY)")
    one = "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    more = (
        "CREATE PUBLICATION q FOR TABLE u; CREATE SUBSCRIPTION {s}_u CONNECTION '' PUBLICATION q;"
    )
    s = scene(one, http={"listen": "127.0.0.1:0"})
    gid = f"payment-{database.name}"
    gateway = Monitored(s.project.start())
    gateway.process.wait_until_copied()
    with psycopg.connect(database.dsn, application_name="nightly batch") as open_one:
        open_one.execute("SELECT pg_current_xact_id()")
        with database.connect() as connection:
            connection.execute(f"BEGIN; INSERT INTO t VALUES (2); PREPARE TRANSACTION '{gid}'")
        pid = value_of(open_one, "SELECT pg_backend_pid()")
        names = [
            f"pid {pid} (application 'nightly batch', database '{database.name}')",
            f"prepared transaction '{gid}' (database '{database.name}')",
        ]
        waits = "the copy waits for transactions that are still running"
        assert s.cli("copy", "t", "--no-wait").code == 0
        gateway.process.wait_for(waits)

        def are_in_a_line(text: str) -> bool:
            return any(
                waits in line and all(name in line for name in names) for line in text.splitlines()
            )

        def said() -> list[str]:
            """Places that do not name both; those of other tests are awaited, too, and may be
            open until they themselves are named somewhere."""
            awaited = [w["awaited"] for w in gateway.status()["waits"] if w["task"] == "copy"]
            counted = gateway.metrics().get("awaited_transactions", {}).get(("copy",), 0)
            places = {
                "log": are_in_a_line(gateway.process.log()),
                "status": are_in_a_line(s.cli("status").out),
                "gateway's status": any(set(names) <= set(each) for each in awaited),
                "page": waits in gateway.get("/")[1],
                "metrics": counted >= 2,
            }
            return [place for place, is_said in places.items() if not is_said]

        wait_until(lambda: said() == [], 60, "both to be named everywhere")
    with database.connect() as connection:
        connection.execute(f"COMMIT PREPARED '{gid}'")
    wait_until(lambda: s.cli("status").code == 0, 60, "the copy to be made")
    with psycopg.connect(database.dsn, application_name="a migration") as open_one:
        open_one.execute("LOCK TABLE u IN SHARE MODE")
        pid = value_of(open_one, "SELECT pg_backend_pid()")
        named = f"pid {pid} (application 'a migration', database '{database.name}')"
        waits = f"changed definitions wait for transactions that are still running: {named}"
        s.project.definitions = (one + more).replace("{s}", s.slot)
        s.project.write()
        gateway.process.send(signal.SIGHUP)
        wait_until(lambda: waits in s.cli("status").out, 60, "the wait of the reload")
        gateway.process.wait_for(
            f"wait for locks on the tables that are to come in, held by {named}"
        )
    wait_for_copy_marker(s, "u", "ready", f"{s.slot}_u")
    assert gateway.process.terminate() == 0
    assert s.rebuilt("t") == [(2,)]
