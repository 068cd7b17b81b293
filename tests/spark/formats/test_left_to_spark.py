"""Files whose rows the driver leaves to Spark: it reads them otherwise, or they are too large."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pytest

from spark_consumer.apply.driver import writer as driver_writer
from spark_consumer.formats.delta import merge
from tests.support.spark.direct import Direct, let_mark
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

VALUES = {
    "date": "DATE'0001-01-01'",
    "timestamp": "TIMESTAMP'0001-01-01 00:00:00'",
    "timestamp_ntz": "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
}


def applied(spark: SparkSession, file: Path, columns: dict[str, str]) -> Any:
    """The outcome of a rewrite of a file with one row, of which some columns are read."""
    java: Any = spark._jvm
    small = java.pgsluice.small
    listed = [
        {
            "field": name,
            "physical": name,
            "id": None,
            "type": kind,
            "equality": "text",
            "statistics": True,
        }
        for name, kind in columns.items()
    ]
    spec = json.dumps({"columns": listed, "key": [next(iter(columns))]})
    table = small.SmallTable(spec, driver_writer.LARGEST_BYTES)
    conf = java.org.apache.hadoop.conf.Configuration()
    stored = {"path": str(file), "statistics": '{"numRecords":1}', "deleted": None}
    files = {"table": str(file.parent), "tail": [stored], "base": [], "canMark": False}
    target = f"{file}.{'-'.join(columns)}.new"
    none = small.Records.of("t", [])
    outcome = table.apply(none, json.dumps(files), target, False, None, "snappy", {}, conf)
    return None if outcome is None else json.loads(outcome)["rows"]


def written(spark: SparkSession, folder: Path, sql: str, settings: dict[str, str]) -> Path:
    """A file that Spark writes."""
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(f"spark.sql.parquet.{name}", value)
    session.sql(sql).coalesce(1).write.parquet(str(folder))
    (file,) = folder.glob("*.parquet")
    return file


def test_files_whose_values_spark_would_convert_are_left_to_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    sql = "SELECT 1L AS id, timestamp '2024-01-01 00:00:00' AS at"
    file = written(spark, tmp_path / "old", sql, {"outputTimestampType": "INT96"})

    assert applied(spark, file, {"id": "bigint"}) == 1
    assert applied(spark, file, {"id": "bigint", "at": "timestamp"}) is None


@pytest.mark.parametrize("kind", VALUES)
def test_days_of_another_calendar_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    sql = f"SELECT 1L AS id, {VALUES[kind]} AS at"
    micros = {"outputTimestampType": "TIMESTAMP_MICROS"}
    plain = written(spark, tmp_path / "plain", sql, micros)
    old = written(spark, tmp_path / "old", sql, {**micros, "datetimeRebaseModeInWrite": "LEGACY"})

    assert applied(spark, plain, {"id": "bigint", "at": kind}) == 1
    assert applied(spark, old, {"id": "bigint"}) == 1
    # Spark has never written a timestamp without time zone in that calendar.
    assert applied(spark, old, {"id": "bigint", "at": kind}) == (
        1 if kind == "timestamp_ntz" else None
    )


def test_days_in_files_of_other_engines_are_left_to_spark_whose_setting_says_what_they_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "other.parquet"
    rows = {"id": [1], "day": [date(2024, 1, 1)], "at": [datetime(2024, 1, 1)]}
    polars.DataFrame(rows).write_parquet(file)

    assert applied(spark, file, {"id": "bigint", "at": "timestamp_ntz"}) == 1
    assert applied(spark, file, {"id": "bigint", "day": "date"}) is None


def test_rows_that_are_small_in_their_file_and_large_in_memory_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_writer, "TAIL_BYTES", 0)
    monkeypatch.setattr(driver_writer, "LARGEST_BYTES", 1 << 18)
    monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    columns = [Col("id", "int", "integer"), Col("a", "int", "integer"), Col("b", "string", "text")]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    text = "x" * 10_000
    for key in range(100):
        topic.change("r", 0x90, 0, after={"id": key, "a": 0, "b": text})
    table.apply()
    let_mark(table)
    for at, keys in ((0xA0, range(10)), (0xB0, range(100))):
        for key in keys:
            topic.change("u", at, key, after={"id": key, "a": at}, unchanged=["b"])
        table.apply()

    # The copy, and ten rows of it; not a hundred, which are 1 MB.
    assert table.held == 2
    assert table.rows() == sorted(((key, 0xB0, text) for key in range(100)), key=repr)
