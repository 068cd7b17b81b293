"""Tables of which the driver rewrites a few small files, and marks rows of the others."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pytest

from spark_consumer.apply.driver import writer as driver_writer
from spark_consumer.formats.delta import files as delta_files
from spark_consumer.formats.delta import merge
from spark_consumer.formats.delta.format import DeltaFormat
from tests.support.spark.direct import Direct, let_mark
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = [
    Col("id", "int", "integer"),
    Col("a", "int", "integer"),
    Col("big", "string", "text"),
]
ODD = "wäre haus/100%20 #1+2&3=?{a,b}[c]*~`d`'e'"
"""A folder with what paths, URLs, patterns and SQL have other uses for."""


@pytest.fixture(autouse=True)
def _only_base(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is small enough to be rewritten, and no table to be merged."""
    monkeypatch.setattr(driver_writer, "TAIL_BYTES", 0)
    monkeypatch.setattr(merge, "VECTOR_BYTES", -1)


def copied(
    spark: SparkSession, folder: Path, keys: int, *, held: bool = True
) -> tuple[TableTopic, Direct]:
    """A table of keys from 1 on in one file whose rows may be marked."""
    topic = TableTopic(StaticSchemas(), "s.public.t", COLUMNS, ["id"])
    table = Direct(spark, folder, topic)
    topic.truncate(0x90, 0, snapshot="first")
    for key in range(1, keys + 1):
        topic.change("r", 0x90, 0, after={"id": key, "a": key, "big": f"big {key}"})
    table.apply(held=held)
    let_mark(table)
    table.held = 0
    return topic, table


def entries(table: Direct) -> dict[str, dict[str, Any]]:
    """The files of the table by name, as its log has them."""
    there: dict[str, dict[str, Any]] = {}
    for path in sorted(Path(table.path, "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        for name in (action["remove"]["path"] for action in actions if "remove" in action):
            del there[name]
        there |= {action["add"]["path"]: action["add"] for action in actions if "add" in action}
    return there


def vectors(table: Direct) -> list[dict[str, Any]]:
    """Descriptors of the deletion vectors of the table's files."""
    return [one["deletionVector"] for one in entries(table).values() if "deletionVector" in one]


@pytest.mark.parametrize("held", [True, False], ids=["by the driver", "in frames"])
def test_rows_of_a_base_change_like_those_of_the_apply_worker(
    spark: SparkSession, tmp_path: Path, held: bool
) -> None:
    topic, table = copied(spark, tmp_path / ODD, 12)
    (base,) = entries(table)
    at = 0xA0
    topic.change("u", at, 1, after={"id": 1, "a": 10, "big": "set"})
    topic.change("u", at, 2, after={"id": 2, "a": 20}, unchanged=["big"])
    topic.change("d", at, 3, before={"id": 3})
    # Deleted, and there again.
    topic.change("d", at, 5, before={"id": 4})
    topic.change("c", at, 6, after={"id": 4, "a": 40, "big": "again"})
    # Moved without its large value, moved once more, and changed there.
    topic.rekey(at, 7, before={"id": 5}, after={"id": 50, "a": 5}, unchanged=["big"])
    topic.rekey(at, 9, before={"id": 50}, after={"id": 51, "a": 6}, unchanged=["big"])
    topic.change("u", at, 11, after={"id": 51, "a": 7}, unchanged=["big"])
    # The row that it would come from is not there: the one in its place stays.
    topic.rekey(at, 13, before={"id": 99}, after={"id": 6, "a": 0, "big": "no"})
    topic.change("u", at, 15, after={"id": 98, "a": 0, "big": "no"})
    topic.change("d", at, 17, before={"id": 97})
    # The same row several times, some of them without its large value.
    topic.change("u", at, 19, after={"id": 7, "a": 70}, unchanged=["big"])
    topic.change("u", at, 20, after={"id": 7, "a": 71, "big": "first"})
    topic.change("u", at, 21, after={"id": 7, "a": 72}, unchanged=["big"])
    topic.change("c", at, 23, after={"id": 13, "a": 13, "big": "new"})
    # Into the place of a row that has gone.
    topic.change("d", at, 25, before={"id": 8})
    topic.rekey(at, 27, before={"id": 9}, after={"id": 8, "a": 9}, unchanged=["big"])
    table.apply(held=held)

    expected = [
        (1, 10, "set"),
        (2, 20, "big 2"),
        (4, 40, "again"),
        (6, 6, "big 6"),
        (7, 72, "first"),
        (8, 9, "big 9"),
        (10, 10, "big 10"),
        (11, 11, "big 11"),
        (12, 12, "big 12"),
        (13, 13, "new"),
        (51, 7, "big 5"),
    ]
    assert sorted(table.rows()) == expected
    assert table.held == (1 if held else 0)
    assert table.skipped == 2
    # 1, 2, 3, 4, 5, 7, 8 and 9 have been in the file.
    assert entries(table)[base]["deletionVector"]["cardinality"] == 8

    # Each kind once more, on rows that are in two files by now.
    topic.change("u", 0xB0, 1, after={"id": 51, "a": 8}, unchanged=["big"])
    topic.change("u", 0xB0, 2, after={"id": 12, "a": 8}, unchanged=["big"])
    topic.change("d", 0xB0, 3, before={"id": 13})
    topic.change("d", 0xB0, 5, before={"id": 10})
    table.apply(held=held)

    changed = {51: (51, 8, "big 5"), 12: (12, 8, "big 12"), 13: None, 10: None}
    after = [changed.get(row[0], row) for row in expected]
    assert sorted(table.rows()) == sorted(row for row in after if row is not None)
    assert entries(table)[base]["deletionVector"]["cardinality"] == 10
    assert {
        json.loads(one["stats"])["tightBounds"]
        for one in entries(table).values()
        if "deletionVector" in one
    } == {False}


KEYS: dict[str, tuple[list[Col], list[dict[str, Any]]]] = {
    "numeric": ([Col("k", "string", "numeric")], [{"k": "1.50"}, {"k": "-0.0"}, {"k": "7"}]),
    "text": ([Col("k", "string", "text")], [{"k": "a"}, {"k": "A"}, {"k": "a "}]),
    "bpchar": ([Col("k", "string", "character(4)")], [{"k": "a   "}, {"k": "b   "}, {"k": "c   "}]),
    "bigint": ([Col("k", "long", "bigint")], [{"k": 2**62}, {"k": -(2**62)}, {"k": 0}]),
    "decimal": (
        [
            Col(
                "k",
                {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2},
                "numeric(30,2)",
            )
        ],
        [{"k": Decimal(10) ** 20}, {"k": Decimal("-0.01")}, {"k": Decimal(0)}],
    ),
    "composite": (
        [Col("k", "int", "integer"), Col("l", "string", "text")],
        [{"k": 1, "l": "x"}, {"k": 1, "l": "y"}, {"k": 2, "l": "x"}],
    ),
}
OTHER_FORM = {"1.50": "1.5", "a   ": "a"}
"""The same key as a later record may write it."""


@pytest.mark.parametrize("kind", KEYS)
def test_rows_are_found_by_keys_that_are_equal_for_postgresql(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    columns, (first, second, third) = KEYS[kind]
    names = [column.field for column in columns]
    topic = TableTopic(StaticSchemas(), "s.public.t", [*columns, Col("b", "string", "text")], names)
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    for key in (first, second, third):
        topic.change("r", 0x90, 0, after=key | {"b": "copied"})
    table.apply()
    let_mark(table)
    other = {name: OTHER_FORM.get(value, value) for name, value in first.items()}
    topic.change("u", 0xA0, 1, after=other | {"b": "set"})
    topic.change("d", 0xA0, 3, before=second)
    table.apply()

    assert table.held == 2
    assert table.skipped == 0
    assert sorted(row[-1] for row in table.rows()) == ["copied", "set"]
    assert tuple(third.values()) in {row[:-1] for row in table.rows()}
    (vector,) = vectors(table)
    assert vector["cardinality"] == 2


def test_positions_count_through_the_row_groups_of_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("parquet.block.size", "4096")
    try:
        topic, table = copied(spark, tmp_path, 2_000, held=False)
    finally:
        hadoop.unset("parquet.block.size")
    (base,) = Path(table.path).glob("*.parquet")
    groups = duckdb.sql(f"SELECT DISTINCT row_group_id FROM parquet_metadata('{base}')")
    assert len(groups.fetchall()) > 3
    changed = [1, 2, 777, 1_234, 1_999, 2_000]
    for key in changed:
        topic.change("u", 0xA0, key, after={"id": key, "a": -key}, unchanged=["big"])
    table.apply()

    assert table.held == 1
    expected = [(k, -k if k in changed else k, f"big {k}") for k in range(1, 2_001)]
    assert sorted(table.rows()) == expected


def test_marks_grow_from_cut_to_cut_until_the_file_goes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, table = copied(spark, tmp_path, 4_000)
    (base,) = entries(table)
    model = {key: (key, key, f"big {key}") for key in range(1, 4_001)}
    for turn, keys in enumerate([range(1, 9), range(3, 4_000, 3), range(1, 4_000, 2)]):
        for key in keys:
            topic.change("u", 0xA0 + turn, key, after={"id": key, "a": turn}, unchanged=["big"])
            model[key] = (key, turn, f"big {key}")
        table.apply()
        assert base in entries(table)
        assert sorted(table.rows()) == sorted(model.values())
    for key in range(1, 4_001):
        if key % 5:
            topic.change("d", 0xB0, key, before={"id": key})
            del model[key]
        else:
            topic.change("u", 0xB0, key, after={"id": key, "a": -1}, unchanged=["big"])
            model[key] = (key, -1, f"big {key}")
    table.apply()

    assert table.held == 4
    assert base not in entries(table)
    assert sorted(table.rows()) == sorted(model.values())
    there = spark.read.format("delta").load(table.path)
    assert there.where("a = -1").count() == 800


def test_others_maintain_and_alter_the_table_in_between(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, 1_000)
    model = {key: (key, key, f"big {key}") for key in range(1, 1_001)}
    path = f"delta.`{table.path}`"
    between = [
        f"OPTIMIZE {path}",
        f"VACUUM {path} RETAIN 0 HOURS",
        f"ALTER TABLE {path} SET TBLPROPERTIES ('note' = 'somebody')",
        f"REORG TABLE {path} APPLY (PURGE)",
    ]
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    for turn, statement in enumerate(between):
        for key in range(turn + 1, 1_000, 7):
            topic.change("u", 0xA0 + turn, key, after={"id": key, "a": -turn}, unchanged=["big"])
            if key in model:
                model[key] = (key, -turn, f"big {key}")
        # A cut before and one after, by a process that begins with it.
        table.apply()
        session.sql(statement)
        topic.change("d", 0xA0 + turn, 2_000, before={"id": 990 + turn})
        del model[990 + turn]
        table.tables = DeltaFormat()
        table.apply()
        assert sorted(table.rows()) == sorted(model.values())

    assert table.held == 2 * len(between)


def test_files_that_cannot_have_a_key_are_not_opened(spark: SparkSession, tmp_path: Path) -> None:
    topic, table = copied(spark, tmp_path, 100)
    (base,) = Path(table.path).glob("*.parquet")
    hidden = base.rename(base.with_suffix(".hidden"))
    topic.change("c", 0xA0, 1, after={"id": 101, "a": 1, "big": "new"})
    table.apply()
    assert table.held == 1
    topic.change("u", 0xB0, 1, after={"id": 101, "a": 2}, unchanged=["big"])
    topic.change("d", 0xB0, 3, before={"id": 0})
    table.apply()
    assert table.held == 2

    hidden.rename(base)
    assert len(table.rows()) == 101
    assert (101, 2, "new") in table.rows()


def test_a_table_whose_rows_must_not_be_marked_gets_new_rows_from_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_writer, "SMALL_TABLE_BYTES", 0)
    topic, table = copied(spark, tmp_path, 10)
    let_mark(table, may=False)
    topic.change("c", 0xA0, 1, after={"id": 11, "a": 1, "big": "new"})
    table.apply()
    assert table.held == 1
    for lsn, op in ((0xB0, "u"), (0xC0, "c")):
        topic.change(op, lsn, 1, after={"id": 1, "a": lsn, "big": op})
        table.apply()
        assert table.held == 1
        assert (1, lsn, op) in table.rows()

    assert vectors(table) == []
    assert len(table.rows()) == 11


def test_a_table_that_has_grown_gets_deletion_vectors_with_its_first_marks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_writer, "SMALL_TABLE_BYTES", 0)
    topic = TableTopic(StaticSchemas(), "s.public.t", COLUMNS, ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    for key in range(1, 11):
        topic.change("r", 0x90, 0, after={"id": key, "a": key, "big": "copied"})
    table.apply()
    features = []
    for key in (11, 1, 2):
        topic.change("c" if key > 10 else "u", 0xA0 + key, 1, after={"id": key, "a": 0, "big": ""})
        table.apply()
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{table.path}`").first()
        assert detail is not None
        features.append(set(detail["tableFeatures"]))

    assert table.held == 4
    legacy = {"appendOnly", "invariants"}
    assert features == [legacy, legacy | {"deletionVectors"}, legacy | {"deletionVectors"}]
    expected = [(1, 0, ""), (2, 0, ""), *((k, k, "copied") for k in range(3, 11)), (11, 0, "")]
    assert sorted(table.rows()) == expected
    assert polars.read_delta(table.path).sort("id").rows() == expected
    # Maintenance sees how many files there are.
    known, opened = entries(table).values(), DeltaFormat().table(spark.newSession(), table.path, "")
    assert (opened.files(), opened.bytes()) == (len(known), sum(one["size"] for one in known))
    # Delta and the frames go on from there.
    topic.change("u", 0xF0, 1, after={"id": 1, "a": 1}, unchanged=["big"])
    table.apply(held=False)
    assert (1, 1, "") in table.rows()


def test_rows_without_a_key_are_left_to_spark_where_they_have_a_base(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_writer, "SMALL_TABLE_BYTES", 0)
    topic = TableTopic(StaticSchemas(), "s.public.t", COLUMNS, [])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    row = {"id": 1, "a": 1, "big": "x"}
    topic.change("r", 0x90, 0, after=row)
    table.apply()
    topic.change("u", 0xA0, 1, before=row, after=row | {"a": 2})
    table.apply()

    assert table.held == 1
    assert table.rows() == [(1, 2, "x")]


def test_a_tail_is_rewritten_until_it_has_its_size_and_belongs_to_the_base_then(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, table = copied(spark, tmp_path, 4_000)
    (base,) = entries(table)
    size = entries(table)[base]["size"]
    monkeypatch.setattr(driver_writer, "TAIL_BYTES", size // 4)
    counts = []
    for turn in range(12):
        for key in range(200):
            number = 1 + turn * 200 + key
            topic.change(
                "u", 0xA0 + turn, key, after={"id": number, "a": -1, "big": f"set {number}"}
            )
        # One that is in the tail already: it is rewritten.
        topic.change("u", 0xA0 + turn, 900, after={"id": 1, "a": turn, "big": f"set {number}"})
        table.apply()
        counts.append(len(entries(table)))

    assert table.held == 12
    assert counts[:3] == [2, 2, 2]
    assert 2 < counts[-1] < 12
    expected = [(k, -1, f"set {k}") if k <= 2_400 else (k, k, f"big {k}") for k in range(2, 4_001)]
    assert sorted(table.rows()) == [(1, 11, "set 2400"), *expected]


def test_a_table_of_many_files_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_files, "_MOST_FILES", 2)
    topic, table = copied(spark, tmp_path, 2)
    for key in (11, 12, 13):
        topic.change("c", 0xA0 + key, 1, after={"id": key, "a": 1, "big": "new"})
        table.tables = DeltaFormat()
        table.apply()

    assert table.held == 2
    assert len(table.rows()) == 5


def test_files_of_a_tail_may_have_marked_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, table = copied(spark, tmp_path, 10)
    for key in (1, 2):
        topic.change("u", 0xA0, key, after={"id": key, "a": 0}, unchanged=["big"])
    table.apply()
    assert len(vectors(table)) == 1
    monkeypatch.setattr(driver_writer, "TAIL_BYTES", driver_writer.SMALL_TABLE_BYTES)
    topic.change("c", 0xB0, 1, after={"id": 11, "a": 11, "big": "big 11"})
    table.apply()
    assert len(entries(table)) == 3
    topic.change("u", 0xC0, 1, after={"id": 1, "a": -1}, unchanged=["big"])
    topic.change("d", 0xC0, 3, before={"id": 3})
    table.apply()

    assert table.held == 3
    assert len(entries(table)) == 1
    assert vectors(table) == []
    first = [(1, -1, "big 1"), (2, 0, "big 2")]
    assert sorted(table.rows()) == [*first, *((k, k, f"big {k}") for k in range(4, 12))]


def test_many_files_become_one_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_writer, "_MANY_FILES", 4)
    topic, table = copied(spark, tmp_path, 3_000)
    (base,) = entries(table).values()
    # No file fits into a tail, and the first one does not fit into a long one.
    monkeypatch.setattr(driver_writer, "TAIL_BYTES", 1)
    monkeypatch.setattr(driver_writer, "_LONG_TAILS", base["size"] - 1)
    counts = []
    for turn in range(5):
        topic.change("u", 0xA0 + turn, 1, after={"id": 1, "a": turn}, unchanged=["big"])
        topic.change("c", 0xA0 + turn, 3, after={"id": 9_000 + turn, "a": 0, "big": "new"})
        table.apply()
        counts.append(len(entries(table)))

    rows = table.rows()
    assert table.held == 5
    assert counts == [2, 3, 4, 2, 3]
    assert [row for row in rows if row[0] == 1] == [(1, 4, "big 1")]
    assert len(rows) == 3_005


def test_another_reader_sees_no_row_that_is_marked(spark: SparkSession, tmp_path: Path) -> None:
    topic, table = copied(spark, tmp_path, 2_000)
    topic.change("d", 0x98, 1, before={"id": 4})
    table.apply()
    read = polars.read_delta(table.path).sort("id")
    assert read["id"].to_list() == [1, 2, 3, *range(5, 2_001)]
    for key in range(1, 2_000, 2):
        topic.change("u", 0xA0, key, after={"id": key, "a": 0, "big": "set"})
    topic.change("d", 0xA0, 9_000, before={"id": 2})
    table.apply()

    read = polars.read_delta(table.path).sort("id")

    assert table.held == 2
    assert [one["cardinality"] for one in vectors(table)] == [1_002]
    assert read["id"].to_list() == [1, 3, *range(5, 2_001)]
    assert read["a"].to_list()[:4] == [0, 0, 0, 6]


def test_rows_are_marked_beside_delta_s_marks_in_files_of_other_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = [
        Col("id", "int", "integer", number=1),
        Col("a", "int", "integer", number=2),
        Col("gone", "int", "integer", number=3),
        Col("big", "string", "text", number=4),
    ]
    topic = TableTopic(StaticSchemas(), "s.public.t", before, ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    for key in range(1, 13):
        topic.change("r", 0x90, 0, after={"id": key, "a": key, "gone": 0, "big": f"big {key}"})
    table.apply()
    let_mark(table)
    (first,) = entries(table)
    topic.change("u", 0xA0, 1, after={"id": 1, "a": -1, "gone": 0}, unchanged=["big"])
    topic.change("d", 0xA0, 3, before={"id": 2})
    table.apply(held=False)
    assert table.held == 1
    assert entries(table)[first]["deletionVector"]["cardinality"] == 2

    # A column with another name, and one that is gone; Spark applies the cut that brings them.
    topic.columns = [before[0], Col("b", "int", "integer", number=2), before[3]]
    topic.change("c", 0xB0, 1, after={"id": 2, "b": -2, "big": "again"})
    table.apply()
    topic.change("u", 0xB1, 1, after={"id": 3, "b": -3}, unchanged=["big"])
    topic.change("u", 0xB1, 3, after={"id": 1, "b": -10}, unchanged=["big"])
    topic.rekey(0xB1, 5, before={"id": 4}, after={"id": 40, "b": -4}, unchanged=["big"])
    table.apply()
    # A key that has become wider.
    topic.columns[0] = Col("id", "long", "bigint", number=1)
    topic.change("d", 0xC0, 1, before={"id": 40})
    table.apply()
    topic.change("u", 0xC1, 1, after={"id": 5, "b": -5}, unchanged=["big"])
    topic.rekey(0xC1, 3, before={"id": 6}, after={"id": 2**40, "b": -6}, unchanged=["big"])
    table.apply()
    topic.change("u", 0xD0, 1, after={"id": 2**40, "b": -7}, unchanged=["big"])
    topic.change("u", 0xD0, 3, after={"id": 2, "b": -8}, unchanged=["big"])
    table.apply()

    assert table.held == 4
    assert table.skipped == 0
    assert sorted(table.rows()) == [
        (1, -10, "big 1"),
        (2, -8, "again"),
        (3, -3, "big 3"),
        (5, -5, "big 5"),
        *((key, key, f"big {key}") for key in range(7, 13)),
        (2**40, -7, "big 6"),
    ]
    # 1 to 6 have been in the file.
    assert entries(table)[first]["deletionVector"]["cardinality"] == 6


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


def test_bounds_of_a_marked_file_stay_as_they_were_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = [COLUMNS[0], Col("amount", MONEY, "numeric(10,2)")]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    for key in (1, 2, 3):
        topic.change("r", 0x90, 0, after={"id": key, "amount": Decimal(f"{key}00.00")})
    table.apply(held=False)
    let_mark(table)
    ((name, before),) = entries(table).items()
    topic.change("d", 0xA0, 1, before={"id": 2})
    table.apply()

    bounds = '"minValues":{"id":1,"amount":100.00},"maxValues":{"id":3,"amount":300.00}'
    assert bounds in before["stats"]
    assert bounds in entries(table)[name]["stats"]
    assert polars.read_delta(table.path).sort("id").rows() == [
        (1, Decimal("100.00")),
        (3, Decimal("300.00")),
    ]
