"""The event triggers run nobody else's code, and nobody else can write or delay what they do."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from devkit.embedded.postgres import EmbeddedPostgres
from gateway.core.errors import SlotBusyError
from gateway.runtime.lifecycle.leadership import lock_first_start
from gateway.source.provisioning.event_trigger import INSTALL
from gateway.source.provisioning.trigger_installation import find_installation
from tests.security.conftest import Attacker
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Connection, value_of
from tests.support.run.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", [15, 18], indirect=True),
]

FIRST = Path(__file__).with_name("first_event_triggers.sql")
# What runs it can be made superuser by it, if it has the right.
EVIL = """
CREATE FUNCTION pg_temp.evil() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE pg_catalog.format('ALTER ROLE %I SUPERUSER', session_user);
    RETURN true;
EXCEPTION WHEN insufficient_privilege THEN
    RETURN true;
END
$$;
"""
TABLE = """
CREATE TABLE t (a int PRIMARY KEY, b int); CREATE TABLE u (a int PRIMARY KEY);
CREATE PUBLICATION p FOR TABLE t WHERE (a > 1); CREATE PUBLICATION q FOR TABLE u;
"""
OF_COLUMNS = """
CREATE SCHEMA other; CREATE DOMAIN number AS int; CREATE TYPE other.kind AS ENUM ('a');
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 2 * $1';
CREATE TABLE t (a int, b number, k other.kind, d int GENERATED ALWAYS AS (twice(7)) STORED);
CREATE PUBLICATION pa FOR TABLE t (a); CREATE PUBLICATION pb FOR TABLE t (b);
CREATE PUBLICATION pk FOR TABLE t (k);
CREATE PUBLICATION pd FOR TABLE t WHERE (d > 1) WITH (publish = 'insert');
"""
RELATIONS = {
    "pg_inherits": "*",
    "pg_class": "*",
    "pg_attribute": "attrelid, attname, attnum",
    "pg_namespace": "*",
    "pg_publication": "*",
    "pg_publication_rel": "*",
    "pg_publication_namespace": "*",
}
TYPES = ("text", "int2", "int8", "oid", "regclass", "name", "jsonb", "bytea", "void", "bool")


def is_superuser(connection: Connection, role: str) -> bool:
    query = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = %s"
    return bool(value_of(connection, query, role))


def watch(connection: Connection) -> None:
    """Begin to keep what the event triggers say."""
    connection.execute(
        "SELECT pg_create_logical_replication_slot('peek_' || current_database(), 'pgoutput')"
    )


def messages(connection: Connection) -> list[dict[str, Any]]:
    """What the event triggers have said since the last call, in order."""
    found = connection.execute(
        "SELECT data FROM pg_logical_slot_get_binary_changes("
        "'peek_' || current_database(), NULL, NULL, 'proto_version', '1',"
        " 'publication_names', 'p', 'messages', 'true')"
    ).fetchall()
    # 'M', flags, LSN, prefix, length, content. Source: logicalrep_write_message in proto.c.
    contents = [bytes(data)[10:].partition(b"\0")[2][4:] for (data,) in found if data[:1] == b"M"]
    return [json.loads(content.partition(b" ")[2]) for content in contents]


def listed(connection: Connection) -> set[str]:
    """Names of the publications that have a table."""
    query = "SELECT p.pubname FROM pg_publication AS p JOIN pg_publication_rel ON prpubid = p.oid"
    return {str(name) for (name,) in connection.execute(query)}


def fire(connection: Connection) -> None:
    """Every command that any role can give and that fires one of the triggers."""
    connection.execute("CREATE TEMPORARY TABLE fired (a pg_catalog.int4)")
    connection.execute("ALTER TABLE fired ALTER a TYPE pg_catalog.int8 USING a + 1")
    connection.execute("CREATE TYPE pg_temp.fires AS ENUM ('a')")
    connection.execute("ALTER TYPE pg_temp.fires ADD VALUE 'b'")


def test_objects_in_pg_temp_are_not_taken_for_the_catalogs(
    database: Database, attacker: Attacker
) -> None:
    with database.connect() as connection, attacker.connect() as evil:
        connection.execute(INSTALL.encode())
        evil.execute(EVIL.encode())
        for name, columns in RELATIONS.items():
            evil.execute(
                f"CREATE TEMPORARY VIEW {name} AS SELECT {columns} FROM pg_catalog.{name}"
                " WHERE pg_temp.evil()".encode()
            )
        for name in TYPES:
            base = "text" if name in ("void", "name") else name
            evil.execute(
                f"CREATE DOMAIN pg_temp.{name} AS pg_catalog.{base} CHECK (pg_temp.evil())".encode()
            )
        fire(evil)
        assert not is_superuser(connection, attacker.name)


def test_what_others_own_under_the_name_pgsluice_is_not_adopted(
    database: Database, attacker: Attacker
) -> None:
    with database.connect() as connection, attacker.connect() as evil:
        connection.execute(f"GRANT CREATE ON DATABASE {database.name} TO {attacker.name}".encode())
        evil.execute(
            "CREATE SCHEMA pgsluice;"
            "CREATE FUNCTION pgsluice.tell(publications text[], tables bigint[], trees bigint[])"
            " RETURNS void LANGUAGE plpgsql AS 'BEGIN END'"
        )
        with pytest.raises(psycopg.errors.RaiseException, match=f"owned by {attacker.name}"):
            connection.execute(INSTALL.encode())
        connection.rollback()
        assert value_of(connection, "SELECT count(*) FROM pg_catalog.pg_event_trigger") == 0

        connection.execute("DROP SCHEMA pgsluice CASCADE; CREATE SCHEMA pgsluice")
        connection.execute(f"GRANT CREATE ON SCHEMA pgsluice TO {attacker.name}".encode())
        evil.execute("CREATE VIEW pgsluice.key AS SELECT 1")
        with pytest.raises(psycopg.errors.RaiseException, match=r"relation pgsluice\.key"):
            connection.execute(INSTALL.encode())
        connection.rollback()


def test_two_databases_of_a_server_get_them_at_once(postgres_major: int) -> None:
    # A server of its own: those that tests share have the role from their beginning.
    with (
        EmbeddedPostgres(postgres_major) as server,
        server.connect() as first,
        server.connect() as watching,
    ):
        watching.execute("CREATE DATABASE other")
        with (
            server.connect("other") as second,
            ThreadPoolExecutor(1) as threads,
        ):
            with first.transaction():
                first.execute("CREATE ROLE pgsluice_ddl NOLOGIN")
                installing = threads.submit(second.execute, INSTALL.encode())
                waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = %s AND NOT granted)"
                pid = second.info.backend_pid
                wait_until(lambda: value_of(watching, waits, pid), 60, "one to wait for the other")
            installing.result(60)
            assert find_installation(second) is not None


def test_nobody_else_can_call_the_functions_or_read_the_key(
    database: Database, attacker: Attacker
) -> None:
    with database.connect() as connection, attacker.connect() as evil:
        connection.execute(INSTALL.encode())
        for statement in (
            "SELECT pgsluice.tell(NULL, NULL, NULL::boolean)",
            "SELECT pgsluice.emit('pgsluice.rewritten', '{}')",
            "TABLE pgsluice.key",
            "BEGIN; LOCK TABLE pgsluice.locks",
            "CREATE FUNCTION pgsluice.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                evil.execute(statement.encode())
            evil.rollback()
        owners = connection.execute(
            "SELECT DISTINCT rolname, rolsuper, rolcanlogin FROM pg_catalog.pg_proc"
            " JOIN pg_catalog.pg_roles AS r ON r.oid = proowner"
            " WHERE pronamespace = 'pgsluice'::regnamespace"
        ).fetchall()
        assert owners == [("pgsluice_ddl", False, False)]
        key = connection.execute("TABLE pgsluice.key").fetchone()
        connection.execute(INSTALL.encode())
        assert connection.execute("TABLE pgsluice.key").fetchone() == key
        found = find_installation(connection)
        assert found is not None
        assert found.problems == ()


def test_locks_that_anybody_can_take_hold_nothing_up(
    database: Database, attacker: Attacker
) -> None:
    slot = f"gw_{database.name}"
    with database.connect() as connection, attacker.connect() as evil, database.connect() as other:
        connection.execute(INSTALL.encode())
        connection.execute("CREATE TABLE t (a int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
        connection.execute(f"GRANT CREATE ON DATABASE {database.name} TO {attacker.name}".encode())
        evil.execute("CREATE PUBLICATION of_mallory")
        evil.execute(
            "BEGIN; ALTER PUBLICATION of_mallory SET (publish = 'insert');"
            "SELECT pg_advisory_lock(hashtextextended('pgsluice.p', 0)),"
            f" pg_advisory_lock(hashtextextended('pgsluice {slot}', 0))".encode()
        )
        with connection.transaction(force_rollback=True):
            # On Amazon RDS no role has the attribute, and a gateway is a member of this one.
            connection.execute("CREATE ROLE rds_replication")
            connection.execute(f"GRANT rds_replication TO {attacker.name}".encode())
            with pytest.raises(SlotBusyError, match=f"of role {attacker.name}"):
                lock_first_start(connection, slot)
        connection.execute("SET lock_timeout = '5s'")
        connection.execute("ALTER PUBLICATION p SET (publish = 'insert')")
        lock_first_start(connection, slot)

        # Who may alter the publication waits for who has altered it: said first, it would be lost.
        other.execute("BEGIN; ALTER PUBLICATION p SET (publish = 'insert, update')")
        connection.execute("SET lock_timeout = '100ms'")
        why = "publication p was altered in a transaction that is still open\nHINT:  lock_timeout"
        with pytest.raises(psycopg.errors.LockNotAvailable, match=why):
            connection.execute("ALTER PUBLICATION p DROP TABLE t")
        other.execute("COMMIT")
        connection.execute("ALTER PUBLICATION p DROP TABLE t")


def test_no_statement_fails_because_a_message_cannot_be_written(database: Database) -> None:
    with database.connect() as connection:
        connection.execute(INSTALL.encode())
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        connection.execute("CREATE TYPE mood AS ENUM ('sad')")
        connection.execute("REFRESH MATERIALIZED VIEW pgsluice.key WITH NO DATA")
        notices: list[str | None] = []
        connection.add_notice_handler(lambda diagnostic: notices.append(diagnostic.message_primary))
        connection.execute("ALTER TYPE mood ADD VALUE 'happy'")
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
        connection.execute("ALTER TABLE t ALTER b TYPE bigint USING b + 1")
        assert [str(notice)[:15] for notice in notices] == ["pgsluice is not"] * 3


def test_what_others_define_keeps_nothing_out_of_a_message(
    database: Database, attacker: Attacker
) -> None:
    with database.connect() as connection, attacker.connect() as evil:
        connection.execute(INSTALL.encode())
        connection.execute(f"GRANT CREATE ON DATABASE {database.name} TO {attacker.name}".encode())
        connection.execute(TABLE.encode())
        evil.execute("CREATE SCHEMA mallory; CREATE TABLE mallory.m (a text PRIMARY KEY)")
        watch(connection)
        connection.execute("ALTER PUBLICATION p SET (publish = 'insert')")
        (first,) = messages(connection)
        assert (first["as_of"] is None, set(first["publications"])) == (False, {"p", "q"})

        numbers = ",".join(map(str, range(300_000)))
        long = f"a = ANY ('{{{numbers}}}')"
        evil.execute(f"CREATE PUBLICATION long FOR TABLE mallory.m WHERE ({long})".encode())
        messages(connection)
        for statement in (
            "ALTER PUBLICATION p SET (publish = 'insert, delete')",
            "ALTER TABLE t RENAME a TO c",
            "ALTER TABLE t DROP COLUMN c CASCADE",
        ):
            connection.execute(statement.encode())
        altered, renamed, dropped = messages(connection)
        assert all(len(json.dumps(said)) < 1_000 for said in (altered, renamed, dropped))
        assert (altered["as_of"], set(altered["publications"])) == (None, {"p"})
        assert renamed["publications"]["p"]["tables"][0][1] == "(c > 1)"
        t = value_of(connection, "SELECT 't'::regclass::oid")
        assert (dropped["altered"]["tables"], dropped["unsaid"]) == ([t], False)
        assert dropped["publications"] == {}


def test_a_table_that_goes_from_a_publication_with_a_column_is_named(database: Database) -> None:
    with database.connect() as connection:
        connection.execute(INSTALL.encode())
        for statement in (
            "ALTER TABLE t DROP COLUMN a CASCADE",
            "DROP DOMAIN number CASCADE",
            "DROP TYPE other.kind CASCADE",
            "DROP SCHEMA other CASCADE",
            "DROP FUNCTION twice(int) CASCADE",
        ):
            connection.execute(OF_COLUMNS.encode())
            t = value_of(connection, "SELECT 't'::regclass::oid")
            before = listed(connection)
            watch(connection)
            connection.execute(statement.encode())
            said, *_ = messages(connection)
            assert said["altered"]["tables"] == [t], statement
            lost = before - listed(connection)
            assert lost, statement
            assert lost.isdisjoint(name for name, p in said["publications"].items() if p["tables"])
            # A table that is dropped goes without a message: its rows may still be in the stream.
            connection.execute("DROP TABLE t CASCADE")
            assert messages(connection) == []
            connection.execute("SELECT pg_drop_replication_slot('peek_' || current_database())")
            connection.execute("DROP PUBLICATION pa, pb, pk, pd; DROP FUNCTION IF EXISTS twice")
            connection.execute("DROP DOMAIN IF EXISTS number; DROP SCHEMA IF EXISTS other CASCADE")


def test_who_drops_a_schema_waits_for_nobody_and_says_only_that(database: Database) -> None:
    with database.connect() as connection, database.connect() as other:
        connection.execute(INSTALL.encode())
        connection.execute("CREATE SCHEMA s; CREATE SCHEMA r; CREATE TABLE t (a int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION p FOR TABLE t, TABLES IN SCHEMA s, r")
        watch(connection)
        other.execute("BEGIN; ALTER PUBLICATION p SET (publish = 'insert')")
        connection.execute("SET lock_timeout = '5s'; DROP SCHEMA s")
        (said,) = messages(connection)
        assert (said["altered"]["publications"], said["unsaid"]) == (["p"], True)
        assert said["publications"] == {}
        other.execute("COMMIT")


def test_a_transaction_that_sees_what_was_before_says_only_what_it_has_altered(
    database: Database,
) -> None:
    with database.connect() as connection, database.connect() as other:
        connection.execute(INSTALL.encode())
        connection.execute(TABLE.encode())
        watch(connection)
        other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a < 5)")
        other.execute("ALTER PUBLICATION p SET (publish = 'insert'); COMMIT")
        *before, last = messages(connection)
        assert before[-1]["publications"]["p"]["tables"][0][1] == "(a < 5)"
        assert last["altered"]["publications"] == ["p"]
        assert (last["as_of"], last["unsaid"], last["publications"]) == (None, True, {})


def test_temporary_objects_write_nothing(database: Database, attacker: Attacker) -> None:
    with database.connect() as connection, attacker.connect() as evil:
        connection.execute(INSTALL.encode())
        watch(connection)
        fire(evil)
        evil.execute("CREATE TEMPORARY TABLE tree (a int) PARTITION BY LIST (a)")
        evil.execute("CREATE TEMPORARY TABLE leaf PARTITION OF tree FOR VALUES IN (1)")
        evil.execute('CREATE COLLATION pg_temp.c FROM "C"; ALTER COLLATION pg_temp.c RENAME TO d')
        assert messages(connection) == []


GRANTS = (
    "GRANT SELECT ON pgsluice.key TO {0}; GRANT USAGE ON SCHEMA pgsluice TO {0}",
    "GRANT SELECT (inner_key) ON pgsluice.key TO {0}; GRANT USAGE ON SCHEMA pgsluice TO {0}",
    "GRANT pgsluice_ddl TO {0}",
    "GRANT pg_read_all_data TO {0}",
    "CREATE ROLE {0}_g; GRANT {0}_g TO {0}; GRANT pg_read_all_data TO {0}_g",
)
ALTERED = (
    ("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgsluice TO {0}", "can be called by role {0}"),
    ("GRANT SELECT ON pgsluice.key TO PUBLIC", "every role may read"),
    ("GRANT INSERT, UPDATE ON pgsluice.locks TO {0}", "role {0} has INSERT on pgsluice.locks"),
    ("GRANT CREATE ON SCHEMA pgsluice TO {0}", "role {0} has CREATE on schema pgsluice"),
    ("CREATE RULE r AS ON UPDATE TO pgsluice.locks DO INSTEAD NOTHING", "a rule or a trigger"),
    ("ALTER FUNCTION pgsluice.emit(text, jsonb) SECURITY DEFINER", "not as this release"),
    ("ALTER FUNCTION pgsluice.publications_altered() SECURITY INVOKER", "not as this release"),
    ("ALTER FUNCTION pgsluice.table_rewritten() SET work_mem = '64kB'", "not as this release"),
    ("CREATE FUNCTION pgsluice.tell() RETURNS int LANGUAGE sql AS 'SELECT 1'", "one name"),
    ("ALTER EVENT TRIGGER pgsluice_altered ENABLE", "not ENABLE ALWAYS"),
    ("ALTER EVENT TRIGGER pgsluice_dropped ENABLE REPLICA", "not ENABLE ALWAYS"),
    ("ALTER EVENT TRIGGER pgsluice_rewritten DISABLE", "not ENABLE ALWAYS"),
    ("DROP EVENT TRIGGER pgsluice_rewritten", "pgsluice_rewritten is missing"),
    ("ALTER ROLE pgsluice_ddl BYPASSRLS", "with the rights of pgsluice_ddl"),
)


def test_whoever_has_rights_that_nobody_needs_is_named(
    database: Database, attacker: Attacker
) -> None:
    name = attacker.name
    with database.connect() as connection:
        connection.execute(INSTALL.encode())
        for grant in GRANTS:
            connection.execute("BEGIN")
            connection.execute(grant.format(name).encode())
            found = find_installation(connection)
            connection.execute("ROLLBACK")
            assert found is not None
            assert (found.problems, name in found.readers) == ((), True), grant
        for statement, problem in ALTERED:
            connection.execute("BEGIN")
            connection.execute(statement.format(name).encode())
            found = find_installation(connection)
            connection.execute("ROLLBACK")
            assert found is not None
            assert any(problem.format(name) in each for each in found.problems), statement
            assert (found.key is None) == ("EVENT TRIGGER" not in statement), statement


def test_default_privileges_of_the_installer_give_nobody_a_right(
    database: Database, attacker: Attacker
) -> None:
    name = attacker.name
    with database.connect() as connection, attacker.connect() as evil:
        for what in ("SELECT, UPDATE ON TABLES", "EXECUTE ON FUNCTIONS", "ALL ON SCHEMAS"):
            connection.execute(f"ALTER DEFAULT PRIVILEGES GRANT {what} TO {name}".encode())
        connection.execute(INSTALL.encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            evil.execute("TABLE pgsluice.key")
        found = find_installation(connection)
        assert found is not None
        assert (found.problems, name in found.readers) == ((), False)
        # A role that was given the right keeps it when the script is run again.
        connection.execute(
            f"GRANT USAGE ON SCHEMA pgsluice TO {name};"
            f"GRANT SELECT ON pgsluice.key TO {name}".encode()
        )
        connection.execute(INSTALL.encode())
        evil.execute("TABLE pgsluice.key")


def test_a_gateway_that_makes_the_slot_is_waited_for(database: Database) -> None:
    with database.connect() as first, database.connect() as second:
        lock_first_start(first, "s")
        with pytest.raises(SlotBusyError, match=f"process {first.info.backend_pid}"):
            lock_first_start(second, "s")


def test_an_installation_of_before_is_found_and_replaced(database: Database) -> None:
    with database.connect() as connection:
        assert find_installation(connection) is None
        connection.execute(FIRST.read_bytes())
        found = find_installation(connection)
        assert found is not None
        assert any("earlier release" in problem for problem in found.problems)
        connection.execute(INSTALL.encode())
        found = find_installation(connection)
        assert found is not None
        assert found.problems == ()
        connection.execute("ALTER FUNCTION pgsluice.tell RESET ALL")
        found = find_installation(connection)
        assert found is not None
        assert any("pgsluice.tell" in problem for problem in found.problems)
