"""Random values that a server renders, through Avro and Spark, and back to the server.

Whether what comes back is the same is for the server to say: by its own ``=``, and by its text.
A run takes one envelope and format, and has each type as itself or in an array, and some of those
that ``[types]`` decides as text; ``make test-all`` takes all.
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
from tests.support.gateway.scene import IN_TIME, Scene, running, scene
from tests.support.run.seeds import ALL, in_turn, setseed
from tests.support.workloads.values import (
    ARRAYS,
    CHOSEN,
    DOMAINS,
    SCALARS,
    TYPES,
    VALUES,
    WITHOUT_EQUALITY,
    columns_sql,
    rows_sql,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [
    *(pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres),
    *(pytest.mark.seeded, pytest.mark.slow),
]

TABLES = ("scalars", "arrays", "bag", "printed", "keyed")
DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE scalars, arrays, bag, printed, keyed;
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;
"""
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
        printed = {name: SCALARS[name] for name in CHOSEN} | ARRAYS
        return {"scalars": SCALARS, "arrays": ARRAYS, "bag": ARRAYS, "printed": printed}
    chance = Random(seed)
    names = chance.sample(list(VALUES), len(VALUES))
    middle = len(names) // 2
    scalars = {*names[:middle], "time"}
    arrays = {*(f"{name}[]" for name in names[middle:]), *DOMAINS, "int[]"}
    bag = {*chance.sample(sorted(arrays), 5), "text[]"}
    chosen = {*chance.sample(CHOSEN, 5), *chance.sample(list(ARRAYS), 3)}
    return {
        "scalars": {name: SCALARS[name] for name in SCALARS if name in scalars},
        "arrays": {name: ARRAYS[name] for name in ARRAYS if name in arrays},
        "bag": {name: ARRAYS[name] for name in ARRAYS if name in bag},
        "printed": {name: v for name, v in {**SCALARS, **ARRAYS}.items() if name in chosen},
    }


def filled(table: str, columns: dict[str, dict[str, str]], first: int, last: int) -> str:
    """INSERT of random rows; keys of times, arrays and text follow from a number."""
    if table == "keyed":
        return KEYED.format(first, last)
    return rows_sql(table, columns[table].values(), first, last)


def created(columns: dict[str, dict[str, str]]) -> str:
    """The tables; a column is called like its type."""
    lists = {table: columns_sql(names) for table, names in columns.items()}
    return (
        f"{TYPES} CREATE TABLE scalars (id int PRIMARY KEY, {lists['scalars']});"
        f"CREATE TABLE arrays (id int PRIMARY KEY, {lists['arrays']});"
        f"CREATE TABLE printed (id int PRIMARY KEY, {lists['printed']});"
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
        **{
            "types.columns": {
                "public.keyed.day": "text",
                **{f"public.printed.{name}": "text" for name in columns["printed"]},
            }
        },
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
            connection.execute("UPDATE printed SET id = -id WHERE id % 5 = 0")
            connection.execute("UPDATE keyed SET at = at + interval '1 us' WHERE id % 5 = 0")
            verified = s.cli("verify", *IN_TIME)
            connection.execute(
                "INSERT INTO keyed VALUES (0, '0:00', '{5000}', 'today', ARRAY[ARRAY[0.5, 1]])"
            )
            differs = s.cli("verify", *IN_TIME, "--table", "public.keyed")
            connection.execute("DELETE FROM keyed WHERE id = 0")
            again = s.cli("verify", *IN_TIME, "--table", "public.keyed")
        assert gateway.terminate() == 0

        assert verified.code == 0, verified.out + verified.err
        assert f"{s.slot}: 5 of 5 tables equal the source at " in verified.out
        assert differs.code == 1, differs.out + differs.err
        assert " missing:\n" in differs.out and "5000" in differs.out
        assert again.code == 0, again.out + again.err
        kinds: dict[str, str] = {}
        for table in TABLES:
            frame = spark.read.format(table_format).load(
                str(tmp_path / "warehouse" / s.slot / "public" / table)
            )
            assert_same(connection, table, frame)
            if table == "printed":
                assert {kind for name, kind in frame.dtypes if name != "id"} == {"string"}
            elif table != "keyed":
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
        prints = not any(word in field.name for word in ("real", "float8", "vec(", "vector("))
        has_none = field.name.removesuffix("[]") in WITHOUT_EQUALITY
        differs = sql.SQL("false" if has_none else "own::{0} IS DISTINCT FROM v::{0}")
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
