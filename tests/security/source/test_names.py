"""Names that other roles choose: in definitions, statements and metrics, in any encoding."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast
from urllib.request import urlopen

import postgast
import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg import sql
from psycopg.conninfo import make_conninfo

from devkit.embedded.processes import free_port
from gateway.commands.init import quoted
from gateway.commands.status import show_status
from gateway.commands.verify.source import SourceReader, SourceTable
from gateway.config import Settings
from gateway.core.display import NOT_IN_A_LINE
from gateway.core.identifiers import quote_identifier
from gateway.core.lsn import Lsn
from gateway.core.watermark import hint_of
from gateway.definitions.changes import copy_states
from gateway.definitions.combine import make_plan
from gateway.definitions.identity import find_identity_problems, problems_text
from gateway.definitions.membership import Membership
from gateway.definitions.model import Catalog, Operation, Publication, Table
from gateway.definitions.sql.parser import parse_definitions
from gateway.monitor.metrics import Exposition
from gateway.monitor.page.document import fragment
from gateway.monitor.status import Status, TableStatus, table_problem, tables_of
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.runtime.planning.table_checks import adding
from gateway.source.catalog.tables import read_tables
from schemas.table_names import quoted_name
from tests.security.conftest import Attacker
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, cli, wait_until_confirmed
from tests.support.run.waiting import wait_until
from tests.unit.monitor.figures import status

DEFINITIONS = (
    "CREATE PUBLICATION p FOR ALL TABLES; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
SUBSCRIBE = "\nCREATE SUBSCRIPTION e CONNECTION '' PUBLICATION s_tables;--"
DROP = "x; DROP TABLE t; --"
EVIL = 'a\r\n\x1b[2J\x7f\x9b31m\u202e"\\'


@pytest.mark.postgres
@pytest.mark.kafka
def test_a_name_becomes_no_statement_of_somebody_who_can_do_more(
    scene: Callable[..., Scene], database: Database, attacker: Attacker, tmp_path: Path
) -> None:
    with database.connect() as connection:
        connection.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
    with attacker.connect() as mallory:
        for name, column in (
            ("key", f"k{SUBSCRIBE}"),
            (f"none{SUBSCRIBE[:-1]}", "a"),
            (f"u{SUBSCRIBE}", "a"),
            (DROP, "a"),
        ):
            names = sql.Identifier(name), sql.Identifier(column)
            mallory.execute(
                sql.SQL("CREATE {} TABLE {} ({} int {}, b text)").format(
                    sql.SQL("UNLOGGED" if name[0] == "u" else ""),
                    *names,
                    sql.SQL("" if name[0] == "n" else "PRIMARY KEY"),
                )
            )

    made = cli("init", database.dsn, "--folder", str(tmp_path / "shop"), "--subscription", "s")
    text = (tmp_path / "shop" / "replication.sql").read_text()
    checked = scene(DEFINITIONS).cli("check")

    assert made.code == 0, made.err
    assert [each.name for each in parse_definitions(text).subscriptions] == ["s"], text
    assert f'ALTER TABLE public."{DROP}" REPLICA IDENTITY FULL' in checked.out
    assert "ALTER TABLE public.x;" not in checked.out


def test_a_table_is_put_into_a_publication_by_one_line_that_names_it() -> None:
    nothing = ReplicaIdentity.NOTHING
    for schema, name in ((EVIL, "t"), ("public", EVIL), ("public", DROP), ("a.b", "select")):
        statement = adding(EVIL, Table(1, schema, name, "r", (), nothing, (), ()))

        assert NOT_IN_A_LINE.search(statement) is None
        (parsed,) = postgast.parse(statement).stmts
        altered = parsed.stmt.alter_publication_stmt
        relation = altered.pubobjects[0].publication_obj_spec.pubtable.relation
        assert (altered.pubname, relation.schemaname, relation.relname) == (EVIL, schema, name)


def test_definitions_name_a_table_without_a_character_that_acts() -> None:
    table = Table(1, "public", EVIL, "r", (), ReplicaIdentity.NOTHING, (), ())
    written = quoted(table)

    (publication,) = parse_definitions(
        f"CREATE PUBLICATION p FOR TABLE {written};"
        "CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;"
    ).publications

    assert NOT_IN_A_LINE.search(written) is None
    assert [(one.schema, one.name) for one in publication.tables] == [("public", EVIL)]


@pytest.mark.postgres
def test_names_in_suggested_statements_are_quoted_as_postgresql_does(database: Database) -> None:
    odd = [DROP, EVIL, "", "a", "_a1", "1a", "a$", "A", "\u00e9", 'a"b', "a b", "a.b", "a\n"]
    with database.connect() as connection:
        words = [word for (word,) in connection.execute("SELECT word FROM pg_get_keywords()")]
        for name, quoted in connection.execute(
            "SELECT n, quote_ident(n) FROM unnest(%s::text[]) AS n", ([*odd, *words],)
        ):
            assert quote_identifier(name) == quoted


def test_names_in_suggested_commands_are_one_word_for_the_shell() -> None:
    for cause in ("lost", "partitions"):
        hint = hint_of(cause, ("public", "x; touch /tmp/$(id)'`"))
        command = hint.partition("then `")[2].rpartition("`")[0]
        assert shlex.split(command) == ["pgsluice", "copy", """public."x; touch /tmp/$(id)'`\""""]


@pytest.mark.parametrize(
    ("schema", "name", "leaf"),
    [
        pytest.param("a.b", "{}", "", id="a schema with a dot"),
        pytest.param("public", "root", "{}", id="a partition"),
        pytest.param("public", "x\n{}", "", id="a line feed"),
        pytest.param("public", '"{}', "", id="quotes"),
    ],
)
def test_no_name_of_another_role_chooses_the_remedy(schema: str, name: str, leaf: str) -> None:
    for evil in (
        *("t", "(GRANT ", "(ALTER ROLE mallory SUPERUSER)", "row security hides rows"),
        *("[topics.keys] permission denied a lock on it is held by", "refuses the schema"),
    ):
        names = (each.format(evil) for each in (schema, name, leaf))
        problem = table_problem(held_for_its_identity(*names))

        assert problem is not None and evil in problem.message
        assert (problem.hint or "").startswith("let the replica identity have what"), problem.hint
        assert "mallory" not in (problem.hint or "")


def held_for_its_identity(schema: str, name: str, leaf: str) -> TableStatus:
    """Status of a table that has no replica identity, or whose partition has none."""
    nothing = ReplicaIdentity.NOTHING
    tables = {1: Table(1, schema, name, "r", (), nothing, (), ())}
    if leaf:
        tables = {
            1: replace(tables[1], kind="p", leaves=(2,)),
            2: Table(2, schema, leaf, "r", (), nothing, (), (), ancestors=(1,)),
        }
    plan = make_plan(
        parse_definitions(DEFINITIONS.format(s="s")),
        Catalog(tables, {"p": Publication("p", frozenset(Operation), True, True, (), ())}),
        prefix="slot",
        missing_identity="refuse",
        holdable=lambda *_: True,
    )
    (state,) = copy_states(plan, (), reconcile=True)
    (found,) = tables_of([state], lambda _: None)
    return found


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x1c", "\x85", "\u2028", "\u2029"])
def test_no_line_of_a_hint_is_what_the_owner_of_a_table_wrote(
    end: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = ("public", f"x{end}ALTER ROLE mallory SUPERUSER;{end}\\'y")
    name = ".".join(table)
    tables = [TableStatus("s", name, "held", reason="lost", cause="lost", parts=table)]
    reported = replace(status(), tables=tables)
    monkeypatch.setattr("gateway.commands.status.read_status", lambda settings: reported)

    show_status([cast("Settings", None)])

    (line,) = (line for line in capsys.readouterr().out.splitlines() if "->" in line)
    command = line.partition("then `")[2].rpartition("`")[0]
    run = ["bash", "-c", f"printf '%s|' {command}"]
    said = subprocess.run(run, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}).stdout
    assert said.decode().split("|") == ["pgsluice", "copy", quoted_name(table), ""]
    gateway = {"name": "gw", "phase": "streaming", "lag_seconds": None, "records": 0}
    text = fragment(reported.as_json() | {"gateway": gateway, "log": []}, ())
    assert "<p>ALTER" not in text and text.count("<p>find out why") == 1


@pytest.mark.parametrize("identity", [ReplicaIdentity.NOTHING, ReplicaIdentity.DEFAULT])
def test_a_table_without_an_identity_writes_no_line_of_an_error(identity: ReplicaIdentity) -> None:
    name = "x\nALTER ROLE mallory SUPERUSER;"
    table = Table(1, "public", name, "r", (), identity, (), ())
    publication = Publication("p", frozenset(Operation), False, True, (), ())
    members = Membership(Catalog({1: table}, {"p": publication}))

    errors = [error for _, error in find_identity_problems(members, [publication], table, "")]

    assert errors and "\\nALTER ROLE" in problems_text(errors)
    assert "\nALTER" not in problems_text(errors)


@pytest.mark.postgres
@pytest.mark.kafka
def test_a_transaction_of_another_database_has_a_name_in_any_encoding(
    scene: Callable[..., Scene], database: Database
) -> None:
    name, gid = f"latin_{database.name}", sql.Literal(f"caf\u00e9_{database.name}")
    port = free_port()

    def is_named() -> bool:
        return any(r"caf\\xe9_" in each for each in awaited(port))

    with database.connect() as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY)")
        connection.execute(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0"
            " LC_COLLATE 'C' LC_CTYPE 'C'".encode()
        )
        try:
            s = scene(DEFINITIONS, http={"listen": f"127.0.0.1:{port}"})
            with psycopg.connect(make_conninfo(database.dsn, dbname=name), autocommit=True) as far:
                far.execute("CREATE TABLE t (a int); BEGIN; INSERT INTO t VALUES (1)")
                far.execute(sql.SQL("PREPARE TRANSACTION {}").format(gid))
                try:
                    checked = s.cli("check")
                    gateway = s.project.start()
                    # It waits for one after the other, also for those of other tests.
                    wait_until(is_named, 60, "the slot to wait")
                finally:
                    far.execute(sql.SQL("ROLLBACK PREPARED {}").format(gid))
            gateway.wait_until_copied()
            connection.execute("INSERT INTO t VALUES (1)")
            wait_until_confirmed(connection, s.slot)
            assert gateway.terminate() == 0
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
    assert checked.code == 0, checked.err
    assert r"caf\\xe9_" in checked.out


def awaited(port: int) -> list[str]:
    """What the gateway says on ``/status`` that it waits for."""
    with suppress(OSError), urlopen(f"http://127.0.0.1:{port}/status") as answer:
        return [name for wait in json.load(answer).get("waits", ()) for name in wait["awaited"]]
    return []


def test_the_labels_of_metrics_are_escaped_and_each_is_there_once() -> None:
    tables = [
        TableStatus("s", f"public.{EVIL}", "held", 0),
        *(TableStatus("s", "a.b.c", "ready", n) for n in (1, 2)),  # b.c of a, and c of a.b
    ]
    status = Status("slot", None, Lsn(1), Lsn(1), tuple(tables))

    text = Exposition(lambda: None, lambda: status, dict, "slot").text().decode()

    assert text.isascii()
    assert "\x1b" not in text and "\r" not in text and "\x7f" not in text
    found = [
        (sample.name, *sample.labels.values())
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(set(found)) == len(found)


@pytest.mark.postgres
def test_verify_reads_what_names_and_collations_of_others_say(
    database: Database, attacker: Attacker
) -> None:
    schema, table, column = 'm%s"; --', "t'; DROP TABLE x; --", 'k%(x)s"'
    keys = ["%s", "'", "\\x", "a;b", "$$"]
    names = [sql.Identifier(name) for name in (schema, "c%(x)s'", table, column)]
    in_schema, _, named, _ = names
    with database.connect() as connection, attacker.connect() as evil:
        connection.execute(f"GRANT CREATE ON DATABASE {database.name} TO {attacker.name}".encode())
        for statement in (
            "CREATE SCHEMA {0}",
            "CREATE COLLATION {0}.{1} (locale = 'C')",
            "CREATE TABLE {0}.{2} ({3} text COLLATE {0}.{1} NOT NULL)",
            "CREATE UNIQUE INDEX i ON {0}.{2} ({3} COLLATE {0}.{1})",
            "ALTER TABLE {0}.{2} REPLICA IDENTITY USING INDEX i",
        ):
            evil.execute(sql.SQL(statement).format(*names))
        insert = sql.SQL("INSERT INTO {}.{} VALUES ({})")
        for key in keys:
            evil.execute(insert.format(in_schema, named, sql.Literal(key)))
        oid = connection.execute("SELECT oid FROM pg_class WHERE relname = %s", [table]).fetchone()
        assert oid is not None
        found = read_tables(connection, [oid[0]])[oid[0]]
        source = SourceTable(found, (), (column,), (column,))
        with SourceReader(database.dsn, 2) as reader:
            rows = list(reader.rows(source))
            _, (asked,) = reader.keyed_rows([(source, [[key] for key in keys[:2]])])
    assert len(rows) == len(keys)
    assert len(asked) == 2
