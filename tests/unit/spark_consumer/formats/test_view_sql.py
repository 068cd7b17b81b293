"""How engines name folders, and which they cannot read."""

from __future__ import annotations

import duckdb
import pytest

from schemas.settings.consumer import ViewEngine
from spark_consumer.errors import SettingsError
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.view_sql import check_name, engine_path, identifier


@pytest.mark.parametrize(
    ("path", "engine", "message"),
    [
        ("hdfs://host/w", "duckdb", "DuckDB does not read HDFS"),
        ("file:/${HOME}", "spark", "cannot name a warehouse"),
        ("file:/a\nb", "duckdb", "cannot name a warehouse"),
        ("file:/100%", "duckdb", "no Delta tables in a warehouse with %"),
        ("file:/a\\b", "duckdb", "no Delta tables in a warehouse with .* a backslash"),
    ],
)
def test_a_warehouse_that_an_engine_cannot_read_is_refused_by_name(
    path: str, engine: ViewEngine, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        DeltaFormat().view_settings(engine_path(path, engine), engine)


def test_a_warehouse_of_iceberg_whose_path_spark_would_divide_is_refused() -> None:
    with pytest.raises(SettingsError, match="a warehouse with # in its path"):
        IcebergFormat().view_settings("file:/a#b", "spark")
    assert IcebergFormat().view_settings("/a#b", "duckdb") == ()


def test_an_engine_gets_a_path_as_it_names_it() -> None:
    assert engine_path("file:/w/a b", "duckdb") == "/w/a b"
    assert engine_path("file:///w", "duckdb") == "/w"
    assert engine_path("s3a://bucket/w", "duckdb") == "s3://bucket/w"
    assert engine_path("s3a://bucket/w", "spark") == "s3a://bucket/w"


@pytest.mark.parametrize("name", ["main", "temp", "System", "memory", "pg_catalog", "s1"])
def test_a_subscription_of_which_duckdb_can_have_no_views_is_refused(name: str) -> None:
    database = identifier(name, "duckdb")
    try:
        with duckdb.connect() as connection:
            connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {database}")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {database}.public")
            connection.execute(f"CREATE VIEW {database}.public.t AS SELECT 1")
    except duckdb.Error:
        with pytest.raises(SettingsError, match=f"subscription {name},"):
            check_name(name, "duckdb")
    else:
        check_name(name, "duckdb")
    check_name(name, "spark")
