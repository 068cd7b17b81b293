"""Random json of a real server as VARIANT, from PostgreSQL through gateway and job.

A run takes one format; ``make test-all`` takes both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.commands.consume import consumer_settings
from gateway.config import load_settings
from spark_consumer.job.job import run
from spark_consumer.reader import state_at
from tests.support.gateway.scene import IN_TIME, Connection, Scene, running, scene
from tests.support.run.seeds import in_turn, setseed
from tests.support.run.waiting import wait_until
from tests.support.spark.every_format import FORMATS, choose_formats, subscriptions
from tests.support.workloads.values import TEXTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [
    *(pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres),
    *(pytest.mark.seeded, pytest.mark.slow),
]

PUBLICATION = "CREATE PUBLICATION p FOR TABLE kept, bag, poor;"
TABLES = """
CREATE DOMAIN facts AS jsonb;
CREATE TABLE kept (id int PRIMARY KEY, n int, b jsonb, d facts, j json, large jsonb);
CREATE TABLE bag (id int, b jsonb, d facts);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE poor (id int PRIMARY KEY, b jsonb);
INSERT INTO poor VALUES (1, '{"a": 1}');
"""
TEXT = f"({TEXTS})[1 + floor(random() * 15)]"
EXACT = f"""(ARRAY[to_jsonb(trunc(random()::numeric * 10::numeric ^ (random() * 38)::int)),
    to_jsonb(round((random() - 0.5)::numeric * 1e6, (random() * 20)::int)), to_jsonb({TEXT}),
    'null', 'true', '[]', '{{}}', '-0.0', to_jsonb(E'a\\u0001\\u007f\\n😀'::text),
    jsonb_build_object({TEXT}, 1.50, 'k', jsonb_build_array(n, NULL, {TEXT}), '😀', 1, '￮', 2)
    ])[1 + floor(random() * 10)]"""
NUMBER = "random()::numeric * 10::numeric ^ (random() * 120 - 60)::int"
WRITTEN = f"""format('{{ "n" : %s, "e": %s%se%s, "a":1, "a" : [%s], "p": "\\u00e9\\/" }}',
    {NUMBER}, 1 + (random() * 9)::int, (ARRAY['', '.5'])[1 + floor(random() * 2)],
    (random() * 60 - 30)::int, {NUMBER})::json"""
LARGE = (
    "jsonb_build_object('t', (SELECT string_agg(md5(random()::text || g), '')"
    " FROM generate_series(1, 300 + 0 * n) AS g))"
)


def filled(table: str, first: int, last: int) -> bytes:
    """INSERT of random rows."""
    maybe = [f"CASE WHEN random() > 0.1 THEN {one} END" for one in (EXACT, EXACT)]
    if table == "kept":
        maybe = ["n", *maybe, WRITTEN, LARGE]
    values = ", ".join(maybe)
    numbers = f"generate_series({first}, {last}) AS n"
    return f"INSERT INTO {table} SELECT n, {values} FROM {numbers}".encode()


@pytest.mark.parametrize("kind", in_turn(__name__, FORMATS))
def test_random_json_is_in_the_tables_as_the_server_has_it_and_what_is_none_holds_its_table(
    spark: SparkSession, scene: Callable[..., Scene], tmp_path: Path, kind: Any
) -> None:
    s = scene(
        PUBLICATION + subscriptions("{s}", "p", [kind]),
        consumer={
            "warehouse": str(tmp_path / "warehouse"),
            "checkpoint": str(tmp_path / "checkpoint"),
            "trigger_interval_s": 0.5,
            "json": "variant",
            "history": ["public.kept"],
            "history_interval_s": 0,
        },
    )
    (name,) = choose_formats(s, [kind])
    settings = consumer_settings(load_settings(s.project.write()), [name], None)

    def job(stop: threading.Event) -> None:
        assert run(settings, spark, stopping=stop) == 0

    def is_held() -> bool:
        state = state_at(name, at=None, warehouse=settings.warehouse, spark=spark)
        return "public.poor" in state.held_by_job

    with s.connect() as connection:
        connection.execute(TABLES)
        connection.execute(setseed())
        for table in ("kept", "bag"):
            connection.execute(filled(table, 1, 60))
        gateway = s.project.start()
        gateway.wait_until_copied()
        with running(job):
            for table in ("kept", "bag"):
                connection.execute(filled(table, 61, 90))
                connection.execute(f"DELETE FROM {table} WHERE id % 9 = 0".encode())
                connection.execute(f"UPDATE {table} SET id = id + 1000 WHERE id % 7 = 0".encode())
            connection.execute("UPDATE kept SET n = n + 1 WHERE id % 5 = 0")
            connection.execute("UPDATE bag SET b = '[1.0]' WHERE id % 5 = 0")
            verified = s.cli("verify", *IN_TIME)
            connection.execute("""INSERT INTO poor VALUES (2, '{"secret": 1e400}')""")
            connection.execute("UPDATE kept SET b = '{\"last\": 1}' WHERE id = 1")
            wait_until(is_held, 120, "the table with a value that is none")
            after = s.cli("verify", *IN_TIME)
        assert gateway.terminate() == 0

        assert verified.code == 0, verified.out + verified.err
        assert f"{name}: 3 of 3 tables equal the source at " in verified.out
        assert after.code == 1, after.out + after.err
        assert "no VARIANT can have a value of the column b" in after.out + after.err
        assert f"{name}: 2 of 3 tables equal the source at " in after.out, after.out
        folder = tmp_path / "warehouse" / name / "public"
        for table in ("kept", "bag"):
            assert_same(connection, table, spark.read.format(kind).load(str(folder / table)))
        versions = spark.read.format(kind).load(str(folder / "kept__history"))
        assert_same(connection, "kept", versions.where("_to_lsn IS NULL"))


def assert_same(connection: Connection, table: str, frame: Any) -> None:
    """Let the server compare exact numbers as jsonb, and others by what float8 makes of them."""
    kinds = dict(frame.dtypes)
    names = ("b", "d", "j", "large") if table == "kept" else ("b", "d")
    assert {kinds[name] for name in names} == {"variant"}
    rows = frame.selectExpr("id", *(f"to_json({name})" for name in names)).collect()
    assert connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (len(rows),)
    for place, name in enumerate(names, 1):
        same = f"t.{name}::jsonb IS NOT DISTINCT FROM g.v::jsonb"
        if name == "j":
            same = (
                "(t.j->>'e')::float8 = (g.v::json->>'e')::float8 AND"
                " (t.j->>'n')::float8 = (g.v::json->>'n')::float8 AND"
                " t.j->>'p' = g.v::json->>'p' AND"
                " (t.j::jsonb->'a'->>0)::float8 = (g.v::json->'a'->>0)::float8"
            )
        query = (
            f"SELECT t.id, t.{name}, g.v FROM {table} t JOIN unnest(%s::int[], %s::text[]) g(id, v)"
            f" USING (id) WHERE ({same}) IS NOT TRUE"
        )
        given = ([row["id"] for row in rows], [row[place] for row in rows])
        assert connection.execute(query.encode(), given).fetchall() == [], name
