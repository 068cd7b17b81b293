"""What is refused is said at once, in the same words wherever somebody looks, and ends nothing."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.integration.monitor.test_gateway_monitor import LISTENING, Monitored
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, value_of, wait_until_confirmed
from tests.support.run.waiting import wait_until, within

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
TABLES = (
    "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1);"
    "CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (1)"
)


def test_refused_definitions_are_told_everywhere_until_an_owner_has_run_the_sql(
    scene: MakeScene, database: Database
) -> None:
    role = f"role_{database.name}"
    with database.connect() as connection:
        connection.execute(TABLES)
        connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION".encode())
        connection.execute(f"GRANT SELECT ON t, u TO {role}".encode())
        try:
            dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
            s = scene(DEFINITIONS, source={"dsn": dsn}, **LISTENING)
            for statement in s.cli("check", "--sql").out.splitlines():
                connection.execute(statement.encode())
            gateway = Monitored(s.project.start())
            wait_until(lambda: s.cli("status").code == 0, 60, "t to be copied")

            s.project.definitions = s.project.definitions.replace("FOR TABLE t", "FOR TABLE t, u")
            with within(60, "the command"):  # not the timeout of 600 s
                reloaded = s.cli("reload")
            assert reloaded.code == 1, reloaded.err
            words = "must be owner of"
            assert words in reloaded.err and "changed definitions are refused since" in reloaded.err
            s.cli("reload")

            status, checked = s.cli("status"), s.cli("check")
            assert (status.code, checked.code) == (1, 1), status.out + checked.out
            assert "to do: changed definitions are refused since" in status.out
            assert words in status.out

            def is_unready() -> bool:
                code, body = gateway.get("/readyz")
                return code == 503 and words in body

            wait_until(is_unready, 60, "the gateway to say so, a report of the loop later")
            refused_since = gateway.metrics()["definitions_refused_since_seconds"][()]
            assert abs(refused_since - time.time()) < 600
            (problem,) = [p for p in gateway.status()["problems"] if p["severity"] == "act"]
            assert problem["message"] in status.out

            statements = s.cli("check", "--sql").out.splitlines()
            assert statements
            assert {f"  -> {one}" for one in statements} <= set(status.out.splitlines())
            for statement in statements:
                connection.execute(statement.encode())
            assert s.cli("reload").code == 0
            # It may look a second time at the catalog that the statements have changed.
            wait_until(lambda: s.cli("status").code == 0, 60, "the status to be all well")
            assert s.cli("check").code == 0
            wait_until(lambda: gateway.get("/readyz")[0] == 200, 60, "the gateway to be ready")
            assert gateway.metrics()["definitions_refused_since_seconds"][()] == 0
            assert gateway.process.terminate() == 0
            log = gateway.process.log()
            assert log.count("changed definitions are refused, the old ones stay in force") == 1
            assert log.count("definitions are no longer refused") == 1
            assert s.rebuilt("u") == [(1,)]
        finally:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_a_copy_of_a_table_that_may_not_be_read_is_refused_by_name_and_others_go_on(
    scene: MakeScene, database: Database
) -> None:
    role = f"role_{database.name}"
    with database.connect() as connection:
        connection.execute(TABLES)
        connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION".encode())
        connection.execute(f"GRANT SELECT ON t, u TO {role}".encode())
        try:
            dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
            both = DEFINITIONS.replace("FOR TABLE t", "FOR TABLE t, u")
            s = scene(both, source={"dsn": dsn}, definitions={"watch_interval_s": 0.5})
            for statement in s.cli("check", "--sql").out.splitlines():
                connection.execute(statement.encode())
            connection.execute(f"REVOKE SELECT ON u FROM {role}".encode())
            process = s.project.start()
            reason = "held, permission denied for table public.u"

            def is_held() -> bool:
                # It is pending again for a moment whenever the gateway tries its copy.
                status = s.cli("status")
                return reason in status.out and status.code == 1

            wait_until(is_held, 60, "u to be held")

            connection.execute(f"GRANT SELECT ON u TO {role}".encode())
            wait_until(lambda: "u: ready" in s.cli("status").out, 60, "u to be copied")
            connection.execute(f"REVOKE SELECT ON t FROM {role}".encode())
            asked = s.cli("copy", "t")
            assert asked.code == 1
            assert "table public.t cannot be copied: permission denied" in asked.err
            connection.execute("ALTER TABLE u ENABLE ROW LEVEL SECURITY")
            asked = s.cli("copy", "u")
            assert asked.code == 1
            assert "row security hides rows of public.u" in asked.err

            connection.execute("INSERT INTO t VALUES (2); INSERT INTO u VALUES (2)")
            wait_until_confirmed(connection, s.slot)
            assert process.terminate() == 0, process.log()
            assert s.rebuilt("t") == s.rebuilt("u") == [(1,), (2,)]
        finally:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_what_a_start_cannot_do_is_said_by_check_as_well_and_leaves_nothing_behind(
    scene: MakeScene, database: Database, tmp_path: Path
) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.write_text("")
    with database.connect() as connection, socket.socket() as taken:
        connection.execute(TABLES)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        s = scene(
            DEFINITIONS,
            gateway={"spool_directory": str(not_a_folder)},
            http={"listen": f"127.0.0.1:{taken.getsockname()[1]}"},
        )
        spool = {"PGSLUICE_GATEWAY__SPOOL_DIRECTORY": str(tmp_path)}

        checked, run = s.cli("check"), s.cli("run", "--endpos", "0/1")
        port = s.cli("run", "--endpos", "0/1", environment=spool)

        assert (checked.code, run.code, port.code) == (1, 1, 1)
        assert f"{not_a_folder} is not a folder" in checked.out
        assert f"{not_a_folder} is not a folder" in run.err
        assert "Address already in use" in checked.out
        assert "Address already in use" in port.err
        assert value_of(connection, "SELECT count(*) FROM pg_publication") == 0
        assert (
            value_of(
                connection, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s", s.slot
            )
            == 0
        )
        assert s.reader.topics(s.slot) == []
