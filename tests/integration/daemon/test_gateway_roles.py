"""What the gateway leaves on the server, what it needs there, and what its commands say of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
import pytest

from devkit.embedded.postgres import EmbeddedPostgres
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, assert_exactly_once, current_lsn, value_of

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
ODD = '"odd\n; DROP TABLE t; --"'
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (a > 5);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)


def test_applications_can_write_whatever_is_published(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE TABLE t (a int PRIMARY KEY, b int);"
            "CREATE TABLE appended (a int);"
            "CREATE TABLE bare (a int);"
            "CREATE TABLE tree (a int, b int) PARTITION BY RANGE (a);"
            "CREATE TABLE tree_low PARTITION OF tree FOR VALUES FROM (0) TO (10);"
            "CREATE TABLE tree_high PARTITION OF tree FOR VALUES FROM (10) TO (20)"
        )
        s = scene(
            DEFINITIONS.replace("WHERE (a > 5);", "WHERE (a > 5), bare;")
            + "CREATE PUBLICATION q FOR TABLE appended, tree"
            " WITH (publish = 'insert, truncate', publish_via_partition_root = true);"
            "CREATE SUBSCRIPTION {s}_q CONNECTION '' PUBLICATION q;",
            definitions={"missing_identity": "insert_only"},
        )
        s.run_to("0/1")
        for table in ("t", "appended", "bare", "tree"):
            connection.execute(f"INSERT INTO {table} VALUES (7)".encode())
            connection.execute(f"UPDATE {table} SET a = 8".encode())
            connection.execute(f"DELETE FROM {table}".encode())
            connection.execute(f"TRUNCATE {table}".encode())
        made = connection.execute(
            "SELECT p.pubname, p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot,"
            " ARRAY(SELECT r.prrelid::regclass::text FROM pg_publication_rel r"
            " WHERE r.prpubid = p.oid ORDER BY 1),"
            " EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid"
            " AND (r.prqual IS NOT NULL OR r.prattrs IS NOT NULL))"
            " FROM pg_publication p ORDER BY p.pubname"
        ).fetchall()
        s.run_to(current_lsn(connection))

    slot = s.slot
    assert made == [
        (f"{slot}_leaf", True, True, True, True, False, ["t"], False),
        (f"{slot}_leaf_insert", True, False, False, True, False, ["appended", "bare"], False),
        (f"{slot}_root", True, False, False, False, True, [], False),
        (f"{slot}_root_insert", True, False, False, True, True, ["tree"], False),
    ]
    assert [r.op for r in s.read("tree", f"{slot}_q")] == ["t", "c", "t"]


def test_an_ordinary_role_runs_with_what_the_owner_made_of_the_checks_sql(
    scene: MakeScene, database: Database
) -> None:
    role = f"role_{database.name}"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        connection.execute("INSERT INTO t VALUES (3, 0), (6, 0)")
        connection.execute(f"CREATE TABLE {ODD} (a int PRIMARY KEY)".encode())
        connection.execute("CREATE TABLE asked AS SELECT a FROM generate_series(1, 20) AS a")
        connection.execute("ALTER TABLE asked ADD PRIMARY KEY (a)")
        connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION".encode())
        try:
            dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
            both = DEFINITIONS.replace("TABLE t", f"TABLE {ODD}, t")
            both = both.replace("a > 5", "a > 5 AND a IN (SELECT a FROM asked)")
            assert "asked" in both
            s = scene(both, source={"dsn": dsn})

            checked = s.cli("check")
            assert checked.code == 1
            assert "is held: permission denied for table public.t" in checked.out
            first = s.cli("check", "--sql")
            assert first.err == ""
            all_at_once = first.out.splitlines()
            made = [one for one in all_at_once if one.startswith("CREATE")]
            assert any("FOR TABLE" in one for one in made)
            assert all(one in checked.out for one in made)  # with the tables that are held, too
            granted = [one for one in all_at_once if one.startswith("GRANT")]
            assert len(granted) == 3  # with the table that the filter reads
            for statement in granted:
                connection.execute(statement.encode())
            refused = s.cli("run", "--endpos", "0/1")
            assert refused.code == 1
            assert "let the owner of the tables run" in refused.err
            assert s.reader.topics(s.slot) == []  # nothing was made before it was known

            checked = s.cli("check")
            assert checked.code == 1, checked.out
            assert "-> let the owner of the tables run" in checked.out
            statements = s.cli("check", "--sql")
            assert statements.code == 0
            assert statements.out.splitlines() == all_at_once[: -len(granted)]
            for statement in statements.out.splitlines():
                assert statement in refused.err and statement in checked.out
                connection.execute(statement.encode())
            assert s.cli("check", "--sql").out == ""
            assert s.cli("check").code == 0
            s.run_to("0/1")
            connection.execute("UPDATE t SET a = a + 4")
            s.run_to(current_lsn(connection))
            assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE a > 5")

            connection.execute("ALTER TABLE t REPLICA IDENTITY NOTHING")
            held = s.cli("run", "--endpos", current_lsn(connection))
            assert "replica identity" in held.err.lower()
            # Its owner would take out of the publication what is needed when it is mended.
            assert "ALTER PUBLICATION" not in held.err
            connection.execute("ALTER TABLE t REPLICA IDENTITY DEFAULT")

            dropped = s.cli("slot", "drop", "--yes")
            assert dropped.code == 0, dropped.err
            assert f"slot {s.slot} dropped" in dropped.out
            _, statements_left = dropped.out.split("let their owner or a superuser run this:\n")
            for statement in statements_left.splitlines():
                connection.execute(statement.encode())
            left = "SELECT count(*) FROM pg_publication WHERE starts_with(pubname, %s)"
            assert value_of(connection, left, s.slot) == 0
        finally:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def test_check_schemas_and_status_create_nothing(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        s = scene(DEFINITIONS)

        checked, schemas, status = s.cli("check"), s.cli("schemas"), s.cli("status")

        assert (checked.code, schemas.code, status.code) == (0, 0, 75)
        assert "ERROR" not in checked.out
        assert "ok      publication to be made: CREATE PUBLICATION" in checked.out
        assert set(json.loads(schemas.out)) == {
            f"{s.topic('t')}-key",
            f"{s.topic('t')}-value",
            f"{s.slot}.transaction-value",
        }
        assert "slot state: does not exist" in status.out and "watermark: none" in status.out
        left = connection.execute(
            "SELECT (SELECT count(*) FROM pg_publication), (SELECT count(*) FROM"
            " pg_replication_slots WHERE slot_name = %s)",
            [s.slot],
        ).fetchone()
        assert left == (0, 0)
        assert s.reader.topics(s.slot) == []

        s.run_to("0/1")
        status = s.cli("status")
        assert status.code == 75
        assert "for now: no gateway reads the slot" in status.out
        assert "slot state: inactive, WAL reserved" in status.out
        assert f"copy of {s.slot}: public.t: ready" in status.out
        assert s.cli("check").code == 0


def test_check_finds_a_role_without_replication(scene: MakeScene, database: Database) -> None:
    role = f"role_{database.name}"
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        connection.execute(f"CREATE ROLE {role} LOGIN; GRANT SELECT ON t TO {role}".encode())
        try:
            dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
            checked = scene(DEFINITIONS, source={"dsn": dsn}).cli("check")
        finally:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())

    assert checked.code == 1
    assert f"role {role} may not replicate" in checked.out
    assert f"ALTER ROLE {role} REPLICATION;" in checked.out


def test_a_server_that_does_not_log_enough_or_wants_a_password_is_refused(
    scene: MakeScene,
) -> None:
    with EmbeddedPostgres(18, config={"wal_level": "replica"}) as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
            connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        s = scene(DEFINITIONS, source={"dsn": server.dsn()})
        checked, ended = s.cli("check"), s.cli("run")

        rules = server.folder / "data" / "pg_hba.conf"
        rules.write_text("host all guarded 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        with server.connect() as connection:
            connection.execute("SELECT pg_reload_conf()")
        dsn = server.dsn(user="guarded").replace("guarded@", "guarded:wr0ng@")
        refused = s.cli("run", environment={"PGSLUICE_SOURCE__DSN": dsn})

    assert refused.code == 1
    assert "password authentication failed" in refused.err
    assert "check the user and password of source.dsn" in refused.err
    assert "wr0ng" not in refused.err
    assert (checked.code, ended.code) == (1, 1)
    for text in (checked.out, ended.err):
        assert "wal_level = replica" in text
        assert "set wal_level = logical" in text


@pytest.mark.parametrize("postgres_major", [14, 17], indirect=True)
def test_other_majors_copy_and_stream(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b int)")
        connection.execute("INSERT INTO t VALUES (3, 0), (6, 0)")
        s = scene(DEFINITIONS)
        s.run_to("0/1")
        connection.execute("UPDATE t SET a = a + 4")
        s.run_to(current_lsn(connection))
        assert s.rebuilt("t") == s.source_rows("SELECT * FROM t WHERE a > 5")
    assert_exactly_once(s, ["t"])
