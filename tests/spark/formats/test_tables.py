"""What becomes of a topic's oddities: names, types, schema changes, faults. Many cases a batch."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_consumer.errors import ContractError, TableError
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.kafka.batch_profile import survey
from spark_consumer.kafka.decode import wire
from spark_consumer.kafka.layout import value_layout
from spark_consumer.values.keys import canonical
from tests.golden import equality
from tests.support.run.seeds import in_turn
from tests.support.spark.direct import Direct
from tests.support.spark.memory_format import MemoryFormat
from tests.support.spark.records import Col, Record, StaticSchemas, TableTopic, frame, value_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LOCAL_TIMES = {
    "type": "array",
    "items": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}],
}
TIMES = "timestamp without time zone[]"


@pytest.fixture(
    params=[
        *in_turn(__name__, ["Delta", "public Delta"]),
        *in_turn(__name__, ["Iceberg", "in memory"]),
    ]
)
def tables(request: pytest.FixtureRequest) -> TableFormat:
    """What keeps the contract of a table format."""
    if request.param == "in memory":
        return MemoryFormat()
    if request.param == "Iceberg":
        return IcebergFormat()
    return DeltaFormat(private=request.param == "Delta")


def test_odd_names_and_a_changed_schema_in_one_batch_and_a_replay(
    spark: SparkSession, tmp_path: Path, tables: TableFormat
) -> None:
    key = Col("Id", "int", "integer")
    odd = Col("a_x002E_b_x0060__x0020_c", "int", "integer", "a.b` c")
    topic = TableTopic(
        StaticSchemas(), "s.x.t", [key, odd], ["Id"], schema="My Schema", table="T/1"
    )
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"Id": 1, odd.field: 10})
    topic.change("r", 0x90, 0, after={"Id": 2, odd.field: 20})
    wider = Col(odd.field, "long", "bigint", odd.name)
    topic.columns = [key, wider, Col("late", "string", "text", number=9)]
    topic.change("u", 0x98, 1, after={"Id": 1, odd.field: 2**40, "late": "set"})
    topic.change("c", 0x98, 3, after={"Id": 3, odd.field: 30, "late": None})
    topic.columns = [key, Col("late", "string", "text", number=9)]
    topic.change("u", 0xA0, 1, after={"Id": 2, "late": "column dropped"})
    table = Direct(spark, tmp_path, topic, tables)

    table.apply(5)
    table.apply(5, first=2)

    path = tmp_path / "s" / "My-x0020-Schema" / "T-x002F-1"
    there = tables.table(spark.newSession(), str(path), "T/1").rows()
    assert there.columns == ["Id", "a.b` c", "late"]
    assert there.schema["a.b` c"].metadata["comment"] == "integer"
    assert table.rows() == [(1, 2**40, "set"), (2, 20, None), (3, 30, None)]

    table.apply()

    assert table.rows() == [(1, "set"), (2, "column dropped"), (3, None)]


def test_the_identity_may_change_and_a_truncate_comes_in_between(
    spark: SparkSession, tmp_path: Path, tables: TableFormat
) -> None:
    columns = [Col("a", "int", "integer")]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, None)
    topic.change("c", 0x10, 1, after={"a": 9})
    topic.truncate(0x20, 1)
    topic.change("c", 0x30, 1, after={"a": 1})
    topic.change("c", 0x30, 2, after={"a": 1})
    topic.key = []
    topic.change("d", 0x40, 1, before={"a": 1})
    topic.change("c", 0x40, 2, after={"a": 2})
    topic.key = ["a"]
    topic.change("d", 0x50, 1, before={"a": 2})

    table = Direct(spark, tmp_path, topic, tables)

    table.apply()

    assert table.rows() == [(1,)]


@pytest.mark.parametrize("copied_before", [True, False])
def test_a_truncate_that_leaves_no_rows_brings_the_columns_that_the_rows_before_it_had(
    spark: SparkSession, tmp_path: Path, tables: TableFormat, copied_before: bool
) -> None:
    key = Col("a", "int", "integer")
    topic = TableTopic(StaticSchemas(), "s.public.t", [key], ["a"])
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"a": 1})
    table = Direct(spark, tmp_path, topic, tables)
    if copied_before:
        table.apply()
    topic.columns = [key, Col("late", "string", "text", number=9)]
    topic.change("c", 0x98, 1, after={"a": 2, "late": "gone"})
    topic.truncate(0xA0, 1)

    table.apply(first=2 if copied_before else 0)

    there = tables.table(spark.newSession(), str(tmp_path / "s" / "public" / "t"), "t").rows()
    assert there.columns == ["a", "late"]
    assert table.rows() == []

    topic.change("c", 0xB0, 1, after={"a": 3, "late": "here"})
    table.apply(first=4)

    assert table.rows() == [(3, "here")]


def test_a_row_of_a_copy_takes_the_place_of_what_the_stream_has_brought(
    spark: SparkSession, tmp_path: Path, tables: TableFormat
) -> None:
    key, text, number = (
        Col("id", "int", "integer"),
        Col("b", "string", "text"),
        Col("n", "int", "integer"),
    )
    topic = TableTopic(StaticSchemas(), "s.public.t", [key, text, number], ["id"])
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1, "b": "first chunk", "n": 1})
    topic.change("c", 0x98, 1, after={"id": 5, "b": "inserted", "n": 1})
    topic.change("u", 0x98, 3, after={"id": 5, "b": None, "n": 2}, unchanged=["b"])
    topic.change("u", 0x98, 5, after={"id": 6, "b": None, "n": 7}, unchanged=["b"])
    topic.change("r", 0xA0, 0, after={"id": 5, "b": "second chunk", "n": None})
    topic.change("r", 0xA0, 0, after={"id": 6, "b": "came with it", "n": 7})
    topic.change("r", 0xA0, 0, after={"id": 1, "b": "read again", "n": 3})
    topic.change("u", 0xA0, 1, after={"id": 5, "b": None, "n": 9}, unchanged=["b"])

    table = Direct(spark, tmp_path, topic, tables)
    table.apply()

    assert table.rows() == [
        (1, "read again", 3),
        (5, "second chunk", 9),
        (6, "came with it", 7),
    ]


def test_timestamps_in_arrays_come_to_a_table_that_has_none(
    spark: SparkSession, tmp_path: Path, tables: TableFormat
) -> None:
    key = Col("id", "int", "integer")
    topic = TableTopic(StaticSchemas(), "s.public.t", [key], ["id"])
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1})
    table = Direct(spark, tmp_path, topic, tables)
    table.apply()
    default = '{"2024-02-29 00:00:00",NULL}'
    topic.columns = [key, Col("at", LOCAL_TIMES, TIMES, number=9, missing=default)]
    topic.change("c", 0xA0, 1, after={"id": 2, "at": []})
    table.apply()

    assert table.rows() == [(1, [datetime(2024, 2, 29), None]), (2, [])]


def test_an_array_type_reaches_a_table_of_text_by_its_next_copy(
    spark: SparkSession, tmp_path: Path, tables: TableFormat
) -> None:
    key = Col("id", "int", "integer")
    topic = TableTopic(StaticSchemas(), "s.public.t", [key, Col("at", "string", TIMES)], ["id"])
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1, "at": "{}"})
    table = Direct(spark, tmp_path, topic, tables)
    table.apply()
    topic.columns = [key, Col("at", LOCAL_TIMES, TIMES)]
    topic.truncate(0xA0, 0, snapshot="first")
    topic.change("r", 0xA0, 0, after={"id": 2, "at": [None, datetime(2024, 2, 29)]})
    table.apply()

    assert table.rows() == [(2, [None, datetime(2024, 2, 29)])]


def test_a_type_that_delta_cannot_follow_stops_with_the_column_s_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", [Col("a", "int", "integer")], ["a"])
    topic.change("c", 0x10, 1, after={"a": 1})
    topic.columns = [Col("a", "string", "text")]
    topic.change("c", 0x20, 1, after={"a": "x"})

    with pytest.raises(TableError, match=r"table t: column 'a' is int .* string in the topic"):
        Direct(spark, tmp_path, topic).apply()


LSN = ("commit_lsn", b"00000000/00000010")


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (Record("s.a.b", None, b"{}", []), "the value is not in the wire format"),
        (Record("s.a.b", b"x", b"\0\0\0\0\1\0", [LSN]), "the key is not in the wire format"),
        (Record("s.a.b", None, b"\0\0\0\0\1\0", []), "header commit_lsn is missing"),
        (Record("s.a.b", None, b"\0\0\0\0\1\0", [LSN]), "header seq is missing"),
        (Record("s.a.b", None, b"\0\0\0\0\1\0", [LSN, ("seq", b"1")]), "header op is missing"),
    ],
    ids=["value", "key", "commit_lsn", "seq", "op"],
)
def test_a_record_outside_the_contract_is_named_by_its_place(
    spark: SparkSession, record: Record, complaint: str
) -> None:
    with pytest.raises(ContractError, match=f"topic s.a.b, partition 0, offset 0: {complaint}"):
        survey(wire(frame(spark, [(0, record)])))


def test_of_a_header_that_is_there_twice_the_first_counts(spark: SparkSession) -> None:
    twice = [LSN, ("seq", b"1"), ("op", b"c"), ("seq", b"x"), ("commit_lsn", b"?"), ("op", b"?")]
    record = Record("s.a.b", None, b"\0\0\0\0\1\0", twice)

    (row,) = wire(frame(spark, [(0, record)])).collect()

    assert (row.lsn, row.seq, row.op, row.fault) == ("00000000/00000010", 1, "c", None)


EQUAL = [
    *equality.read(),
    equality.Pair("numeric(40,2)", "0.00", "0", True),
    equality.Pair("character(3)", "a  ", "a", True),
    equality.Pair("character varying(3)", "a  ", "a", False),
]
FLOATS = {"double precision": "double", "real": "float"}


def test_keys_are_equal_when_postgresql_says_so(spark: SparkSession) -> None:
    def form(pg_type: str, text: str) -> str:
        kind = FLOATS.get(pg_type, "string")
        return canonical(f"CAST('{text}' AS {kind})", kind, pg_type, key=True)

    judged = [f"{form(kind, one)} <=> {form(kind, other)}" for kind, one, other, _ in EQUAL]

    row = spark.sql("SELECT " + ", ".join(judged)).first()

    assert row is not None
    assert list(zip(EQUAL, row, strict=True)) == [(pair, pair.equal) for pair in EQUAL]


def test_a_key_of_unknown_equality_is_refused() -> None:
    with pytest.raises(TableError, match="jsonb"):
        canonical("x", "string", "jsonb", key=True)


def test_columns_that_differ_by_case_alone_are_refused() -> None:
    schema = value_schema("public", "t", [Col("a", "int", "integer"), Col("A", "int", "integer")])

    with pytest.raises(TableError, match="'a' and 'A' differ by case"):
        value_layout(schema)
