"""Columns of json as VARIANT in tables of both formats: `json = "variant"`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, VariantType

from schemas.settings.consumer import Readers
from schemas.settings.tables import TableFormatName
from spark_consumer.errors import SettingsError, TableError
from spark_consumer.formats.choice import open_format
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import as_error
from spark_consumer.values.variants import variant_sql
from spark_consumer.verify.text import text_sql, value_text
from tests.support.run.waiting import within
from tests.support.spark.direct import Direct
from tests.support.spark.every_format import FORMATS
from tests.support.spark.records import Col, StaticSchemas, TableTopic, VariantSchemas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ID = Col("id", "int", "integer", None, 1)
B = Col("b", "string", "jsonb", None, 2)
J = Col("j", "string", "json", None, 3)
LATE = Col("late", "string", "jsonb", None, 4, '{"k": [1, null]}')


def opened(kind: TableFormatName, readers: Readers = "current") -> TableFormat:
    return DeltaFormat(readers=readers) if kind == "delta" else IcebergFormat(readers)


def shown(table: Direct, *columns: str) -> list[tuple[Any, ...]]:
    """The table's rows, with VARIANT as the text of json."""
    rows = table.tables.table(table.spark.newSession(), table.path, "t").rows()
    kinds = dict(rows.dtypes)
    assert {kinds[name.strip("`")] for name in columns} == {"variant"}
    found = rows.selectExpr("id", *(f"to_json({name})" for name in columns)).collect()
    return sorted((tuple(row) for row in found), key=repr)


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_with_variants_are_copied_changed_moved_and_deleted(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName
) -> None:
    topic = TableTopic(VariantSchemas(), "s.public.t", [ID, B, J], ["id"])
    table = Direct(spark, tmp_path, topic, opened(kind))
    topic.truncate(0x90, 0, snapshot="first")
    for key in (1, 2, 3):
        topic.change("r", 0x90, 0, after={"id": key, "b": '{"a": 1.50}', "j": '{ "z":1,"z":2}'})
    topic.change("r", 0x90, 0, after={"id": 4, "b": None, "j": "null"})
    table.apply()
    same = ('{"a":1.5}', '{"z":2}')
    assert shown(table, "b", "j") == [*((key, *same) for key in (1, 2, 3)), (4, None, "null")]

    topic.change("u", 0xA0, 1, after={"id": 1, "b": "[1]", "j": None}, unchanged=["j"])
    topic.change("d", 0xA0, 3, before={"id": 2})
    topic.rekey(0xA0, 4, before={"id": 3}, after={"id": 9, "b": None, "j": "2"}, unchanged=["b"])
    topic.columns = [ID, B, J, LATE]
    topic.change("c", 0xB0, 1, after={"id": 5, "b": '"x"', "j": "true", "late": "7"})
    table.apply()

    late = '{"k":[1,null]}'
    assert shown(table, "b", "j", "late") == [
        (1, "[1]", '{"z":2}', late),
        (4, None, "null", late),
        (5, '"x"', "true", "7"),
        (9, '{"a":1.5}', "2", late),
    ]
    assert table.held == 0


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_without_a_key_are_found_by_their_variants(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName
) -> None:
    topic = TableTopic(VariantSchemas(), "s.public.t", [ID, B], [])
    table = Direct(spark, tmp_path, topic, opened(kind))
    topic.truncate(0x90, 0, snapshot="first")
    for text in ('{"a": 1.50, "b": 2}', '{"b": 2, "a": 1.5}', "null"):
        topic.change("r", 0x90, 0, after={"id": 1, "b": text})
    table.apply()

    topic.change("d", 0xA0, 1, before={"id": 1, "b": '{"a": 1.5, "b": 2.0}'})
    topic.change("u", 0xA0, 3, before={"id": 1, "b": "null"}, after={"id": 1, "b": "[]"})
    table.apply()

    assert shown(table, "b") == [(1, "[]"), (1, '{"a":1.5,"b":2}')]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("text", ["1" + "0" * 400, "[" * 1001 + "]" * 1001], ids=["large", "deep"])
def test_a_value_that_no_variant_can_have_names_its_column_and_leaves_the_table(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName, text: str
) -> None:
    topic = TableTopic(VariantSchemas(), "s.public.t", [ID, B], ["id"])
    table = Direct(spark, tmp_path, topic, opened(kind))
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1, "b": "1"})
    table.apply()
    topic.change("c", 0xA0, 1, after={"id": 2, "b": f'{{"n": {text}}}'})

    with pytest.raises(Exception) as raised:
        table.apply()

    error = as_error("table t", raised.value)
    assert isinstance(error, TableError)
    assert error.message == "table t: no VARIANT can have a value of the column b"
    assert error.hint is not None and text[:9] not in str(error)
    assert shown(table, "b") == [(1, "1")]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "text",
    ['{"n": 1e400}', "[" * 1001 + "]" * 1001],
    ids=["infinite", "deep"],
)
def test_a_default_that_no_variant_can_have_names_its_column_and_a_copy_releases_the_table(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName, text: str
) -> None:
    topic = TableTopic(VariantSchemas(), "s.public.t", [ID], ["id"])
    table = Direct(spark, tmp_path, topic, opened(kind))
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1})
    table.apply()
    topic.columns = [ID, Col("late", "string", "jsonb", "it's late", 4, text)]
    topic.change("c", 0xA0, 1, after={"id": 2, "late": "7"})

    with pytest.raises(Exception) as raised:
        table.apply()

    error = as_error("table t", raised.value)
    assert isinstance(error, TableError)
    assert error.message == (
        "table t: no VARIANT can have a value of the column it-x0027-s-x0020-late"
    )
    assert error.hint is not None and text[:9] not in str(error)

    topic.truncate(0xB0, 0, snapshot="first")
    topic.change("r", 0xB0, 0, after={"id": 3, "late": '"x"'})
    table.apply()
    assert shown(table, "`it's late`") == [(3, '"x"')]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_default_that_no_variant_can_have_is_added_to_a_table_without_rows(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName
) -> None:
    topic = TableTopic(VariantSchemas(), "s.public.t", [ID], ["id"])
    table = Direct(spark, tmp_path, topic, opened(kind))
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1})
    topic.change("d", 0x91, 0, before={"id": 1})
    table.apply()
    topic.columns = [ID, Col("late", "string", "jsonb", None, 4, '{"n": 1e400}')]
    topic.change("c", 0xA0, 1, after={"id": 2, "late": "7"})
    table.apply()

    assert shown(table, "late") == [(2, "7")]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_is_held_when_the_setting_changes_and_a_copy_makes_it_again(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", [ID, B], ["id"])
    table = Direct(spark, tmp_path, topic, opened(kind))
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1, "b": '{"a": 1}'})
    table.apply()
    other = VariantSchemas()
    other._schemas = topic.registry._schemas
    topic.registry = other
    topic.change("c", 0xA0, 1, after={"id": 2, "b": "[]"})

    with pytest.raises(TableError, match="'b' is string in the table and variant in the topic"):
        table.apply()

    topic.truncate(0xC0, 0, snapshot="first")
    topic.change("r", 0xC0, 0, after={"id": 3, "b": '{"a": 1}'})
    table.apply()
    assert shown(table, "b") == [(3, '{"a":1}')]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("by", ["copy", "new column"])
def test_a_table_for_the_widest_readers_becomes_one_with_variants(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName, by: str
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", [ID, B][: 2 if by == "copy" else 1], ["id"])
    table = Direct(spark, tmp_path, topic, opened(kind, "widest"))
    topic.truncate(0x90, 0, snapshot="first")
    for key in (1, 2):
        topic.change("r", 0x90, 0, after={"id": key, "b": "[]"})
    table.apply()
    topic.change("d", 0x91, 0, before={"id": 2})
    table.apply()
    table.tables = opened(kind)
    other = VariantSchemas()
    other._schemas = topic.registry._schemas
    topic.registry = other
    topic.columns = [ID, B if by == "copy" else Col("b", "string", "jsonb", None, 2, '{"a": 0}')]
    if by == "copy":
        topic.truncate(0xA0, 0, snapshot="first")
        topic.change("r", 0xA0, 0, after={"id": 1, "b": '{"a": 0}'})
    topic.change("c", 0xA1, 0, after={"id": 3, "b": "3.0"})
    table.apply()
    assert shown(table, "b") == [(1, '{"a":0}'), (3, "3")]

    topic.change("u", 0xB0, 0, after={"id": 1, "b": "null"})
    topic.change("d", 0xB1, 0, before={"id": 3})
    table.apply()
    assert shown(table, "b") == [(1, "null")]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("snapshot", ["first", "false"], ids=["copy", "truncate"])
def test_a_value_that_no_variant_can_have_is_skipped_where_the_share_supersedes_it(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName, snapshot: str
) -> None:
    topic = TableTopic(VariantSchemas(), "s.public.t", [ID, B], ["id"])
    table = Direct(spark, tmp_path, topic, opened(kind))
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1, "b": "1"})
    table.apply()
    topic.change("c", 0xA0, 1, after={"id": 2, "b": '{"n": 1e400}'})
    topic.truncate(0xB0, 0, snapshot=snapshot)
    topic.change("c", 0xB1, 0, after={"id": 3, "b": "[3.0]"})
    table.apply()

    assert shown(table, "b") == [(3, "[3]")]


def test_a_change_feed_has_the_variants(spark: SparkSession, tmp_path: Path) -> None:
    topic = TableTopic(VariantSchemas(), "s.public.t", [ID, B], ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1, "b": "1"})
    table.apply()
    spark.sql(
        f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    since = table.tables.table(spark.newSession(), table.path, "t").version()
    topic.change("u", 0xA0, 1, after={"id": 1, "b": '{"a": 2}'})
    table.apply()

    feed = spark.read.format("delta").option("readChangeFeed", "true")
    rows = feed.option("startingVersion", since + 1).load(table.path)
    found = rows.selectExpr("_change_type", "to_json(b)").collect()

    assert sorted(map(tuple, found)) == [
        ("update_postimage", '{"a":2}'),
        ("update_preimage", "1"),
    ]


@pytest.mark.parametrize("kind", FORMATS)
def test_tables_for_the_widest_readers_exclude_variants(
    spark: SparkSession, tmp_path: Path, kind: TableFormatName
) -> None:
    settings = ConsumerSettings(
        kafka={},
        registry_url="",
        warehouse=str(tmp_path),
        format=kind,
        readers="widest",
        json="variant",
    )
    with pytest.raises(SettingsError, match=r'consumer\.json = "variant" .*readers = "widest"'):
        open_format(spark, settings, "s")


JSON = (
    '{"b": 1, "a": 1.50, "aa": [1e5, 1.0, null, -0, -0.0, -0e0, 2e-3], "a": false}',
    *("12345678901234567890123456789012345678", "123456789012345678901234567890123456789"),
    *(f"0.{'0' * 37}1", f"0.{'0' * 38}1", f"1.{'0' * 38}", "5.684341886080802e-14", "1e23", "2e23"),
    r'"\u0000 \u001f \ud83d\ude00 é / \/ \b\f\n\r\t\"\\ \ud800"',
    *('{"😀": 1, "￮": 2, "z": 3}', "[" * 998 + "1.50" + "]" * 998, "null", '""', " [ ] ", "{}"),
    *(
        "1e-400",
        "9" * 308,
        "1e307",
        "1.55e250",
        f"0.{'1' * 320}",
        "9223372036854775807",
        "-9223372036854775809",
        "100.0",
    ),
)


def test_verify_has_the_text_that_spark_prints(spark: SparkSession) -> None:
    session = spark.newSession()
    DeltaFormat().prepare(session)
    rows = session.createDataFrame([(text,) for text in JSON], "text string")
    variant = rows.select(F.expr(variant_sql("text", "c")).alias("v"))
    printed = variant.select(F.expr(text_sql("v", StructField("v", VariantType())))).collect()

    assert [text for (text,) in printed] == [value_text(one, VariantType()) for one in JSON]


def test_a_text_that_never_ends_its_string_is_refused_at_once(spark: SparkSession) -> None:
    session = spark.newSession()
    DeltaFormat().prepare(session)
    # Whoever may write to a topic can have this; PostgreSQL's json always ends its strings.
    rows = session.createDataFrame([('1e400 "' + '\\"' * 60_000,)], "text string")

    # It takes milliseconds; a search that starts again at each quotation mark takes a minute.
    with within(5, "refusing it"), pytest.raises(Exception) as raised:
        rows.select(F.expr(variant_sql("text", "c")).alias("v")).collect()

    assert as_error("table t", raised.value).message == (
        "table t: no VARIANT can have a value of the column c"
    )
