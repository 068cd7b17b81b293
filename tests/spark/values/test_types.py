"""The table of types against Spark: what columns become, and how values are read and printed."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from gateway.definitions.model import Element
from gateway.envelope.envelope import EnvelopeEncoder, TransactionContext
from gateway.envelope.schema import describe
from schemas.settings.tables import Envelope, TypesTable
from schemas.types import TYPES
from spark_consumer.kafka.avro_values import decode
from spark_consumer.kafka.decode import row_type
from spark_consumer.kafka.schema_contract import parsed_schema
from spark_consumer.values.conversions import literal, printed_sql
from tests.golden import ewkb
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic, key_schema, value_schema
from tests.unit.envelope.columns import NATIVE, column, numeric

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

TIME = {"type": "long", "logicalType": "time-micros"}
CLOCKS = ("00:00:00", "00:00:00.000001", "12:34:56.7", "23:59:59.999999", "10:00:00")
OIDS = {name: oid for entry in TYPES for name, oid in entry.names.items()}
VALUES = {
    "boolean": ("t", "f"),
    "integer": ("-5", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "numeric(10,2)": ("-0.05", "12345678.90"),
    "bytea": ("\\x", "\\x00ff5c"),
    "date": ("4713-01-01 BC", "0001-01-01", "5874897-12-31", "infinity", "-infinity"),
    "timestamp without time zone": ("2024-02-29 00:00:00", "294246-12-31 23:59:59.999999"),
    "timestamp with time zone": (
        *("0044-03-15 12:00:00.5+00 BC", "infinity", "-infinity"),
        "294247-01-10 04:00:54.775806+00",
    ),
    "uuid": ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",),
    "interval": (
        *("1 mon 02:03:04", "00:00:00", "-1 years -1 mons +1 day -00:00:00.000001", "1 year"),
        *("-1 days +100:00:00.5", "-2562047788:00:54.775808", "178956970 years 7 mons", "-1 mons"),
    ),
}
VALUES |= {
    "int4range": ("[1,5)", "empty", "(,)", "[-7,)"),
    "int8range": ("(,9223372036854775807)",),
    "numrange": ("(-1.50,2]",),
    "daterange": ("[2024-02-29,infinity)", '["0044-03-15 BC",)'),
    "tsrange": ('["2024-02-29 00:00:00",infinity]', '(,"2024-02-29 12:00:00.5")'),
    "int4multirange": ("{}", "{[1,5),[7,)}"),
    "tstzmultirange": ('{(,"2024-02-29 00:00:00+00"),["2024-03-01 00:00:00+00",infinity]}',),
    "public.hstore": ("", '"a"=>"1", "bb"=>NULL', '""=>"", "b"=>"x\\"y\\\\", "é"=>"NULL"'),
    "vector(2000)": ("[0.5,-1.25]", f"[{','.join(['0.5'] * 2000)}]"),
    "public.sparsevec": (
        *("{}/9", "{1:-1.5,9:0.25}/9"),
        f"{{{','.join(f'{number}:0.5' for number in range(1, 2001))}}}/9000",
    ),
    **{
        f"public.{kind}": tuple(v.printed for v in ewkb.read() if v.pg_type == kind)
        for kind in ewkb.VALUES
    },
    "tstzrange": ('["2024-02-29 00:00:00+00","2024-03-01 00:00:00+00")',),
}


def test_columns_become_what_the_table_says(spark: SparkSession) -> None:
    columns = [
        numeric(f"c{number}", 10, 2)
        if entry.decimal
        else replace(
            column(f"c{number}", (1007, "integer[]")), element=Element(23, -1, "integer", "b")
        )
        if entry.array
        else column(
            f"c{number}",
            (next(iter(entry.names.values()), 65_000), next(iter(entry.extension), "a type")),
        )
        for number, entry in enumerate(TYPES)
    ]
    types = TypesTable(
        columns={
            f"public.t.c{number}": "native" if entry.choice else "text"
            for number, entry in enumerate(TYPES)
        }
    )
    described = describe("public", "t", columns, types=types)
    decoded = row_type(spark, described.value_schema)

    kinds = [re.split("[(<]", field.dataType.simpleString())[0] for field in decoded]
    assert kinds == [entry.spark for entry in TYPES]


def test_what_postgresql_prints_is_read_and_printed_again(spark: SparkSession) -> None:
    columns = [
        numeric(f"c{number}", 10, 2)
        if name.startswith("numeric(")
        else column(f"c{number}", (OIDS.get(name, 65_000), name))
        for number, name in enumerate(VALUES)
    ]
    decoded = row_type(spark, describe("public", "t", columns, types=NATIVE).value_schema)
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


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_an_interval_is_added_to_a_timestamp_as_the_manual_says(
    spark: SparkSession, kind: str
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "types.md").read_text(encoding="utf-8")
    found = re.search(r"```sql\n(SELECT .*? AS goes_on)\n", page, re.DOTALL)
    assert found is not None
    days, usecs = -1, 9_007_199_254_740_993
    pause = f"named_struct('months', 1, 'days', {days}, 'microseconds', {usecs})"
    row = f"SELECT {kind} '2024-01-31 00:00:00' AS started, {pause} AS pause"

    added = spark.sql(f"{found[1]} FROM ({row})").selectExpr("CAST(goes_on AS STRING)").first()

    # PostgreSQL adds the months, of which the day is the last one at most, then the days.
    expected = datetime(2024, 2, 29) + timedelta(days=days, microseconds=usecs)
    assert added is not None
    assert added[0] == str(expected)


IN_DEBEZIUM = {
    "date": VALUES["date"],
    "time without time zone": (*CLOCKS, "24:00:00"),
    "timestamp without time zone": (*VALUES["timestamp without time zone"], "infinity"),
    "timestamp with time zone": (
        *VALUES["timestamp with time zone"],
        *("2024-02-29 12:34:56.789012+00", "0001-12-31 23:59:59+00 BC", "12024-01-01 00:00:00+00"),
    ),
}


@pytest.mark.parametrize("connect_times", [False, True])
def test_times_in_debezium_s_records_are_read_as_postgresql_prints_them(
    spark: SparkSession, connect_times: bool
) -> None:
    # In a key Connect's times have microseconds, too.
    envelope = Envelope("debezium", connect_times=connect_times)
    for name, texts in IN_DEBEZIUM.items():
        encoder = EnvelopeEncoder(
            *("public", "t", [column("c", (OIDS[name], name))]),
            key=("c",),
            identity=("c",),
            replica_identity="d",
            indexes=(0,),
            envelope=envelope,
        )
        context = TransactionContext("gw", "db", "1", None, 900, 0, None, "true", 0)
        prefix = encoder.begin(context)
        bodies = [
            bytearray(
                encoder.value(b"r", None, encoder.encode_row((t.encode(),)), prefix, 9, 0, 0, 0)
            )
            for t in texts
        ]
        schema = parsed_schema(1, json.dumps(encoder.value_schema))
        frame = spark.createDataFrame(list(enumerate(bodies)), "n int, value_body binary")
        kind = row_type(spark, schema)["c"].dataType
        field = StructField("c", kind, True, {"comment": name})

        printed = decode(frame, schema).orderBy("n").select(F.expr(printed_sql("e.after.c", field)))

        assert [text for (text,) in printed.collect()] == list(texts)


@pytest.mark.parametrize("held", [True, False], ids=["driver", "frames"])
def test_a_time_of_day_is_text_in_tables_and_their_keys(
    spark: SparkSession, tmp_path: Path, held: bool
) -> None:
    columns = [Col("at", TIME, "time without time zone"), Col("t", TIME, "public.hour")]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, ["at"])
    table = Direct(spark, tmp_path, topic)
    at = [time.fromisoformat(text) for text in CLOCKS]

    topic.truncate(0x90, 0, snapshot="first")
    for number in range(4):
        topic.change("r", 0x90, 0, after={"at": at[number], "t": at[number + 1]})
    table.apply(held=held)
    topic.change("u", 0xA0, 0, after={"at": at[1], "t": None})
    topic.rekey(0xA0, 1, before={"at": at[2]}, after={"at": at[4], "t": at[2]})
    topic.change("d", 0xA0, 3, before={"at": at[3]})
    table.apply(held=held)

    assert table.held == (2 if held else 0)
    assert dict(table.rows()) == {CLOCKS[0]: CLOCKS[1], CLOCKS[1]: None, CLOCKS[4]: CLOCKS[2]}


def projections(frame: DataFrame) -> int:
    """Number of the projections of a frame."""
    return str(frame._jdf.queryExecution().analyzed().toString()).count("Project [")


def test_the_plan_of_a_row_grows_as_its_times_of_day(spark: SparkSession) -> None:
    times = {"type": "array", "items": ["null", TIME]}
    columns = [
        *(Col(f"t{number}", TIME, "time without time zone") for number in range(40)),
        *(Col(f"a{number}", times, "time without time zone[]") for number in range(40)),
    ]
    found: list[str] = []

    def decoded() -> None:
        kind = row_type(spark, value_schema("public", "t", columns))
        found.extend(field.dataType.simpleString() for field in kind)

    thread = threading.Thread(target=decoded, daemon=True)
    thread.start()
    thread.join(120)

    assert found == ["string"] * 40 + ["array<string>"] * 40


def test_values_that_tables_store_as_spark_decodes_them_are_projected_once(
    spark: SparkSession,
) -> None:
    empty = spark.createDataFrame([], "key_body binary, value_body binary")
    plain, clock = Col("id", "int", "integer"), Col("at", TIME, "time without time zone")

    def decoded(*columns: Col) -> DataFrame:
        value = value_schema("public", "t", columns)
        return decode(empty, value, key_schema("public", "t", columns))

    assert projections(decoded(plain)) == 1
    assert projections(decoded(plain, clock)) == 2
