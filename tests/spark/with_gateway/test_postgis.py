"""Values of PostGIS's types, where a server has them; see docs/testing.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden import ewkb
from tests.spark.with_gateway.test_extension_types import compare
from tests.support.backends.postgis import postgis_server
from tests.support.backends.servers import Database, PostgresServer
from tests.support.gateway.scene import Scene, scene

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["scene"]

pytestmark = [
    *(pytest.mark.spark, pytest.mark.kafka, pytest.mark.postgres),
    *(pytest.mark.seeded, pytest.mark.slow),
]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgis_server() as server:
        yield server


def test_random_geometries_come_back_as_the_server_has_them(
    spark: SparkSession, scene: Callable[..., Scene], tmp_path: Path
) -> None:
    compare(spark, scene, tmp_path, "postgis")


def test_a_server_prints_what_the_golden_file_has(database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE EXTENSION postgis")
        assert ewkb.ask(connection) == ewkb.read()


@pytest.mark.parametrize("kind", sorted(ewkb.VALUES))
def test_values_are_equal_to_the_server_if_they_print_alike(database: Database, kind: str) -> None:
    texts = [value.printed for value in ewkb.read() if value.pg_type == kind]
    with database.connect() as connection:
        connection.execute("CREATE EXTENSION postgis")
        found = connection.execute(
            f"SELECT a.v::text, b.v::text, a.v = b.v FROM unnest(%(texts)s::{kind}[]) AS a (v),"
            f" unnest(%(texts)s::{kind}[]) AS b (v)".encode(),
            {"texts": ":".join(texts).join("{}")},
        ).fetchall()

    assert len(found) == len(texts) ** 2
    assert all(equal is (one == other) for one, other, equal in found)
