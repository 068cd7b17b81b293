"""The table of types against Spark: what columns become, and how values are read and printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField

from gateway.envelope.schema import describe
from schemas.settings.tables import TypesTable
from schemas.types import TYPES
from spark_consumer.kafka.decode import row_type
from spark_consumer.values.conversions import CONVERSIONS, literal, printed_sql
from tests.unit.envelope.columns import column, numeric

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CLOCKS = ("00:00:00", "00:00:00.000001", "12:34:56.7", "23:59:59.999999", "24:00:00")
OIDS = {name: oid for entry in TYPES for name, oid in entry.names.items()}
VALUES = {
    "boolean": ("t", "f"),
    "integer": ("-5", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "numeric(10,2)": ("-0.05", "12345678.90"),
    "bytea": ("\\x", "\\x00ff5c"),
    "date": ("4713-01-01 BC", "0001-01-01", "5874897-12-31", "infinity", "-infinity"),
    "timestamp without time zone": ("2024-02-29 00:00:00", "294246-12-31 23:59:59.999999"),
    "timestamp with time zone": ("0044-03-15 12:00:00.5+00 BC", "infinity", "-infinity"),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",),
    "interval": ("1 mon 02:03:04",),
}


def test_columns_become_what_the_table_says(spark: SparkSession) -> None:
    columns = [
        numeric(f"c{number}", 10, 2)
        if entry.decimal
        else column(f"c{number}", (next(iter(entry.names.values()), 65_000), "a type"))
        for number, entry in enumerate(TYPES)
    ]
    types = TypesTable(
        columns={
            f"public.t.c{number}": "native" if entry.choice else "text"
            for number, entry in enumerate(TYPES)
        }
    )
    described = describe("public", "t", columns, types=types)
    decoded = row_type(spark, json.dumps(described.value_schema))

    assert [field.dataType.simpleString().partition("(")[0] for field in decoded] == [
        entry.spark for entry in TYPES
    ]


def test_what_postgresql_prints_is_read_and_printed_again(spark: SparkSession) -> None:
    columns = [
        numeric(f"c{number}", 10, 2)
        if name.startswith("numeric(")
        else column(f"c{number}", (OIDS[name], name))
        for number, name in enumerate(VALUES)
    ]
    decoded = row_type(spark, json.dumps(describe("public", "t", columns).value_schema))
    fields = {
        name: StructField(field.name, field.dataType, True, {"comment": name})
        for name, field in zip(VALUES, decoded.fields, strict=True)
    }
    given = [(name, text) for name, texts in VALUES.items() for text in texts]
    row = spark.range(1).select(
        *(literal(text, fields[name]).alias(f"v{n}") for n, (name, text) in enumerate(given))
    )
    printed = row.select(
        *(F.expr(printed_sql(f"v{n}", fields[name])) for n, (name, _) in enumerate(given))
    ).first()

    assert printed is not None
    assert list(printed) == [text for _, text in given]


def test_a_clock_is_read_and_printed_again(spark: SparkSession) -> None:
    clock = CONVERSIONS["clock"]
    row = spark.range(1).select(
        *(clock.literal(text, LongType()).alias(f"v{n}") for n, text in enumerate(CLOCKS))
    )

    printed = row.select(*(F.expr(clock.text(f"v{n}")) for n in range(len(CLOCKS)))).first()

    assert printed is not None
    assert tuple(printed) == CLOCKS
    with pytest.raises(ValueError, match="not a time of day"):
        clock.literal("12:00", LongType())
