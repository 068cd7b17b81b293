"""A right of the role that is withdrawn while the gateway runs, and given back."""

from __future__ import annotations

from collections.abc import Callable
from html import unescape

import psycopg
import pytest

from gateway.source.session.connection import connect
from gateway.source.session.search_path import withheld_schemas
from tests.integration.monitor.test_gateway_monitor import LISTENING, Monitored
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, wait_until_confirmed
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t, u; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
TABLES = (
    "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1);"
    "CREATE TABLE u (a int PRIMARY KEY); INSERT INTO u VALUES (1)"
)


def test_a_role_that_may_not_replicate_any_more_is_told_everywhere_until_it_may(
    scene: Callable[..., Scene], database: Database
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
            gateway.process.wait_until_copied()
            words = f"role {role} may not replicate"

            def said() -> list[str]:
                """Places that do not name the refused access, or have the wrong code."""
                status, (ready, body) = s.cli("status"), gateway.get("/readyz")
                problems = gateway.status().get("problems", [])
                acts = [p["message"] for p in problems if p["severity"] == "act"]
                places = {
                    "status": f"to do: {words}" in status.out.splitlines() and status.code == 1,
                    "gateway's status": words in acts,
                    "page": words in unescape(gateway.get("/")[1]),
                    "metrics": gateway.metrics().get("access_refused", {}).get(()) == 1,
                    "readiness": words in body,
                    "503": ready == 503,
                    "log": words in gateway.process.log(),
                }
                return [place for place, is_said in places.items() if not is_said]

            connection.execute(f"ALTER ROLE {role} NOREPLICATION".encode())
            # The stream that there is goes on; the next one could not begin.
            wait_until(lambda: said() == ["503", "log"], 60, "it to be said before it does harm")
            connection.execute("INSERT INTO t VALUES (2)")
            wait_until_confirmed(connection, s.slot)
            connection.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                " WHERE slot_name = %s",
                [s.slot],
            )
            wait_until(lambda: said() == [], 60, "it to be said everywhere")
            connection.execute("INSERT INTO u VALUES (2)")

            connection.execute(f"ALTER ROLE {role} REPLICATION".encode())
            wait_until(lambda: s.cli("status").code == 0, 60, "the status to be all well")
            wait_until(lambda: gateway.get("/readyz") == (200, "ok: streaming\n"), 60, "readiness")
            wait_until_confirmed(connection, s.slot)
            refused = {(): 0.0}
            wait_until(lambda: gateway.metrics().get("access_refused") == refused, 60, "metrics")
            assert gateway.process.terminate() == 0, gateway.process.log()
            assert s.rebuilt("t") == s.rebuilt("u") == [(1,), (2,)]
        finally:
            s.close()
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_tables_of_a_schema_that_may_not_be_used_any_more_end_nothing(
    scene: Callable[..., Scene], database: Database
) -> None:
    role = f"role_{database.name}"
    with database.connect() as connection:
        connection.execute(TABLES)
        connection.execute(
            "CREATE SCHEMA s; CREATE TABLE s.v (a int PRIMARY KEY); INSERT INTO s.v VALUES (1);"
            "CREATE TABLE s.new (a int PRIMARY KEY); INSERT INTO s.new VALUES (1)"
        )
        connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION".encode())
        connection.execute(
            f"GRANT USAGE ON SCHEMA public, s TO {role};"
            f"GRANT SELECT ON t, u, s.v, s.new TO {role};"
            f"REVOKE USAGE ON SCHEMA public FROM PUBLIC".encode()
        )
        try:
            dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
            listed = "TABLE t, u WHERE (a > 0), s.v WHERE (a > 0)"
            s = scene(
                DEFINITIONS.replace("TABLE t, u", listed),
                source={"dsn": dsn},
                definitions={"watch_interval_s": 0.5},
            )
            for statement in s.cli("check", "--sql").out.splitlines():
                connection.execute(statement.encode())
            gateway = s.project.start()
            gateway.wait_until_copied()

            connection.execute(f"REVOKE USAGE ON SCHEMA public, s FROM {role}".encode())
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", [role]
            )
            connection.execute(
                "INSERT INTO t VALUES (2); INSERT INTO u VALUES (2); INSERT INTO s.v VALUES (2)"
            )
            held = [f"public.u of subscription {s.slot} is held", f"s.v of subscription {s.slot}"]
            wait_until(lambda: all(one in s.cli("status").out for one in held), 20, "the filters")
            wait_until_confirmed(connection, s.slot, 20)
            s.project.definitions = s.project.definitions.replace("s.v", "s.new, s.v")
            statement = f'ALTER PUBLICATION "{s.slot}_leaf" ADD TABLE s.new'
            connection.execute(statement.encode())
            reloaded, status = s.cli("reload"), s.cli("status")

            assert reloaded.code == 0, reloaded.err
            assert "s.new: held, permission denied for schema s" in status.out, status.out
            connection.execute(f"GRANT USAGE ON SCHEMA public, s TO {role}".encode())
            wait_until(lambda: s.cli("status").code == 0, 60, "all to be copied")
            assert gateway.terminate() == 0, gateway.log()
            assert s.rebuilt("t") == s.rebuilt("u") == [(1,), (2,)]
            assert "public.t" not in str(
                [line for line in gateway.log().split("\n") if "held" in line]
            )
        finally:
            s.close()
            connection.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_a_name_without_a_schema_is_no_published_table_of_another_schema(
    scene: Callable[..., Scene], database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("CREATE SCHEMA other; CREATE TABLE other.t (a int PRIMARY KEY)")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE other.t;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
        )
        gateway = s.project.start()
        gateway.wait_until_copied()
        s.project.definitions += (
            "CREATE PUBLICATION q FOR TABLE t;"
            f"CREATE SUBSCRIPTION {s.slot}_q CONNECTION '' PUBLICATION q;"
        )

        reloaded = s.cli("reload")

        assert reloaded.code == 1
        assert 'relation "t" does not exist' in reloaded.err


@pytest.mark.parametrize(
    ("path", "withheld"),
    [
        ("public, s", ["s"]),
        ('"S, 1"  ,"a""b",public', ["S, 1", 'a"b']),
        ('"$user", nowhere, S', ["s"]),
        ("''", []),
    ],
)
def test_schemas_of_a_search_path_that_may_not_be_used_are_found_as_postgresql_reads_it(
    database: Database, path: str, withheld: list[str]
) -> None:
    role = f"role_{database.name}"
    with database.connect() as connection:
        connection.execute('CREATE SCHEMA s; CREATE SCHEMA "S, 1"; CREATE SCHEMA "a""b"')
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        try:
            connection.execute(f"ALTER ROLE {role} SET search_path = {path}".encode())
            dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
            with connect(dsn) as session:
                assert sorted(withheld_schemas(session)) == sorted(withheld)
        finally:
            connection.execute(f"DROP ROLE {role}".encode())
