"""Avro decoded in the JVM: records of rows and keys, with values as tables store them.

Most are what Spark makes of Avro. A time of day is a number to Spark, and text in a table; an
instant in Debezium's records is text, and an instant in a table. A json is text, and may be VARIANT
in a table. A record in a row may be NULL as a
whole, and Delta then wants the same of each of its fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from spark_consumer.kafka.layout import row_record
from spark_consumer.kafka.schema_contract import VARIANT
from spark_consumer.values.conversions import clock_sql, zoned_sql
from spark_consumer.values.variants import variant_sql

__all__ = ["AVRO_OPTIONS", "decode"]

_STORED: Final[Mapping[object, Callable[[str], str]]] = {
    "time-micros": clock_sql,
    "zoned": zoned_sql,
}
"""SQL by logicalType; see [debezium] in schemas/types.toml."""

# CORRECTED: PostgreSQL's calendar is proleptic Gregorian, as Spark's.
AVRO_OPTIONS: Final = {"mode": "FAILFAST", "datetimeRebaseMode": "CORRECTED"}


def decode(
    records: DataFrame,
    value: Mapping[str, Any],
    key: Mapping[str, Any] | None = None,
    *,
    reader: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Add the column `e` with the envelopes in `value_body`, and `key` with the keys in `key_body`.

    Args:
        records: Frame with these columns.
        value: Writer schema of the values.
        key: Writer schema of the keys; None to leave them out.
        reader: Schema with some of the envelope's fields; None for all of them.

    Raises:
        ContractError: the schema of the values is not an envelope.
    """
    decoded = {"e": _avro("value_body", value, reader)}
    stored: dict[str, Expr] = {}
    row = row_record(value)
    for side in ("before", "after"):
        if (sql := _stored_record(row, f"e.{side}")) is not None:
            stored["e"] = stored.get("e", F.col("e")).withField(side, F.expr(sql))
    if key is not None:
        decoded["key"] = _avro("key_body", key)
        if (sql := _stored_record(key, "key")) is not None:
            stored["key"] = F.expr(sql)
    records = records.withColumns(decoded)
    return records.withColumns(stored) if stored else records


def _avro(body: str, schema: Mapping[str, Any], reader: Mapping[str, Any] | None = None) -> Expr:
    options = AVRO_OPTIONS
    if reader is not None:
        options = AVRO_OPTIONS | {"avroSchema": json.dumps(reader)}
    return from_avro(F.col(body), json.dumps(schema), options)


def _stored_record(record: Mapping[str, Any], value: str) -> str | None:
    """Return the SQL of a decoded record as tables store it; None if it is decoded that way.

    The record is built once as a whole: a `withField` of one field in it would contain the
    expression before it twice.
    """
    decoded = {f["name"]: f"{value}.`{f['name']}`" for f in record["fields"]}
    stored = {f["name"]: _stored_field(f, decoded[f["name"]]) for f in record["fields"]}
    return None if stored == decoded else _struct(value, stored)


def _struct(value: str, fields: Mapping[str, str]) -> str:
    made = ", ".join(f"'{name}', {sql}" for name, sql in fields.items())
    return f"IF({value} IS NULL, NULL, named_struct({made}))"


def _stored_field(field: Mapping[str, Any], value: str) -> str:
    """Return the SQL of a decoded column as tables store it."""
    kind = _not_null(field["type"])
    if isinstance(kind, dict) and kind.get("logicalType") == VARIANT:
        return variant_sql(value, field["name"])
    return _stored(kind, value)


def _not_null(kind: object) -> object:
    if isinstance(kind, list):
        return next((one for one in kind if one != "null"), "null")
    return kind


def _stored(kind: object, value: str) -> str:
    """Return the SQL of a decoded value as tables store it."""
    kind = _not_null(kind)
    logical = kind.get("logicalType") if isinstance(kind, dict) else None
    if logical in _STORED:
        return _STORED[logical](value)
    if isinstance(kind, dict) and kind["type"] == "record":
        parts = {f["name"]: _stored(f["type"], f"{value}.`{f['name']}`") for f in kind["fields"]}
        return _struct(value, parts)
    if isinstance(kind, dict) and kind["type"] == "array":
        if isinstance(kind["items"], str):  # Delta wants items that may be NULL
            return f"CAST({value} AS ARRAY<{kind['items']}>)"
        item = _stored(kind["items"], "one")
        return value if item == "one" else f"transform({value}, one -> {item})"
    return value
