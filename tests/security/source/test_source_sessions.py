"""The gateway's sessions on the source run PostgreSQL's own code, and nobody else's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import postgast
import psycopg
import pytest
from postgast import pg_query_pb2 as pb

from gateway.commands.verify.source import SourceReader, SourceTable
from gateway.copy import ChunkRequest
from gateway.copy.lines import row_of
from gateway.definitions.model import Table
from gateway.source.catalog.tables import read_tables
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.source.copy.errors import TableChanged
from gateway.source.copy.literals import UnsafeType
from gateway.source.copy.queries import check_condition
from gateway.source.session import session
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Connection,
    Scene,
    cli,
    current_lsn,
    value_of,
    wait_until_confirmed,
    wait_until_slot_is_free,
)
from tests.support.workloads.hostile import hostile, make_trap, plain_connection, sprung

MakeScene = Callable[..., Scene]

pytestmark = pytest.mark.postgres

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE TABLE t (id int PRIMARY KEY, region text, v numeric, m mood, at timestamptz);
ALTER TABLE t REPLICA IDENTITY FULL;
INSERT INTO t SELECT n, CASE n % 2 WHEN 0 THEN 'NSW' ELSE 'VIC' END, n, 'sad', now()
FROM generate_series(1, 50) AS n;
CREATE TABLE tree (id int, region text, PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE tree_nsw PARTITION OF tree FOR VALUES IN ('NSW');
CREATE TABLE keyless (v text);
ALTER TABLE keyless REPLICA IDENTITY FULL;
INSERT INTO tree SELECT n, 'NSW' FROM generate_series(1, 9) AS n;
INSERT INTO keyless VALUES ('a');
CREATE SCHEMA other;
CREATE TABLE other.u (id int PRIMARY KEY);
CREATE PUBLICATION theirs FOR TABLE t WHERE (region ~ '^N'), TABLES IN SCHEMA other;
"""
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t WHERE (region = 'NSW' AND v > 2), TABLE tree, keyless"
    " WITH (publish_via_partition_root = true);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_theirs CONNECTION '' PUBLICATION theirs;"
)


@pytest.mark.kafka
@pytest.mark.java
def test_nothing_that_shadows_a_name_of_postgresql_is_used(
    scene: MakeScene, database: Database, tmp_path: Path
) -> None:
    made = scene(DEFINITIONS, filters={"pushdown": False}, copy={"chunk_rows": 10})
    with plain_connection(database) as connection:
        connection.execute(TABLES.encode())
        make_trap(connection)
        with hostile(database):
            assert walks_into_the_trap(database), "the trap does not work"
            assert len(sprung(connection)) == 4, "to_jsonb, text, pg_class, ="
            log = Path(value_of(connection, "SHOW data_directory")).with_name("log")
            begin = log.stat().st_size if log.is_file() else 0
            connection.execute(f"ALTER DATABASE \"{database.name}\" SET log_statement = 'all'")

            ended = [cli("init", database.dsn, "--folder", str(tmp_path / "made"))]
            ended += [made.cli("schemas"), made.cli("schemas", "--asyncapi"), made.cli("check")]
            ended += [made.cli("run", "--endpos", current_lsn(connection))]
            wait_until_slot_is_free(connection, made.slot)
            with made.project.start() as gateway:
                connection.execute("UPDATE t SET v = v + 1; INSERT INTO tree VALUES (10, 'NSW')")
                connection.execute("ALTER PUBLICATION theirs SET TABLE t, other.u")
                wait_until_confirmed(connection, made.slot)
                ended += [made.cli("copy", "t", "--subscription", made.slot)]
                made.project.definitions = made.project.definitions.replace("v > 2", "v > 3")
                ended += [made.cli("reload"), made.cli("status")]
                assert gateway.terminate() == 0, gateway.log()
            wait_until_slot_is_free(connection, made.slot)
            for row in ("(1,NSW,5,sad,now)", '{"id": 1, "region": "NSW"}', "7"):
                ended += [made.cli("explain", "t", row)]
            ended += [made.cli("explain", "public.tree", "id=7,region=NSW")]
            ended += [made.cli("tail", f"{made.slot}.t", "--from-beginning", "--no-follow")]
            with SourceReader(database.dsn, 3) as reader:
                for name in ("t", "tree"):
                    columns = ("id", "region")
                    source = SourceTable(_table(connection, name), (), columns, columns[:1])
                    assert list(reader.rows(source))
            ended += [made.cli("takeover", made.slot), made.cli("slot", "drop", "--yes")]
        found = sprung(connection)
        wanted = made.source_rows("SELECT id FROM t WHERE region = 'NSW' AND v > 3")

    assert [one for one in ended if one.code] == []
    assert found == []
    assert {row[0] for row in made.rebuilt("t")} == {row[0] for row in wanted}
    if log.is_file():  # not in a container
        _assert_qualified(log, begin)


def walks_into_the_trap(database: Database) -> bool:
    """Whether a session of this name that does not look out runs foreign code."""
    with psycopg.connect(
        database.dsn, autocommit=True, application_name="pgsluice test"
    ) as connection:
        for statement in ("SELECT to_jsonb('a'::text)", "SELECT FROM pg_class", "SELECT 1 = 1"):
            try:
                connection.execute(statement)
            except psycopg.errors.RaiseException:
                continue
            except psycopg.Error:
                return False
    return True


def _table(connection: Connection, name: str) -> Table:
    oid = value_of(connection, "SELECT %s::regclass::oid", name)
    return read_tables(connection, [oid])[oid]


_LINE = re.compile(r"LOG:  (?:statement|execute [^:]*): (.*)", re.DOTALL)


def _assert_qualified(log: Path, begin: int) -> None:
    """Every function and relation that a session of the gateway has named has its schema."""
    seen = 0
    written = log.read_bytes()[begin:].decode(errors="replace")
    for entry in re.split(r"\n(?=\d{4}-\d\d-\d\d )", written):
        found = _LINE.search(entry)
        if found is None or "] pgsluice" not in entry:
            continue
        statement = found[1].replace("\n\t", "\n")
        if statement.startswith(("CREATE_REPLICATION_SLOT", "START_REPLICATION", "DROP_REPL")):
            continue
        tree = postgast.parse(statement)
        seen += 1
        names = {one.ctename for one in postgast.find_nodes(tree, pb.CommonTableExpr)}
        for call in postgast.find_nodes(tree, pb.FuncCall):
            assert len(call.funcname) > 1, statement
        for relation in postgast.find_nodes(tree, pb.RangeVar):
            assert relation.schemaname or relation.relname in names, statement
    assert seen > 100


ATTACKS = """
CREATE TYPE mood AS ENUM ('sad', 'glad');
CREATE FUNCTION as_text(mood) RETURNS text LANGUAGE sql AS
    $$SELECT CASE WHEN trap.spring('cast to text') THEN 'x' END$$;
CREATE FUNCTION as_mood(text) RETURNS mood LANGUAGE sql AS
    $$SELECT CASE WHEN trap.spring('cast from text') THEN 'sad'::mood END$$;
CREATE CAST (mood AS text) WITH FUNCTION as_text(mood);
CREATE CAST (text AS mood) WITH FUNCTION as_mood(text);
CREATE DOMAIN evil AS int CHECK (trap.spring('check'));
CREATE DOMAIN worse AS evil CHECK (trap.spring('check'));
CREATE TYPE pair AS (a evil, b int);
CREATE TABLE d (k worse, m mood, a evil[], p pair, PRIMARY KEY (k, m));
INSERT INTO d SELECT n, 'sad', ARRAY[n], format('(%s,%s)', n, n)::pair
FROM generate_series(1, 30) AS n;
CREATE TABLE a (k evil[] PRIMARY KEY);
INSERT INTO a SELECT ARRAY[n] FROM generate_series(1, 30) AS n;
CREATE TABLE c (k pair PRIMARY KEY);
CREATE TABLE r (id regclass, f regprocedure, t regtype, v int, PRIMARY KEY (id, f));
INSERT INTO r VALUES ('d', 'as_text(mood)', 'mood', 1), ('a', 'as_text(mood)', 'pair', 1);
INSERT INTO c SELECT format('(%s,%s)', n, n)::pair FROM generate_series(1, 3) AS n;
"""


@pytest.mark.kafka
@pytest.mark.java
def test_types_and_casts_of_a_user_run_nothing(scene: MakeScene, database: Database) -> None:
    made = scene(
        "CREATE PUBLICATION p FOR TABLE d, a, r;"
        "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
        copy={"chunk_rows": 7},
    )
    with plain_connection(database) as connection:
        make_trap(connection)
        connection.execute(ATTACKS.encode())
        made.run_to(current_lsn(connection))
        connection.execute("UPDATE r SET v = 2; DELETE FROM r WHERE id = 'a'::regclass")
        made.run_to(current_lsn(connection))
        explained = [
            made.cli("explain", "d", row)
            for row in ("k=7,m=sad", '{"k": 9, "m": "sad", "a": [1]}', "(9,glad,,)")
        ]
        refused = made.cli("explain", "d", '{"k": 9, "m": "sad", "p": {"a": 1}}')
        with SourceReader(database.dsn, 7) as reader:
            for name, key in (("d", ("k", "m")), ("a", ("k",))):
                source = SourceTable(_table(connection, name), (), key, key)
                assert len(list(reader.rows(source))) == 30
                assert [len(rows) for rows in reader.keyed_rows([(source, KEYS[name])])[1]] == [2]
        with ChunkReader(database.dsn) as chunks, pytest.raises(UnsafeType, match="evil"):
            source_of = ChunkSource(_table(connection, "c"), ("k",), ("k",))
            chunks.read(source_of, ChunkRequest(True, None, ()), 2)
        found = sprung(connection)

    assert found == []
    assert [one.code for one in explained] == [0, 0, 0], explained
    assert "k=7 m=sad a={7} p=(7,7)" in explained[0].out
    assert "k=9 m=sad a={1} p=NULL" in explained[1].out
    assert refused.code == 2 and "would run code of its owner" in refused.err
    assert len(made.rebuilt("d")) == len(made.rebuilt("a")) == 30
    # As a native subscription's connection prints them, whose search_path is empty.
    assert made.rebuilt("r") == [("public.d", "public.as_text(public.mood)", "public.mood", 2)]


KEYS = {"d": [["3", "sad"], ["4", "sad"], ["99", "sad"]], "a": [["{3}"], ["{4}"], ["{99}"]]}


@pytest.mark.parametrize("restricts", [True, False])
def test_a_view_that_takes_the_name_of_a_table_is_not_read(
    database: Database, monkeypatch: pytest.MonkeyPatch, restricts: bool
) -> None:
    if not restricts:  # an older minor release: the table is locked, then looked at
        monkeypatch.setitem(session._RESTRICTS_SINCE, database.server.major, 999999)
    with plain_connection(database) as connection, ChunkReader(database.dsn) as reader:
        make_trap(connection)
        connection.execute(
            "CREATE TABLE t (id int PRIMARY KEY);INSERT INTO t SELECT * FROM generate_series(1, 20)"
        )
        table = _table(connection, "t")
        source = ChunkSource(table, ("id",), ("id",))
        narrowed = ChunkSource(table, ("id",), ("id",), narrow=("id > 3",))
        first = reader.read(source, ChunkRequest(True, None, ()), 5)
        assert [list(row_of(row)) for row in first.rows] == [[b"%d" % n] for n in range(1, 6)]
        assert reader.narrows(narrowed) in (True, False)
        connection.execute(
            "ALTER TABLE t RENAME TO t_old;"
            "CREATE VIEW t AS SELECT id FROM t_old WHERE trap.spring('view')"
        )

        rest = ChunkRequest(True, first.last, ())
        with SourceReader(database.dsn, 5) as verify:
            for read in (
                lambda: reader.read(source, rest, 5),
                lambda: reader.read(narrowed, rest, 5),
                lambda: reader.border(source, rest, 5),
                lambda: reader.read(ChunkSource(table, ("id",), ()), rest, 5),
            ):
                with pytest.raises(TableChanged):
                    read()
            try:
                assert not reader.narrows(narrowed)
            except TableChanged:
                assert not restricts
            with pytest.raises(Exception, match=r"restricted|another table"):
                list(verify.rows(SourceTable(table, (), ("id",), ("id",))))
        with psycopg.connect(database.dsn, application_name="pgsluice") as other:
            session.restrict(other)
            other.commit()
            try:
                assert check_condition(other, table, "id > 3") is not None
            except TableChanged:
                assert not restricts
        found = sprung(connection)

    assert found == []
