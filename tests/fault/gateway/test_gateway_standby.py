"""A failover changes nothing: a standby with other definitions says so, and does not take over."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.monitor.test_gateway_monitor import LISTENING, Metrics, Monitored
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    reloads,
    wait_until_confirmed,
    wait_until_slot_is_free,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

BOTH = "CREATE PUBLICATION p FOR TABLE t, u; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
WITHOUT_U = BOTH.replace("t, u", "t")
WORDS = "this standby does not take over: its definitions are not those in force"
REFUSED = ("AccessError",)
TABLES = "CREATE TABLE t (a int PRIMARY KEY); CREATE TABLE u (a int PRIMARY KEY)"


@pytest.fixture
def on_machine(
    tmp_path: Path, database: Database, kafka: str, registry: str
) -> Iterator[Callable[..., Scene]]:
    """Make a gateway's files on a machine of its own: ``on_machine("a", definitions, role)``."""
    made: list[Scene] = []
    limits = {"feedback_interval_s": 0.5, "progress_interval_s": 0.2}
    extra: dict[str, Any] = {**LISTENING, "limits": limits}

    def make(name: str, definitions: str, role: str = "") -> Scene:
        slot = f"gw_{database.name}"
        dsn = make_conninfo(database.dsn, user=role) if role else database.dsn
        made.append(Scene(tmp_path / name, dsn, kafka, registry, slot, definitions, extra))
        return made[-1]

    yield make
    for one in made:
        one.close()


def is_ready(gateway: Monitored) -> bool:
    return gateway.get("/readyz")[0] == 200


def _is_refused(gateway: Monitored) -> bool:
    return _shows_refused(gateway.metrics())


def _shows_refused(page: Metrics) -> bool:
    return page.get("access_refused", {}).get(()) == 1


def test_a_standby_with_other_definitions_waits_until_they_are_those_in_force_or_are_to_count(
    on_machine: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES)
        a, b = on_machine("a", BOTH), on_machine("b", WITHOUT_U)
        leader = Monitored(a.project.start())
        leader.process.wait_until_copied()
        before = reloads(a)
        standby = Monitored(b.project.start())
        wait_until(lambda: WORDS in standby.get("/readyz")[1], 60, "the standby to compare")

        assert standby.get("/readyz")[0] == 503
        assert standby.get("/healthz")[0] == 200
        assert standby.metrics()["takeover_refused"][()] == 1
        assert leader.metrics()["takeover_refused"][()] == 0

        def problems() -> list[tuple[str, str]]:
            found = standby.status().get("problems", [])
            return [(problem["severity"], problem["message"]) for problem in found]

        # Its poll of the server is up to five seconds old, as from when the leader copied.
        wait_until(lambda: problems() == [("act", WORDS)], 60, "the standby to see the server")
        page = standby.get("/")[1]
        assert WORDS in page and "there is something to do" in page
        assert standby.process.log().count("this standby does not take over") == 1
        status = b.cli("status")
        assert status.code == 75
        assert "the definitions file differs from the definitions in force" in status.out
        assert a.cli("status").code == 0
        wait_until(leader.status_without_problems, 60, "the leader's page to show no problem")

        leader.process.kill()
        wait_until_slot_is_free(connection, a.slot)
        connection.execute("INSERT INTO t VALUES (1); INSERT INTO u VALUES (1)")
        unread = "no gateway reads the slot"
        wait_until(lambda: unread in standby.get("/status")[1], 60, "the standby to see it")
        assert WORDS in standby.get("/readyz")[1]
        assert reloads(a) == before
        assert "u: ready" in a.cli("status").out

        b.project.definitions = a.project.definitions
        b.project.write()
        standby.process.wait_until_doing("streaming")
        wait_until(lambda: is_ready(standby), 60, "it to be ready")
        wait_until_confirmed(connection, a.slot)
        assert reloads(a) == before
        assert a.rebuilt("u") == a.rebuilt("t") == [(1,)]

        a.project.definitions = WITHOUT_U.replace("{s}", a.slot)
        third = Monitored(a.project.start())
        wait_until(lambda: WORDS in third.get("/readyz")[1], 60, "the third to compare")
        os.kill(third.process.pid, signal.SIGHUP)
        wait_until(lambda: is_ready(third), 60, "its definitions to count")
        standby.process.kill()
        third.process.wait_until_doing("streaming")
        connection.execute("INSERT INTO t VALUES (2); INSERT INTO u VALUES (2)")
        wait_until_confirmed(connection, a.slot)
        tables = json.loads(a.cli("status", "--json").out)["tables"]
        assert [table["table"] for table in tables] == ["public.t"]
        assert third.process.terminate() == 0, third.process.log()
        assert a.rebuilt("u") == [(1,)]
        assert a.rebuilt("t") == [(1,), (2,)]


def test_a_gateway_that_has_led_and_stands_by_with_other_definitions_waits_for_its_right(
    on_machine: Callable[..., Scene], database: Database
) -> None:
    role = f"role_{database.name}"
    with database.connect() as connection:
        connection.execute(TABLES)
        connection.execute(f"CREATE ROLE {role} SUPERUSER LOGIN".encode())

        def end_sessions(where: str) -> None:
            of_role = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {where}"
            connection.execute(of_role.encode(), [role])

        try:
            a, b = on_machine("a", BOTH, role), on_machine("b", BOTH)
            first = Monitored(a.project.start())
            first.process.wait_until_copied()
            second = Monitored(b.project.start())
            wait_until(lambda: is_ready(second), 60, "the second to stand by")
            os.kill(first.process.pid, signal.SIGSTOP)
            try:
                end_sessions("usename = %s AND backend_type = 'walsender'")
                second.process.wait_until_doing("streaming")
            finally:
                os.kill(first.process.pid, signal.SIGCONT)
            first.process.wait_until_doing("standby")
            b.project.definitions = WITHOUT_U.replace("{s}", a.slot)
            assert b.cli("reload").code == 0
            wait_until(lambda: WORDS in first.get("/readyz")[1], 60, "the first to compare")
            a.project.definitions = b.project.definitions
            a.project.write()
            wait_until(lambda: is_ready(first), 60, "the first to read its file again")

            connection.execute(f"ALTER ROLE {role} NOLOGIN".encode())
            end_sessions("usename = %s")
            first.process.wait_for("is not permitted to log in")
            wait_until(lambda: _is_refused(first), 60, "it to be said")
            before = errors = first.metrics()["errors_total"]
            while errors[REFUSED] < before[REFUSED] + 3:
                page = first.metrics()
                errors = page["errors_total"]
                # Only an attempt that ended otherwise may have taken it back.
                ended_otherwise = {**errors, REFUSED: 0} != {**before, REFUSED: 0}
                assert _shows_refused(page) or ended_otherwise, (errors, first.process.log())
            connection.execute(f"ALTER ROLE {role} LOGIN".encode())
            wait_until(lambda: is_ready(first), 60, "the first to stand by again")
            wait_until(lambda: not _is_refused(first), 60, "it to be taken back")
            assert first.process.terminate() == second.process.terminate() == 0
        finally:
            a.close()
            b.close()
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
