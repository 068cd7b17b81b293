"""Old versions stay readable whatever becomes of the columns, and no record is lost between two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_consumer.errors import TableError
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.history import applier
from tests.support.spark.memory_format import MemoryFormat, MemoryTable
from tests.support.spark.records import Col, StaticSchemas, VariantSchemas
from tests.support.spark.versioned import COMMIT, DatedTopic, Versioned, as_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ID = Col("id", "int", "integer", number=1)
A = Col("a", "int", "integer", number=2)
B = Col("b", "string", "text", number=3)
TRUNCATES = 200


def copy(topic: DatedTopic, lsn: int, *rows: dict[str, Any]) -> None:
    topic.truncate(lsn, 0, snapshot="first")
    for row in rows:
        topic.change("r", lsn, 0, after=row, snapshot="true")


@pytest.mark.parametrize("tables", [DeltaFormat(), IcebergFormat()], ids=lambda one: one.name)
def test_columns_that_went_changed_their_type_or_their_name_keep_the_old_values(
    spark: SparkSession, tmp_path: Path, tables: TableFormat
) -> None:
    topic = DatedTopic(StaticSchemas(), "s.public.t", [ID, A, B], ["id"])
    copy(topic, 100, {"id": 1, "a": 10, "b": "old"}, {"id": 2, "a": 20, "b": "old"})
    history = Versioned(spark, tmp_path, topic, tables)
    history.begin(len(topic.records))

    # In one cut: a change, b dropped, a renamed to c, another column called a with a default, and
    # one called B, which engines do not distinguish from the b that stays.
    topic.change("u", 200, 1, after={"id": 1, "a": 11, "b": "new"})
    c = Col("c", "int", "integer", number=2)
    again = Col("a", "int", "integer", number=4, missing="7")
    topic.columns = [ID, c, again, Col("B", "int", "integer", number=5)]
    topic.change("u", 300, 1, after={"id": 1, "c": 12, "a": 8, "B": 5})
    history.follow()

    versions = history.versions()
    assert as_of(versions, 200 + COMMIT, ("id", "c", "b__1")) == [(1, 11, "new"), (2, 20, "old")]
    assert as_of(versions, 300 + COMMIT, ("id", "c", "a", "B", "b__1")) == [
        (1, 12, 8, 5, None), (2, 20, 7, None, "old")
    ]  # fmt: skip

    # Types that nothing converts, twice; a copy brings them, the second one of an empty table.
    topic.columns = [ID, Col("c", "string", "text", number=2), again]
    copy(topic, 400, {"id": 1, "c": "twelve", "a": 8})
    history.follow()
    topic.columns = [ID, Col("c", "boolean", "boolean", number=2), again]
    copy(topic, 500)
    topic.change("c", 600, 1, after={"id": 3, "c": True, "a": 9})
    history.follow()

    versions = history.versions()
    assert as_of(versions, 200 + COMMIT, ("id", "c__1")) == [(1, 11), (2, 20)]
    assert as_of(versions, 400, ("id", "c__2", "a")) == [(1, "twelve", 8)]
    assert as_of(versions, 500) == []
    assert as_of(versions, 600 + COMMIT, ("id", "c", "a")) == [(3, True, 9)]

    # One of the history's own names is refused, and changes nothing.
    topic.columns = [ID, Col("c", "string", "text", "_TO_LSN", number=6)]
    topic.change("c", 700, 1, after={"id": 4, "c": "x"})
    with pytest.raises(TableError, match=r"a column is called '_TO_LSN', as one of a history's"):
        history.follow()
    assert len(history.versions()) == len(versions)


def test_a_history_for_the_widest_readers_gets_a_variant_column_of_a_table_that_has_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = DatedTopic(StaticSchemas(), "s.public.t", [ID, A], ["id"])
    copy(topic, 100, {"id": 1, "a": 10}, {"id": 2, "a": 20})
    history = Versioned(spark, tmp_path, topic, IcebergFormat("widest"))
    begun = history.begin(len(topic.records)).commit.position.end_lsn
    topic.change("d", 150, 1, before={"id": 2})
    history.follow()
    assert format_version(history) == 2

    history.tables = IcebergFormat()
    other = VariantSchemas()
    other._schemas = topic.registry._schemas
    topic.registry = other
    topic.columns = [ID, A, Col("late", "string", "jsonb", None, 5, '{"k": 1.50}')]
    topic.change("u", 200, 1, after={"id": 1, "a": 11, "late": "[]"})
    topic.change("c", 300, 1, after={"id": 3, "a": 30, "late": None})
    history.follow()

    assert format_version(history) == 3
    rows = history.history().rows()
    assert dict(rows.dtypes)["late"] == "variant"
    found = rows.selectExpr("id", "to_json(late)", "_from_lsn", "_to_lsn", "_to_op").collect()
    default = '{"k":1.5}'
    assert sorted(map(tuple, found), key=repr) == [
        (1, "[]", 200 + COMMIT, None, None),
        (1, default, begun, 200 + COMMIT, "u"),
        (2, default, begun, 150 + COMMIT, "d"),
        (3, None, 300 + COMMIT, None, None),
    ]


def format_version(history: Versioned) -> int:
    """The version of Iceberg's format that the history has."""
    newest = max(Path(f"{history.path}__history", "metadata").glob("*.metadata.json"), key=number)
    found: int = json.loads(newest.read_text())["format-version"]
    return found


def number(metadata: Path) -> int:
    return int(metadata.name.removeprefix("v").split(".")[0])


def test_a_cut_that_fails_between_two_layouts_loses_no_truncate_and_repeats_none(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = DatedTopic(StaticSchemas(), "s.public.t", [ID, A], ["id"], partitions=2)
    copy(topic, 100, *({"id": key, "a": 0} for key in range(6)))
    history = Versioned(spark, tmp_path, topic, MemoryFormat())
    begun = history.begin(len(topic.records)).commit.position.end_lsn
    topic.change("c", 200, 1, after={"id": 7, "a": 7})
    topic.truncate(200, 2)
    topic.change("c", 200, 3, after={"id": 8, "a": 8})
    topic.truncate(300, 1)
    topic.columns = [ID, A, Col("d", "int", "integer", number=3, missing="5")]
    topic.change("c", 400, 1, after={"id": 9, "a": 9, "d": 1})
    topic.truncate(500, 1)
    topic.columns = [ID, A]
    topic.change("c", 600, 1, after={"id": 10, "a": 10})

    # The process ends after each commit: every part but the last one is followed by a restart.
    parts, append = 3, MemoryTable.append
    for number in range(parts):
        with monkeypatch.context() as patch:
            commits = 0

            def once(self: MemoryTable, *given: Any) -> Any:
                nonlocal commits
                if given[-1] is not None:  # not by `alter`
                    commits += 1
                    if commits > 1:
                        raise KeyboardInterrupt
                return append(self, *given)

            patch.setattr(MemoryTable, "append", once)
            if number < parts - 1:
                with pytest.raises(KeyboardInterrupt):
                    history.follow()
            else:
                history.follow()

    versions = history.versions()
    spans = sorted((row["id"], row["_from_lsn"], row["_to_lsn"], row["_to_op"]) for row in versions)
    assert spans == [
        *((key, begun, 200 + COMMIT, "t") for key in range(6)),
        (7, 200 + COMMIT, 200 + COMMIT, "t"),
        (8, 200 + COMMIT, 300 + COMMIT, "t"),
        (9, 400 + COMMIT, 500 + COMMIT, "t"),
        (10, 600 + COMMIT, None, None),
    ]
    assert history.follow() == history.history().find()

    # Of two copies in one cut, each ends what was there.
    copy(topic, 700, {"id": 11, "a": 11})
    copy(topic, 800, {"id": 12, "a": 12})
    history.follow()
    ends = {one["id"]: one["_to_op"] for one in history.versions() if one["id"] >= 10}
    assert ends == {10: "r", 11: "r", 12: None}


def test_versions_of_one_row_are_linked_through_its_keys(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = DatedTopic(StaticSchemas(), "s.public.t", [ID, B], ["id"], partitions=3)
    topic.change("c", 100, 1, after={"id": 1, "b": "large"})
    history = Versioned(spark, tmp_path, topic, MemoryFormat())
    history.begin(1)
    others = range(10, 16)
    assert {record.partition for record in topic.records} == {2}
    for key in others:
        topic.change("c", 150, key, after={"id": key, "b": "other"})
    topic.rekey(200, 1, before={"id": 1}, after={"id": 2, "b": None}, unchanged=["b"])
    topic.change("c", 200, 3, after={"id": 1, "b": "other"})
    topic.rekey(300, 1, before={"id": 2}, after={"id": 3, "b": None}, unchanged=["b"])
    topic.change("d", 400, 1, before={"id": 3})
    topic.rekey(500, 1, before={"id": 3}, after={"id": 4, "b": "absent"})
    history.follow()

    by_row: dict[str, list[tuple[Any, ...]]] = {}
    for one in sorted(history.versions(), key=lambda one: (one["_from_lsn"], one["_from_seq"])):
        by_row.setdefault(one["_row"], []).append(
            (one["id"], one["b"], one["_from_op"], one["_to_op"])
        )
    assert sorted(by_row.values()) == [
        [(1, "large", "s", "u"), (2, "large", "u", "u"), (3, "large", "u", "d")],
        *([(key, "other", "c", None)] for key in (1, *others)),
    ]

    # Cuts of nothing but a TRUNCATE, and of many: those of a table that is filled every minute.
    topic.truncate(600, 1)
    history.follow()
    assert {one["_to_op"] for one in history.versions()} == {"u", "d", "t"}
    monkeypatch.setattr(applier, "_MOST_TRUNCATES", TRUNCATES // 2 + 1)
    for lsn in range(700, 700 + 8 * TRUNCATES, 8):
        topic.change("c", lsn, 1, after={"id": lsn, "b": "new"})
        topic.truncate(lsn, 2)
    topic.change("c", lsn, 3, after={"id": 1, "b": "last"})
    history.follow()
    new = [one for one in history.versions() if one["b"] == "new"]
    assert len(new) == TRUNCATES
    assert all((one["_to_op"], one["_to_lsn"]) == ("t", one["id"] + COMMIT) for one in new)
    assert [one["id"] for one in history.versions() if one["_to_op"] is None] == [1]
