"""Values at the ends of their types, and names of columns that the job has other uses for."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from psycopg import sql
from pyspark.sql import functions as F

from spark_consumer.apply.driver import writer as small_writer
from spark_consumer.errors import TableError
from spark_consumer.formats.delta import merge
from spark_consumer.kafka.layout import _folds, value_layout
from spark_consumer.names import free_name, quoted
from spark_consumer.verify.text import text_sql, value_text
from tests.support.backends.servers import Database
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic, value_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAYS = Col("d", {"type": "int", "logicalType": "date"}, "date")
LOCAL = Col(
    "ts", {"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp without time zone"
)
INSTANT = Col("tz", {"type": "long", "logicalType": "timestamp-micros"}, "timestamp with time zone")
ENDS = {
    1: (2**31 - 1, 2**63 - 1, 2**63 - 1),  # infinity
    2: (-(2**31) + 1, -(2**63) + 1, -(2**63) + 1),
    3: (-2_440_588, -210_866_803_200_000_000, -210_866_803_200_000_000),  # 4714-11-24 BC
    4: (19_000, 1_700_000_000_000_000, 1_700_000_000_000_001),
    5: (-(2**31), -(2**63), -(2**63)),  # -infinity
}

LONG = "\uffff" * 200_000


def test_an_internal_name_is_never_one_of_the_user_s() -> None:
    assert free_name("place", ["a", "b"]) == "place"
    assert free_name("place", ["PLACE", "place_"]) == "place__"


@pytest.mark.parametrize("way", ["rewritten", "marked", "merged"])
def test_keys_at_the_ends_of_their_types_and_before_christ_are_found_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    held = way != "marked"
    if way != "rewritten":
        monkeypatch.setattr(small_writer, "LARGEST_BYTES", -1)
    if way == "marked":
        monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    text = Col("k", "string", "text")
    columns = [Col("id", "int", "integer"), DAYS, LOCAL, INSTANT, text, Col("b", "string", "text")]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, ["d", "ts", "tz", "k"])
    table = Direct(spark, tmp_path, topic)

    def row(number: int, text: str) -> dict[str, Any]:
        d, ts, tz = ENDS[number]
        key = LONG + chr(0x10000 + number) if number % 2 else f"'\\{number}`${{env:HOME}}"
        return {"id": number, "d": d, "ts": ts, "tz": tz, "k": key, "b": text}

    topic.truncate(0x90, 0, snapshot="first")
    for number in ENDS:
        topic.change("r", 0x90, 0, after=row(number, "copied"))
    table.apply(held=held, small=held)
    for number in (1, 2, 3):
        topic.change("u", 0xA0, number, after=row(number, "changed"))
    table.apply(held=held, small=held)
    topic.change("d", 0xB0, 1, before=row(1, "x"))
    topic.change("d", 0xB0, 3, before=row(2, "x"))
    topic.change("u", 0xB0, 5, after=row(5, "changed"))
    table.apply(held=held, small=held)
    topic.change("c", 0xC0, 1, after=row(1, "back"))
    topic.change("u", 0xC0, 2, after=row(4, "last"))
    table.apply(held=held, small=held)

    rows = spark.read.format("delta").load(table.path)
    found = rows.selectExpr(
        "id", "unix_date(d)", "unix_micros(CAST(ts AS TIMESTAMP))", "unix_micros(tz)", "b"
    ).collect()
    assert {one[0]: tuple(one) for one in found} == {
        number: (number, *ENDS[number], text)
        for number, text in [(1, "back"), (3, "changed"), (4, "last"), (5, "changed")]
    }
    assert table.skipped == 0


@pytest.mark.parametrize("held", [True, False], ids=["rewritten", "marked"])
def test_columns_may_be_called_whatever_the_job_calls_its_own(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    if not held:
        monkeypatch.setattr(small_writer, "LARGEST_BYTES", -1)
        monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    names = [
        "~there",
        "there",
        "need",
        "place",
        "file",
        "k",
        "v",
        "s",
        "t",
        "_metadata",
        "a`b",
        "value",
        "key",
        "before",
        "after",
        # What Spark would put the driver's environment in the place of.
        "${env:HOME}",
        "${spark.app.name}",
        "${",
        "_change_type",
        "_commit_version",
        "__op",
        "a.b",
        "a ",
        " ",
        'quo"te',
        "quo'te",
        "back\\slash",
        "new\nline",
        "esc\x1b[31m",
        "null",
        "*",
        "straße",
        "strasse",
    ]
    columns = [
        Col("x_" + "".join(f"{ord(one):x}" for one in name), "int", "integer", name)
        for name in names
    ]
    first, second = (columns[names.index(name)].field for name in ("after", "${env:HOME}"))
    others = [column.field for column in columns if column.field not in (first, second)]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, [first, second])
    table = Direct(spark, tmp_path, topic)

    def row(number: int, value: int) -> dict[str, Any]:
        return {first: number, **dict.fromkeys(others, value), second: number}

    topic.truncate(0x90, 0, snapshot="first")
    for number in (1, 2, 3):
        topic.change("r", 0x90, 0, after=row(number, 0))
    table.apply()
    topic.change("u", 0xA0, 1, after=row(1, 7))
    topic.change("u", 0xA0, 3, after=row(2, 5), unchanged=others[3:6])
    topic.change("d", 0xA0, 5, before=row(3, 0))
    topic.change("u", 0xA0, 7, after=row(4, 9))
    table.apply(held=held, small=held)

    rows = spark.read.format("delta").load(table.path)
    assert rows.columns == names
    found = {one[names.index("after")]: one[names.index("~there")] for one in rows.collect()}
    assert found == {1: 7, 2: 5}
    assert table.skipped == 1


def test_names_that_spark_takes_for_the_same_are_refused_and_no_others(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    texts = jvm.org.apache.commons.lang3.StringUtils
    odd = [c for n in range(0x80, 0x2000) if (c := chr(n)).casefold() != c or c.upper() != c]
    assert len(odd) > 1000
    for one in odd:
        for other in {one.upper(), one.lower(), one.casefold()} - {one}:
            same = texts.equalsIgnoreCase(one, other) or texts.lowerCase(one) == texts.lowerCase(
                other
            )
            assert bool(_folds(f"a{one}") & _folds(f"a{other}")) is same, (one, other)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("straße", "STRASSE"), None),
        (("a", "a ", "ä"), None),
        (("\u0131d", "id"), "the columns '\u0131d' and 'id' differ by case alone"),
        (("\u0130d", "id"), "the columns '\u0130d' and 'id' differ by case alone"),
        (("id", "_Row_Id_"), "a column is called '_Row_Id_'"),
        (("__delta_internal_is_row_deleted",), "a column is called '__delta_internal_is"),
    ],
)
def test_a_table_that_delta_cannot_hold_is_refused_with_the_column_s_name(
    names: tuple[str, ...], reason: str | None
) -> None:
    columns = [Col(f"c{n}", "int", "integer", name) for n, name in enumerate(names)]
    schema = value_schema("public", "t", columns)
    if reason is None:
        assert [column.name for column in value_layout(schema).columns] == list(names)
        return
    with pytest.raises(TableError, match=re.escape(reason)) as refused:
        value_layout(schema)
    assert refused.value.hint is not None and "column list" in refused.value.hint


DEFAULTS = {
    "${env:HOME}": ("date", "'infinity'"),
    "a.b": ("date", "'0044-03-15 BC'"),
    "new\nline": ("timestamp", "'infinity'"),
    "quo'te": ("timestamp", "'4713-01-01 00:00:00.5 BC'"),
    'quo"te': ("timestamptz", "'-infinity'"),
    "a`b": ("timestamptz", "'0001-01-01 00:00:00.000001+05:45 BC'"),
    "esc\x1b[31m": ("timestamptz", "'20240-02-29 12:00:00-03'"),
    "back\\slash": ("bytea", r"'\x00ff41'"),
    " ": ("bytea", "''"),
    "_change_type": ("text", "'${env:HOME} ''q'' \\'"),
    "*": ("double precision", "'-Infinity'"),
}
AVRO: dict[str, Any] = {
    "date": DAYS.avro,
    "timestamp": LOCAL.avro,
    "timestamptz": INSTANT.avro,
    "bytea": "bytes",
    "text": "string",
    "double precision": "double",
}


@pytest.mark.postgres
def test_columns_that_come_with_a_value_have_what_postgresql_says(
    spark: SparkSession, tmp_path: Path, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute("SET timezone = 'UTC'; SET datestyle = 'ISO'; CREATE TABLE t (id int)")
        connection.execute("INSERT INTO t VALUES (1)")
        for name, (kind, default) in DEFAULTS.items():
            column = sql.Identifier(name)
            added = sql.SQL("ALTER TABLE t ADD COLUMN {} {} DEFAULT {}")
            connection.execute(added.format(column, sql.SQL(kind), sql.SQL(default)))
        missing: dict[str, str] = dict(
            connection.execute(
                "SELECT attname, (attmissingval::text::text[])[1] FROM pg_attribute"
                " WHERE attrelid = 't'::regclass AND atthasmissing"
            ).fetchall()
        )
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(n)) for n in DEFAULTS)
        judged = connection.execute(sql.SQL("SELECT {} FROM t").format(texts)).fetchone()
    assert judged is not None and missing.keys() == DEFAULTS.keys()
    identity = Col("id", "int", "integer", None, 1)
    topic = TableTopic(StaticSchemas(), "s.public.t", [identity], ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1})
    table.apply()

    def come(suffix: str) -> list[Col]:
        return [
            Col(f"c{number}", AVRO[kind], kind, name + suffix, number, missing[name])
            for number, (name, (kind, _)) in enumerate(DEFAULTS.items(), 2)
        ]

    topic.columns = [identity, *come("")]
    topic.change("c", 0xA0, 1, after={"id": 2})
    table.apply()
    topic.columns = [identity, *come("2")[:-3]]
    topic.change("c", 0xB0, 1, after={"id": 3})
    table.apply()

    rows = spark.read.format("delta").load(table.path).where("id = 1")
    assert rows.columns == ["id", *(name + "2" for name in DEFAULTS)][:-3]
    session = spark.newSession()
    session.conf.set("spark.sql.variable.substitute", "false")
    rows = session.read.format("delta").load(table.path).where("id = 1")
    shown = rows.select(*(F.expr(text_sql(quoted(f.name), f)) for f in rows.schema.fields[1:]))
    kinds = [field.dataType for field in rows.schema.fields[1:]]
    expected = [value_text(text, kind) for text, kind in zip(judged, kinds, strict=False)]
    (found,) = shown.collect()
    assert list(found) == expected


def test_a_copy_may_bring_a_type_that_the_table_did_not_have(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", [Col("id", "int", "integer")], ["id"])
    table = Direct(spark, tmp_path, topic)
    for columns in ([], [LOCAL]):
        topic.columns = [Col("id", "int", "integer"), *columns]
        topic.truncate(0x90, 0, snapshot="first")
        topic.change("r", 0x90, 0, after={"id": 1, "ts": 0})
        table.apply()

    assert table.rows() == [(1, datetime(1970, 1, 1))]
