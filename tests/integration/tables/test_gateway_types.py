"""Settings of ``[types]`` over topics that exist, and values that only text can carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.process import Read
from tests.support.gateway.scene import Connection, Scene, current_lsn
from tests.support.models.rebuild import Rebuilt

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]

DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE t; CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
)
FIRST, SECOND = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        yield connection


def values(records: list[Read], column: str) -> list[Any]:
    """Values of a column in the rows that were copied and inserted, in order."""
    rows = [record.value for record in records if record.op in ("r", "c")]
    return [value["after"][column] for value in rows if value is not None]


def copies_begun(scene: Scene) -> int:
    return sum(record.op == "t" for record in scene.read("t"))


@pytest.mark.parametrize(
    ("setting", "kind", "texts", "first"),
    [
        ("numeric", "numeric(10,2)", ("1.50", "2.50"), Decimal("1.50")),
        ("uuid", "uuid", (FIRST, SECOND), UUID(FIRST)),
    ],
)
def test_a_type_that_the_registry_accepts_counts_from_the_next_start_on(
    scene: MakeScene,
    source: Connection,
    setting: str,
    kind: str,
    texts: tuple[str, str],
    first: object,
) -> None:
    source.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {kind})".encode())
    source.execute("INSERT INTO t VALUES (1, %s)", (texts[0],))
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (2, %s)", (texts[1],))
    s.project.extra = {"types": {setting: "text"}}
    s.run_to(current_lsn(source))

    assert values(s.read("t"), "v") == [first, texts[1]]
    assert copies_begun(s) == 1


@pytest.mark.parametrize(
    ("setting", "kind", "mode", "text"),
    [
        ("date", "date", "text", "2024-02-29"),
        ("time", "time", "native", "12:34:56"),
        ("arrays", "int[]", "native", "{1,NULL}"),
    ],
)
def test_a_type_that_the_registry_refuses_needs_another_topic(
    scene: MakeScene, source: Connection, setting: str, kind: str, mode: str, text: str
) -> None:
    source.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {kind})".encode())
    source.execute("INSERT INTO t VALUES (1, %s)", (text,))
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (2, %s)", (text,))
    end = current_lsn(source)
    s.project.extra = {"types": {setting: mode}}
    refused = s.cli("run", "--endpos", end)
    other = f"{s.slot}.again"
    s.project.extra = {**s.project.extra, "topics.names": {s.topic("t"): other}}
    s.run_to(end)

    assert refused.code == 1
    assert f"refuses the schema of subject {s.topic('t')}-value" in refused.err
    (before,) = values(s.read("t"), "v")
    rows = Rebuilt().apply(s.reader.read(other)).rows()
    assert [row[0] for row in rows] == [1, 2]
    assert isinstance(before, str) is (mode == "native")
    assert {isinstance(row[1], str) for row in rows} == {mode == "text"}


def test_a_table_whose_key_is_carried_in_another_type_is_copied_again(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("CREATE TABLE t (id uuid PRIMARY KEY, n int)")
    source.execute("INSERT INTO t VALUES (%s, 1)", (FIRST,))
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (%s, 2)", (SECOND,))
    s.project.extra = {"types": {"uuid": "text"}}
    s.run_to(current_lsn(source))
    source.execute("DELETE FROM t WHERE n = 1")
    s.run_to(current_lsn(source))

    assert copies_begun(s) == 2
    assert s.rebuilt("t") == [(SECOND, 2)]


@pytest.mark.parametrize("postgres_major", [17], indirect=True)
def test_a_domain_over_a_type_of_an_extension_is_carried_as_that_type(
    scene: MakeScene, source: Connection
) -> None:
    source.execute(
        "CREATE EXTENSION hstore; CREATE EXTENSION citext;"
        "CREATE DOMAIN pairs AS hstore; CREATE DOMAIN code AS citext; CREATE DOMAIN short AS code;"
        "CREATE TABLE t (id short PRIMARY KEY, v pairs, codes short[])"
    )
    source.execute("""INSERT INTO t VALUES ('a', '"a"=>"1", "b"=>NULL', '{x,NULL}')""")
    s = scene(DEFINITIONS, types={"hstore": "native", "arrays": "native"})
    s.run_to("0/1")
    source.execute("UPDATE t SET id = 'A', v = '' WHERE id = 'A'")
    s.run_to(current_lsn(source))

    assert values(s.read("t"), "v") == [{"a": "1", "b": None}, {}]
    assert values(s.read("t"), "codes") == [["x", None]] * 2
    assert s.rebuilt("t") == [("A", {}, ["x", None])]


@pytest.mark.parametrize("postgres_major", [17], indirect=True)
def test_an_extension_and_types_that_move_and_grow_leave_the_values_what_they_are(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("CREATE EXTENSION hstore VERSION '1.4'; CREATE TYPE mood AS ENUM ('ok')")
    source.execute("CREATE TABLE t (id int PRIMARY KEY, v hstore, m mood)")
    source.execute("INSERT INTO t VALUES (1, 'a=>1', 'ok')")
    s = scene(DEFINITIONS, types={"hstore": "native"})
    s.run_to("0/1")
    source.execute("ALTER EXTENSION hstore UPDATE; CREATE SCHEMA other")
    source.execute("ALTER EXTENSION hstore SET SCHEMA other; ALTER TYPE mood RENAME TO temper")
    source.execute("ALTER TYPE temper SET SCHEMA other")
    source.execute("INSERT INTO t VALUES (2, 'b=>2'::other.hstore, 'ok')")
    s.run_to(current_lsn(source))

    assert values(s.read("t"), "v") == [{"a": "1"}, {"b": "2"}]
    assert values(s.read("t"), "m") == ["ok", "ok"]
    assert copies_begun(s) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("numeric(10,4)", "1.5"), ("uuid", f"'{FIRST}'")),
        (("bytea", "'\\x00'"), ("jsonb", "'{}'")),
        (("int", "1"), ("timestamptz", "'2024-02-29'")),  # the registry takes one order alone
    ],
)
def test_rows_from_before_another_type_have_the_type_that_they_had(
    scene: MakeScene, source: Connection, before: tuple[str, str], after: tuple[str, str]
) -> None:
    source.execute(f"CREATE TABLE t (id int PRIMARY KEY, v {before[0]})".encode())
    s = scene(DEFINITIONS)
    s.run_to("0/1")
    source.execute(f"INSERT INTO t VALUES (1, {before[1]})".encode())
    source.execute(f"ALTER TABLE t ALTER v TYPE {after[0]} USING {after[1]}::{after[0]}".encode())
    source.execute(f"INSERT INTO t VALUES (2, {after[1]})".encode())
    s.run_to(current_lsn(source))

    # Each record is read by the schema that its ID names.
    rows = s.rebuilt("t")
    assert [row[0] for row in rows] == [1, 2]
    assert rows[0][1] == rows[1][1] is not None
    if before[0] == "numeric(10,4)":
        assert values(s.read("t"), "v")[0] == Decimal("1.5000")


def test_an_array_of_several_dimensions_is_no_dead_end(
    scene: MakeScene, source: Connection
) -> None:
    source.execute("CREATE TABLE t (id int PRIMARY KEY, tags int[])")
    s = scene(DEFINITIONS, types={"arrays": "native"})
    s.run_to("0/1")
    source.execute("INSERT INTO t VALUES (1, '{{1,2}}'), (2, '{1,NULL}'), (3, '{}'), (4, NULL)")
    end = current_lsn(source)
    stopped = s.cli("run", "--endpos", end)
    s.project.extra = {**s.project.extra, "on_error": {"value": "quarantine"}}
    s.run_to(end)

    assert stopped.code == 1
    assert "public.t, column tags: an array cannot be carried by an Avro array" in stopped.err
    assert '[types.columns] "public.t.tags" = "text"' in stopped.err
    assert s.rebuilt("t") == [(2, [1, None]), (3, []), (4, None)]
    (error,) = (record.value for record in s.reader.read(f"{s.slot}.error"))
    assert error is not None
    assert (error["kind"], error["effect"], error["key"]) == ("value", "missing", {"id": "1"})
