"""Random values that a server renders, through Avro and Spark, and back to the server.

Whether what comes back is the same is for the server to say: by its own ``=``, and by its text.
A run takes one envelope and format, and has each type as itself or in an array; ``make test-all``
takes all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from gateway.commands.consume import consumer_settings
from gateway.config import load_settings
from schemas.settings.tables import TYPE_CHOICES
from spark_consumer.job.job import run
from spark_consumer.names import quoted
from spark_consumer.values.conversions import printed_sql
from tests.support.gateway.scene import Scene, running, scene
from tests.support.run.seeds import ALL, in_turn, setseed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [
    *(pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres),
    *(pytest.mark.seeded, pytest.mark.slow),
]

TABLES = ("scalars", "arrays", "bag", "keyed")
DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE scalars, arrays, bag, keyed;
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""
TYPES = """
CREATE TYPE mood AS ENUM ('sad', 'so so', 'NULL');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN hour AS time;
CREATE DOMAIN price AS numeric(12,3);
CREATE DOMAIN spans AS int4multirange;
CREATE DOMAIN counts AS int[];
CREATE DOMAIN prices AS numeric(12,3)[];
"""
TEXTS = r"""ARRAY['', 'NULL', 'null', 'a"b', 'a\b', '{x}', 'x,y', ' sp ', E'\n', E'\v', 'é',
    'it''s', 'plain', '\x41', E'a\u00a0b']"""
FLOATS = "ARRAY['NaN', '-0', 'Infinity', '-Infinity', '0.1', '1e30', '-2.5']"
VALUES = {
    "boolean": "random() < 0.5",
    "int": "((random() - 0.5) * 4e9)::int",
    "bigint": "((random() - 0.5) * 2 ^ (random() * 64))::bigint",
    "real": f"({FLOATS})[1 + floor(random() * 7)]::real",
    "float8": f"({FLOATS})[1 + floor(random() * 7)]::float8 * (1 + random())",
    "numeric(12,3)": "((random() - 0.5) * 1e9)::numeric(12,3)",
    "numeric": "((random() - 0.5) * 10 ^ (random() * 40))::numeric",
    "bytea": "decode(left(md5(random()::text), 2 * floor(random() * 5)::int), 'hex')",
    "date": "date '1900-01-01' + (random() * 80000)::int",
    "timestamp": "timestamp '1900-01-01' + random() * interval '200 years'",
    "timestamptz": "timestamptz '1900-01-01' + random() * interval '200 years'",
    "uuid": "md5(random()::text)::uuid",
    "time": "time '00:00' + random() * interval '86399 s'",
    "hour": "time '00:00' + floor(random() * 24) * interval '1 h'",
    "price": "((random() - 0.5) * 1e9)::price",
    "text": f"({TEXTS})[1 + floor(random() * 15)]",
    "varchar(9)": f"({TEXTS})[1 + floor(random() * 15)]",
    "mood": "(enum_range(NULL::mood))[1 + floor(random() * 3)]",
    "interval": "(random() - 0.5) * interval '40 mons' + (random() - 0.5) * interval '80 days'"
    " + (random() - 0.5) * interval '300 hours'",
    "jsonb": "jsonb_build_object('a', random() < 0.5, 'b\"', ARRAY[1, NULL])",
    "int4range": "int4range(1, 2 + (random() * 9)::int) * int4range((random() * 9)::int, NULL)",
    "int8range": "int8range(NULL, (random() * 2 ^ 62)::bigint)",
    "numrange": "numrange(1.10, 2 + round(random()::numeric, 2), '(]')",
    "daterange": "daterange('-infinity', date '2024-01-01' + (random() * 80000)::int)",
    "tsrange": "tsrange(timestamp '2024-01-01' + random() * interval '200 years', 'infinity')",
    "tstzrange": "tstzrange(timestamptz '2024-01-01 UTC' - random() * interval '9 years', NULL)",
    "int4multirange": "int4multirange(int4range(1, 3), int4range(5, 6 + (random() * 9)::int))",
    "tstzmultirange": "tstzmultirange(tstzrange('2024-01-01 UTC', '2024-01-01 UTC'::timestamptz"
    " + random() * interval '9 years'), tstzrange('infinity', NULL))",
    "spans": "int4multirange(int4range((random() * 9)::int, NULL))",
    "pair": f"ROW((random() * 9)::int, ({TEXTS})[1 + floor(random() * 15)])::pair",
    "box": "box(point(random(), 1), point(2, random()))",
}
"""Random values by type; the infinities of dates and times have tests of their own."""
DOMAINS = {"counts": "int", "prices": "numeric(12,3)"}


def array_of(value: str) -> str:
    """SQL of a random array: NULL, empty, or of up to four items, of which some are NULL."""
    items = f"SELECT CASE WHEN random() > 0.2 AND g > 0 THEN {value} END"
    return (
        f"CASE WHEN random() > 0.1 THEN ARRAY({items} FROM generate_series(1,"
        " (random() * 4)::int + 0 * n) AS g) END"
    )


SCALARS = {name: f"CASE WHEN random() > 0.1 THEN {value} END" for name, value in VALUES.items()}
ARRAYS = {f"{name}[]": array_of(value) for name, value in VALUES.items()}
ARRAYS |= {name: f"({array_of(VALUES[item])})::{name}" for name, item in DOMAINS.items()}
FLAGS = "lower_inclusive:boolean,upper_inclusive:boolean,empty:boolean"
KINDS = {
    **dict.fromkeys(("int[]", "counts"), "array<int>"),
    **dict.fromkeys(("numeric(12,3)[]", "prices", "price[]"), "array<decimal(12,3)>"),
    **dict.fromkeys(("time[]", "hour[]", "mood[]"), "array<string>"),
    "interval[]": "array<struct<months:int,days:int,microseconds:bigint>>",
    **dict.fromkeys(
        ("int4range[]", "int4multirange", "spans"), f"array<struct<lower:int,upper:int,{FLAGS}>>"
    ),
    "tsrange[]": f"array<struct<lower:timestamp_ntz,upper:timestamp_ntz,{FLAGS}>>",
    "tstzmultirange": f"array<struct<lower:timestamp,upper:timestamp,{FLAGS}>>",
    **dict.fromkeys(("int4multirange[]", "box[]"), "string"),
}
KEYED = """INSERT INTO keyed SELECT n, time '00:00' + n * interval '1.5 s',
    ARRAY[n, NULL, 7], date '2024-01-01' + n FROM generate_series({}, {}) AS n"""


def drawn(seed: int) -> dict[str, dict[str, str]]:
    """The columns of the tables, and their random values.

    Each type comes as itself or in an array. Those that statements of the test name are there.
    """
    if ALL:
        return {"scalars": SCALARS, "arrays": ARRAYS, "bag": ARRAYS}
    chance = Random(seed)
    names = chance.sample(list(VALUES), len(VALUES))
    middle = len(names) // 2
    scalars = {*names[:middle], "time"}
    arrays = {*(f"{name}[]" for name in names[middle:]), *DOMAINS, "int[]"}
    bag = {*chance.sample(sorted(arrays), 5), "text[]"}
    return {
        "scalars": {name: SCALARS[name] for name in SCALARS if name in scalars},
        "arrays": {name: ARRAYS[name] for name in ARRAYS if name in arrays},
        "bag": {name: ARRAYS[name] for name in ARRAYS if name in bag},
    }


def filled(table: str, columns: dict[str, dict[str, str]], first: int, last: int) -> str:
    """INSERT of random rows; keys of times, arrays and text follow from a number."""
    if table == "keyed":
        return KEYED.format(first, last)
    values = ", ".join(columns[table].values())
    return f"INSERT INTO {table} SELECT n, {values} FROM generate_series({first}, {last}) AS n"


def created(columns: dict[str, dict[str, str]]) -> str:
    """The tables; a column is called like its type."""
    lists = {
        table: ", ".join(f'"{name}" {name}' for name in names) for table, names in columns.items()
    }
    return (
        f"{TYPES} CREATE TABLE scalars (id int PRIMARY KEY, {lists['scalars']});"
        f"CREATE TABLE arrays (id int PRIMARY KEY, {lists['arrays']});"
        f"CREATE TABLE bag (id int, {lists['bag']}); ALTER TABLE bag REPLICA IDENTITY FULL;"
        "CREATE TABLE keyed (id int, at time, tags int[], day date, more float8[],"
        " PRIMARY KEY (at, tags, day));"
    )


@pytest.mark.parametrize(
    ("kind", "table_format"),
    in_turn(__name__, [("pgsluice", "delta"), ("debezium", "delta"), ("pgsluice", "iceberg")]),
)
def test_random_values_come_back_as_the_server_has_them(
    kind: str,
    table_format: str,
    spark: SparkSession,
    scene: Callable[..., Scene],
    seed: int,
    tmp_path: Path,
) -> None:
    columns = drawn(seed)
    s = scene(
        DEFINITIONS,
        types=dict.fromkeys(TYPE_CHOICES, "native"),
        envelope={"format": kind},
        on_error={"value": "quarantine"},
        consumer={
            "warehouse": str(tmp_path / "warehouse"),
            "checkpoint": str(tmp_path / "checkpoint"),
            "trigger_interval_s": 0.5,
            "format": table_format,
        },
        **{"types.columns": {"public.keyed.day": "text"}},
    )
    settings = consumer_settings(load_settings(s.project.write()), [s.slot], None)

    def job(stop: threading.Event) -> None:
        assert run(settings, spark, stopping=stop) == 0

    with s.connect() as connection:
        connection.execute(created(columns).encode())
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(setseed())
        for table in TABLES:
            connection.execute(filled(table, columns, 1, 60).encode())

        gateway = s.project.start()
        gateway.wait_until_copied()
        with running(job):
            for table in TABLES:
                connection.execute(filled(table, columns, 61, 90).encode())
                connection.execute(f"DELETE FROM {table} WHERE id % 9 = 0".encode())
                connection.execute(f"UPDATE {table} SET id = id + 1000 WHERE id % 7 = 0".encode())
            connection.execute('UPDATE scalars SET "time" = NULL WHERE id % 5 = 0')
            connection.execute("UPDATE arrays SET \"int[]\" = '{7,NULL}' WHERE id % 5 = 0")
            connection.execute(
                'UPDATE bag SET "text[]" = array_append("text[]", \'x y\') WHERE id % 5 = 0'
            )
            connection.execute("UPDATE keyed SET at = at + interval '1 us' WHERE id % 5 = 0")
            verified = s.cli("verify", "--timeout", "300")
            connection.execute(
                "INSERT INTO keyed VALUES (0, '0:00', '{5000}', 'today', ARRAY[ARRAY[0.5, 1]])"
            )
            differs = s.cli("verify", "--timeout", "300", "--table", "public.keyed")
            connection.execute("DELETE FROM keyed WHERE id = 0")
            again = s.cli("verify", "--timeout", "300", "--table", "public.keyed")
        assert gateway.terminate() == 0

        assert verified.code == 0, verified.out + verified.err
        assert f"{s.slot}: 4 of 4 tables equal the source at " in verified.out
        assert differs.code == 1, differs.out + differs.err
        assert " missing:\n" in differs.out and "5000" in differs.out
        assert again.code == 0, again.out + again.err
        kinds: dict[str, str] = {}
        for table in ("bag", "keyed", "scalars", "arrays"):
            frame = spark.read.format(table_format).load(
                str(tmp_path / "warehouse" / s.slot / "public" / table)
            )
            assert_same(connection, table, frame)
            kinds |= frame.dtypes
        known = KINDS.keys() & kinds.keys()
        assert {name: kinds[name] for name in known} == {name: KINDS[name] for name in known}


def assert_same(connection: psycopg.Connection[Any], table: str, frame: Any) -> None:
    """Let the server compare all values with its own, column by column."""
    columns = [field for field in frame.schema if field.name != "id"]
    printed = frame.selectExpr(
        "id", *(f"{printed_sql(quoted(f.name), f)} AS {quoted(f.name)}" for f in columns)
    ).collect()
    ids = [row["id"] for row in printed]
    assert connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (len(ids),)
    for field in columns:
        kind = sql.SQL(field.metadata["comment"])
        name = sql.Identifier(field.name)
        # Java prints other digits of a floating point number than PostgreSQL.
        prints = not any(word in field.name for word in ("real", "float8", "vec"))
        # A box has no operator = that orders or groups by, nor an array of a domain with its type.
        differs = sql.SQL("false" if "box" in field.name else "own::{0} IS DISTINCT FROM v::{0}")
        found = connection.execute(
            sql.SQL(
                "SELECT id, v, text FROM (SELECT t.id, t.{0} AS own, g.v,"
                " CASE WHEN t.{0} IS NOT NULL THEN format('%%s', t.{0}) END AS text FROM {1} AS t"
                " JOIN unnest(%s::int[], %s::text[]) AS g(id, v) USING (id)) AS found"
                " WHERE {2} OR (%s AND text IS DISTINCT FROM v)"
            ).format(name, sql.Identifier(table), differs.format(kind)),
            (ids, [row[field.name] for row in printed], prints),
        ).fetchall()
        assert found == [], field.name
