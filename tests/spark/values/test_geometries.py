"""Columns of PostGIS's types as bytes, in tables of both formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from schemas.settings.tables import TableFormatName
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.verify.text import text_sql
from tests.golden import ewkb
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ID = Col("id", "int", "integer", None, 1)
SHAPE = Col("shape", "bytes", "public.geometry(Geometry,4326)", None, 2)
TEXTS = list(dict.fromkeys(value.printed for value in ewkb.read()))
"""Each once: they may be the key."""
LATE = Col("late", "bytes", "public.geography", None, 3, TEXTS[3])


@pytest.mark.parametrize(
    ("kind", "key"), [("delta", ["shape"]), ("delta", []), ("iceberg", ["shape"])]
)
def test_what_postgis_printed_is_bytes_in_the_table_and_that_text_to_verify(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName, key: list[str]
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", [ID, SHAPE], key)
    table = Direct(spark, tmp_path, topic, DeltaFormat() if kind == "delta" else IcebergFormat())
    rows: list[dict[str, Any]] = [
        {"id": n, "shape": bytes.fromhex(text)} for n, text in enumerate(TEXTS)
    ]
    topic.truncate(0x90, 0, snapshot="first")
    for row in rows:
        topic.change("r", 0x90, 0, after=row)
    table.apply()
    topic.change("d", 0xA0, 1, before={name: rows[1][name] for name in key or rows[1]})
    topic.columns = [ID, SHAPE, LATE]
    topic.change("c", 0xA0, 2, after={"id": 99, "shape": b"\x01", "late": None})
    table.apply()

    read = table.tables.table(spark.newSession(), table.path, "t").rows()
    assert dict(read.dtypes) == {"id": "int", "shape": "binary", "late": "binary"}
    shown = read.select("id", *(F.expr(text_sql(f.name, f)) for f in read.schema.fields[1:]))
    left = [row for row in rows if row["id"] != 1]
    assert sorted(map(tuple, shown.collect())) == [
        *((row["id"], row["shape"].hex().upper(), TEXTS[3]) for row in left),
        (99, "01", None),
    ]
