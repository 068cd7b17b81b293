"""Avro decoded in the JVM: records of rows and keys, with values as tables store them.

Most are what Spark makes of Avro. A time of day is a number to Spark, and text in a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from spark_consumer.values.conversions import clock_sql

__all__ = ["AVRO_OPTIONS", "decode_key", "decode_value"]

# CORRECTED: PostgreSQL's calendar is proleptic Gregorian, as Spark's.
AVRO_OPTIONS: Final = {"mode": "FAILFAST", "datetimeRebaseMode": "CORRECTED"}


def decode_value(
    frame: DataFrame,
    column: str,
    body: str,
    schema: Mapping[str, Any],
    reader: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Add a column with the envelopes whose Avro is in another.

    Args:
        frame: Frame with the column `body`.
        column: Name of the new column.
        body: Name of the column of Avro.
        schema: Writer schema.
        reader: Schema with some of its fields; None for all of them.
    """
    row = next(
        kind
        for field in schema["fields"]
        if field["name"] == "before"
        for kind in field["type"]
        if isinstance(kind, dict)
    )
    return _decode(frame, column, body, schema, reader, row, ("before.", "after."))


def decode_key(frame: DataFrame, column: str, body: str, schema: Mapping[str, Any]) -> DataFrame:
    """Add a column with the keys whose Avro is in another; see `decode_value`."""
    return _decode(frame, column, body, schema, None, schema, ("",))


def _decode(
    frame: DataFrame,
    column: str,
    body: str,
    schema: Mapping[str, Any],
    reader: Mapping[str, Any] | None,
    record: Mapping[str, Any],
    places: tuple[str, ...],
) -> DataFrame:
    options = AVRO_OPTIONS
    if reader is not None:
        options = AVRO_OPTIONS | {"avroSchema": json.dumps(reader)}
    frame = frame.withColumn(column, from_avro(F.col(body), json.dumps(schema), options))
    stored = F.col(column)
    for place in places:
        for name, sql in _differing(record, f"{column}.{place}"):
            stored = stored.withField(f"{place}{name}", F.expr(sql))
    return frame.withColumn(column, stored)


def _differing(record: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    """Yield the fields that tables store otherwise than Spark decodes them, with the SQL."""
    for field in record["fields"]:
        value = f"{place}`{field['name']}`"
        if (sql := _stored(field["type"], value)) != value:
            yield field["name"], sql


def _stored(kind: object, value: str) -> str:
    """Return the SQL of a decoded value as tables store it."""
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), "null")
    if isinstance(kind, dict) and kind.get("logicalType") == "time-micros":
        return clock_sql(value)
    if isinstance(kind, dict) and kind["type"] == "array":
        item = _stored(kind["items"], "one")
        return value if item == "one" else f"transform({value}, one -> {item})"
    return value
