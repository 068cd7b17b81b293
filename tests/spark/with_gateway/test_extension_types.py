"""Random values of an extension's types, through Avro and Spark, and back to the server.

A run takes one extension; ``make test-all`` takes both. `test_postgis` has PostGIS's types.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway.commands.consume import consumer_settings
from gateway.config import load_settings
from schemas.settings.tables import TYPE_CHOICES, TableFormatName
from spark_consumer.job.job import run
from tests.spark.with_gateway.test_native_types import assert_same
from tests.support.gateway.scene import IN_TIME, Scene, running, scene
from tests.support.run.seeds import in_turn, setseed
from tests.support.spark.every_format import choose_formats, subscriptions
from tests.support.workloads.values import TEXTS, array_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["compare", "scene"]

pytestmark = [
    *(pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres),
    *(pytest.mark.seeded, pytest.mark.slow),
]

PUBLICATION = "CREATE PUBLICATION p FOR TABLE kept, bag;"
# Iceberg's arrays and structs are in another test, its maps are not.
FORMATS: dict[str, tuple[TableFormatName, ...]] = {
    "hstore": ("delta", "iceberg"),
    "vector": ("delta",),
    "postgis": ("delta", "iceberg"),
}
PAIRS = f"""(SELECT coalesce(hstore(array_agg(k), array_agg(nullif(v, 'plain'))), '') FROM (
    SELECT ({TEXTS})[1 + floor(random() * 15)] AS k, ({TEXTS})[1 + floor(random() * 15)] AS v
    FROM generate_series(1, (random() * 4)::int + 0 * n)) AS pairs)"""
SHAPES = """ARRAY['POINT EMPTY', 'SRID=4326;POINT(-0 0)', 'LINESTRING(0 0,1 0.1)', 'TIN EMPTY',
    'POLYGON((0 0,9 0,9 9,0 0),(1 1,2 1,2 2,1 1))', 'SRID=3857;POINT M (1 2 3)',
    'CIRCULARSTRING Z (0 0 1,1 1 1,2 0 1)', format('POINT Z (%s %s 1)', random(), -1e300 * n),
    'GEOMETRYCOLLECTION(POINT(1 2),GEOMETRYCOLLECTION EMPTY)']"""
VALUES = {
    "hstore": {"hstore": PAIRS},
    "vector": {
        "vector(3)": "ARRAY[random(), random() * -1e9, 1]::vector(3)",
        "halfvec(3)": "ARRAY[random(), random() * -9, 1]::halfvec(3)",
        "sparsevec(9)": "format('{2:%s,%s:-0.1}/9', random()::real, 3 + (random() * 6)::int)"
        "::sparsevec(9)",
    },
    "postgis": {
        "geometry": f"({SHAPES})[1 + floor(random() * 9)]::geometry",
        "geometry(PointZM,4326)": "ST_SetSRID(ST_MakePoint(random(), -1e9 * random(), 'NaN', 1),"
        " 4326)",
        "geography": "format('POINT(%s %s)', random() * 180, random() * -90)::geography",
        "place": "ST_SetSRID(ST_MakePoint(random(), n), 4326)::place",
        "own.geometry": "decode(md5(n::text), 'hex')::own.geometry",
    },
}
DOMAINS = {
    "postgis": "CREATE DOMAIN place AS geometry(Point,4326); CREATE SCHEMA own;"
    " CREATE DOMAIN own.geometry AS bytea;"
}
KINDS = {
    "hstore": {"hstore": "map<string,string>", "hstore[]": "string"},
    "vector": {
        "vector(3)": "array<float>",
        "halfvec(3)": "array<float>",
        "halfvec(3)[]": "string",
        "sparsevec(9)": "struct<dimensions:int,indices:array<int>,values:array<float>>",
    },
    "postgis": {
        **dict.fromkeys(("geometry", "geometry(PointZM,4326)", "geography"), "binary"),
        **dict.fromkeys(("place", "own.geometry"), "binary"),
        "geometry[]": "string",
    },
}


@pytest.mark.parametrize(
    ("postgres_major", "extension"),
    in_turn(__name__, [(17, "hstore"), (18, "vector")]),
    indirect=["postgres_major"],
)
def test_random_values_of_an_extension_come_back_as_the_server_has_them(
    spark: SparkSession, scene: Callable[..., Scene], tmp_path: Path, extension: str
) -> None:
    compare(spark, scene, tmp_path, extension)


def compare(
    spark: SparkSession, scene: Callable[..., Scene], tmp_path: Path, extension: str
) -> None:
    """Let the server compare values of the extension's types with those of the rebuilt tables."""
    s = scene(
        PUBLICATION + subscriptions("{s}", "p", FORMATS[extension]),
        types=dict.fromkeys(TYPE_CHOICES, "native"),
        consumer={
            "warehouse": str(tmp_path / "warehouse"),
            "checkpoint": str(tmp_path / "checkpoint"),
            "trigger_interval_s": 0.5,
        },
    )
    formats = choose_formats(s, FORMATS[extension])
    settings = consumer_settings(load_settings(s.project.write()), list(formats), None)

    def job(stop: threading.Event) -> None:
        assert run(settings, spark, stopping=stop) == 0

    values = VALUES[extension]
    columns = ", ".join(f'"{name}{more}" {name}{more}' for more in ("", "[]") for name in values)
    made = [f"CASE WHEN random() > 0.1 THEN {value} END" for value in values.values()]
    made += [array_of(value) for value in values.values()]
    rows = f"SELECT n, {', '.join(made)} FROM generate_series"
    with s.connect() as connection:
        connection.execute(f"CREATE EXTENSION {extension}".encode())
        connection.execute(DOMAINS.get(extension, "").encode())
        connection.execute(f"CREATE TABLE kept (id int PRIMARY KEY, {columns})".encode())
        connection.execute("CREATE TABLE bag (LIKE kept)")
        connection.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
        connection.execute(setseed())
        for table in ("kept", "bag"):
            connection.execute(f"INSERT INTO {table} {rows}(1, 60) AS n".encode())
        gateway = s.project.start()
        gateway.wait_until_copied()
        with running(job):
            for table in ("kept", "bag"):
                connection.execute(f"INSERT INTO {table} {rows}(61, 90) AS n".encode())
                connection.execute(f"DELETE FROM {table} WHERE id % 9 = 0".encode())
                connection.execute(f"UPDATE {table} SET id = id + 1000 WHERE id % 7 = 0".encode())
            verified = s.cli("verify", *IN_TIME)
        assert gateway.terminate() == 0

        assert verified.code == 0, verified.out + verified.err
        for name, kind in formats.items():
            assert f"{name}: 2 of 2 tables equal the source at " in verified.out
            for table in ("kept", "bag"):
                path = tmp_path / "warehouse" / name / "public" / table
                frame = spark.read.format(kind).load(str(path))
                kinds = dict(frame.dtypes)
                assert {name: kinds[name] for name in KINDS[extension]} == KINDS[extension]
                assert_same(connection, table, frame)
