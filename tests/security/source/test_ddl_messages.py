"""Logical messages that any role can write are no orders, whatever stands in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from gateway.definitions.ddl.alterations import PREFIXES
from gateway.source.provisioning.event_trigger import INSTALL
from tests.security.conftest import Attacker
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Connection, Scene, current_lsn, value_of

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TABLES = """
CREATE TABLE t (a int PRIMARY KEY, b int);
CREATE TABLE secret (a int); INSERT INTO secret VALUES (1);
REVOKE ALL ON secret FROM PUBLIC;
CREATE PUBLICATION p FOR TABLE t WHERE (a < 10);
INSERT INTO t VALUES (1, 1), (11, 1);
"""
DEFINED = "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
WHERES = (
    "(a > (SELECT count(*) FROM secret))",
    "(pg_notify('leak', (SELECT string_agg(secret::text, ',') FROM secret)) IS NULL)",
    "(public.evil(a))",
    "(set_config('transaction_read_only', 'off', false) IS NOT NULL)",
    "(query_to_xml('TABLE secret', true, true, '') IS NOT NULL)",
    "true) IS NULL THEN 't' ELSE 'f' END, '') FROM secret --",
    "(a > 10)",
)


def forged(where: str, oid: int) -> str:
    publication = {
        **{"operations": ["insert"], "all_tables": False, "via_root": False},
        **{"generated": False, "schemas": [], "tables": [[oid, where, None]]},
    }
    altered = {"publications": ["p"], "tables": [], "trees": []}
    return json.dumps({"altered": altered, "publications": {"p": publication}, "parents": []})


def emit(connection: Connection, prefix: str, content: str | bytes, *, inside: bool = True) -> None:
    connection.execute("SELECT pg_logical_emit_message(%s, %s, %s)", (inside, prefix, content))


def emit_signed(connection: Connection, prefix: str, body: str) -> None:
    """Write a message as somebody who knows the key can, with whatever in it."""
    row = connection.execute("SELECT inner_key, outer_key FROM pgsluice.key").fetchone()
    assert row is not None
    inner, outer = row
    text = prefix.encode() + b"\n" + body.encode()
    code = sha256(outer + sha256(inner + text).digest()).hexdigest()
    emit(connection, prefix, f"{code} {body}")


def bodies(connection: Connection, slot: str) -> list[bytes]:
    """What the event triggers have written, as whoever reads the WAL sees it."""
    found = connection.execute(
        "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
        " 'proto_version', '1', 'publication_names', 'p', 'messages', 'true')",
        (slot,),
    ).fetchall()
    # 'M', flags, LSN, prefix, length, content. Source: logicalrep_write_message in proto.c.
    messages = [bytes(data) for (data,) in found if bytes(data)[:1] == b"M"]
    return [
        message[10:].partition(b"\0")[2][4:]
        for message in messages
        if message[10:].startswith(b"pgsluice.publications\0")
    ]


def test_what_anybody_can_write_into_the_stream_is_not_believed(
    scene: MakeScene, database: Database, attacker: Attacker
) -> None:
    with database.connect() as connection, attacker.connect() as evil:
        connection.execute(TABLES.encode())
        oid = int(value_of(connection, "SELECT 't'::regclass::oid::bigint"))
        s = scene(DEFINED, messages={"prefixes": ["pgsluice.rewritten", "app"]})
        s.run_to("0/1")

        # Without event triggers, under a prefix that is asked for.
        emit(evil, "pgsluice.rewritten", json.dumps({"tables": [oid]}))
        emit(evil, "pgsluice.rewritten", json.dumps({"tables": [oid]}), inside=False)
        connection.execute("INSERT INTO t VALUES (2, 2), (12, 2)")
        ended = s.run_to(current_lsn(connection))
        assert "reason=unexpected" in ended.err

        connection.execute(INSTALL.encode())
        connection.execute("SELECT pg_create_logical_replication_slot('peek', 'pgoutput')")
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a < 9)")
        *_, seen = bodies(connection, "peek")
        connection.execute("SELECT pg_drop_replication_slot('peek')")
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a < 8)")
        for prefix in PREFIXES:
            contents: list[str | bytes] = [
                *("", "{", "[]", "0", "[" * 100_000, "{}", "0" * 64, "0" * 64 + " {}"),
                *(b"\xff\xfe", b"\0", seen, seen.replace(b"a < 9", b"a > 9"), "x" * 2_000_000),
                json.dumps({"tables": [oid]}),
                *(forged(where, oid) for where in WHERES),
            ]
            for content in contents:
                emit(evil, prefix, content)
        evil.execute("BEGIN")
        emit(evil, "pgsluice.publications", seen)
        evil.execute("COMMIT")
        connection.execute("INSERT INTO t VALUES (3, 3), (8, 3), (13, 3)")
        ended = s.run_to(current_lsn(connection))
        assert "reason=forged" in ended.err

        # Even who knows the key cannot make the gateway run anything, or end it.
        for where in WHERES[:-1]:
            connection.execute(
                "SELECT pgsluice.emit('pgsluice.publications', %s)", (forged(where, oid),)
            )
        for body in (
            *("{}", '{"altered": 1}', f'{{"altered": {"[" * 1_000}{"]" * 1_000}}}'),
            forged("(a > 1)", oid).replace("insert", "select"),
            *(
                forged("(a > 1)", oid).replace('"tables": []', f'"tables": [{value}]', 1)
                for value in ("1e30", "-1", "null", '"a"', "[1]", "4294967296")
            ),
            forged("(a > 1)", oid).replace(f"[[{oid}", "[[4294967296"),
        ):
            connection.execute("SELECT pgsluice.emit('pgsluice.publications', %s)", (body,))
        emit_signed(connection, "pgsluice.rewritten", '{"xid": 1e400, "lsn": "0/0"}')
        for field, value in (("xid", 1), ("xid", [1]), ("lsn", 1), ("lsn", None)):
            body = json.dumps({field: value, "tables": []})
            emit_signed(connection, "pgsluice.rewritten", body)
        connection.execute("SELECT pgsluice.emit('pgsluice.rewritten', '{\"tables\": 1}')")
        connection.execute("INSERT INTO t VALUES (4, 4), (9, 4), (14, 4)")
        ended = s.run_to(current_lsn(connection))
        assert "reason=filter" in ended.err
        assert "reason=unreadable" in ended.err

    assert [row[0] for row in s.rebuilt("t")] == [1, 2, 3, 4]
    assert [record.op for record in s.read("t")].count("t") == 1  # copied once


def test_what_somebody_else_saw_or_defined_changes_no_publication(
    scene: MakeScene, database: Database, attacker: Attacker
) -> None:
    with database.connect() as connection, attacker.connect() as evil, attacker.connect() as late:
        connection.execute(f"{TABLES} {INSTALL}".encode())
        connection.execute(f"GRANT CREATE ON DATABASE {database.name} TO {attacker.name}".encode())
        s = scene(DEFINED, definitions={"watch_interval_s": 0.0})
        s.run_to("0/1")

        # A message of the triggers, of a time before the filter was narrowed, that comes later.
        evil.execute("CREATE SCHEMA mallory; CREATE TABLE mallory.m (a text PRIMARY KEY)")
        evil.execute("CREATE TYPE mallory.mood AS ENUM ('a')")
        for session, level in ((evil, "REPEATABLE READ"), (late, "READ COMMITTED")):
            session.execute(f"BEGIN ISOLATION LEVEL {level}; SELECT 1".encode())
        late.execute("CREATE PUBLICATION of_mallory FOR TABLE mallory.m WHERE (a > 'b')")
        late.execute("CREATE TABLE mallory.tree (a int) PARTITION BY LIST (a)")
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a < 5)")
        s.run_to(current_lsn(connection))
        evil.execute("ALTER TYPE mallory.mood ADD VALUE 'b'; COMMIT")
        late.execute("COMMIT")
        connection.execute("INSERT INTO t VALUES (2, 2), (7, 7)")
        s.run_to(current_lsn(connection))
        assert [row[0] for row in s.rebuilt("t")] == [1, 2]

        # A filter that nobody can check, in a publication that no subscription has.
        deep = "a" + " || 'x'" * 100 + " > 'b'"
        evil.execute(f"ALTER PUBLICATION of_mallory SET TABLE mallory.m WHERE ({deep})".encode())
        connection.execute("INSERT INTO t VALUES (3, 3)")
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a > 5)")
        connection.execute("INSERT INTO t VALUES (4, 4), (8, 8)")
        ended = s.run_to(current_lsn(connection))
        assert "reason=" not in ended.err
    assert [row[0] for row in s.rebuilt("t")] == [1, 2, 3, 8]


def test_a_filter_that_cannot_be_checked_costs_its_own_table_alone(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLES} {INSTALL} CREATE TABLE u (a int PRIMARY KEY)".encode())
        connection.execute("ALTER PUBLICATION p ADD TABLE u")
        s = scene(DEFINED, definitions={"watch_interval_s": 0.0})
        s.run_to("0/1")
        t, u = (int(value_of(connection, f"SELECT '{n}'::regclass::oid::bigint")) for n in "tu")
        said = json.loads(forged(WHERES[1], t))
        said["publications"]["p"]["tables"].append([u, "(a > 5)", None])
        connection.execute("SELECT pgsluice.emit('pgsluice.publications', %s)", (json.dumps(said),))
        connection.execute("INSERT INTO t VALUES (3, 3), (13, 3); INSERT INTO u VALUES (3), (13)")
        ended = s.run_to(current_lsn(connection))
        assert "reason=filter" in ended.err
        assert f"publication=p oid={t} " in ended.err
        assert "as in the catalog" in ended.err
    assert [row[0] for row in s.rebuilt("t")] == [1, 3]
    assert [row[0] for row in s.rebuilt("u")] == [13]


@pytest.mark.parametrize("streaming", ["off", "on", "parallel"])
def test_a_message_of_what_was_not_committed_or_is_of_another_database_changes_nothing(
    scene: MakeScene, database: Database, attacker: Attacker, streaming: str
) -> None:
    defined = DEFINED.replace(
        "PUBLICATION p;", f"PUBLICATION p WITH (streaming = {streaming}, two_phase = true);"
    )
    other = f"{database.name}_other"
    large = "INSERT INTO t SELECT n, 1 FROM generate_series(1001, 9000) AS n ON CONFLICT DO NOTHING"
    with database.connect() as connection, attacker.connect() as evil:
        connection.execute(f"{TABLES} {INSTALL}".encode())
        connection.execute(f"CREATE DATABASE {other}".encode())
        try:
            s = scene(defined, definitions={"watch_interval_s": 0.0})
            s.run_to("0/1")
            # The triggers' own messages, in transactions and subtransactions that were given up.
            altered = "ALTER PUBLICATION p SET TABLE t WHERE (a > 0)"
            connection.execute("BEGIN")
            connection.execute(altered)
            connection.execute(large)
            connection.execute("ROLLBACK")
            connection.execute("BEGIN")
            connection.execute("INSERT INTO t VALUES (2, 2), (12, 2)")
            for name in ("a", "b"):
                connection.execute(f"SAVEPOINT {name}".encode())
                connection.execute(altered)
                connection.execute(large)
            connection.execute("ROLLBACK TO b")
            connection.execute("ROLLBACK TO a")
            connection.execute("INSERT INTO t VALUES (3, 2), (13, 2)")
            connection.execute("COMMIT")
            connection.execute("BEGIN")
            connection.execute(altered)
            connection.execute("INSERT INTO t VALUES (14, 2)")
            connection.execute(f"PREPARE TRANSACTION '{other}'".encode())
            connection.execute(f"ROLLBACK PREPARED '{other}'".encode())

            # Another database with triggers and a key of its own, and the same names in it.
            with psycopg.connect(
                make_conninfo(database.dsn, dbname=other), autocommit=True
            ) as elsewhere:
                elsewhere.execute(f"{TABLES} {INSTALL}".encode())
                oid = int(value_of(connection, "SELECT 't'::regclass::oid::bigint"))
                elsewhere.execute(altered)
                elsewhere.execute(
                    "SELECT pgsluice.emit('pgsluice.publications', %s)", (forged("(a > 0)", oid),)
                )
                elsewhere.execute(
                    "SELECT pgsluice.emit('pgsluice.rewritten', %s)",
                    (json.dumps({"tables": [oid]}),),
                )

            # Nested in a message that is believed: what stands inside is text.
            evil.execute(
                "SELECT pg_logical_emit_message(true, 'pgsluice.publications', repeat(%s, 3))",
                (forged("(a > 0)", oid),),
            )
            connection.execute("INSERT INTO t VALUES (4, 4), (16, 4)")
            ended = s.run_to(current_lsn(connection))
        finally:
            connection.execute(f"DROP DATABASE {other} WITH (FORCE)".encode())

    assert [row[0] for row in s.rebuilt("t")] == [1, 2, 3, 4], ended.err
    assert [record.op for record in s.read("t")].count("t") == 1
