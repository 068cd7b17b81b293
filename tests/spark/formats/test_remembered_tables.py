"""Remembered and later read facts of a Delta table: all are of one state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql.types import StructType

from spark_consumer.apply.driver.writer import SMALL_TABLE_BYTES
from spark_consumer.errors import TableError, TransientConsumerError
from spark_consumer.formats.changes import KeyedChanges, WriteMode
from spark_consumer.formats.commit_metadata import Commit, Found
from spark_consumer.formats.data_files import DataFile
from spark_consumer.formats.delta import files as delta_files
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.internals import PrivateLog
from spark_consumer.formats.delta.table import DeltaTable
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = [Col("id", "int", "integer"), Col("b", "int", "integer")]


def copied(
    spark: SparkSession, folder: Path, tables: DeltaFormat | None = None
) -> tuple[TableTopic, Direct]:
    """A table with two rows that the driver has copied."""
    topic = TableTopic(StaticSchemas(), "s.public.t", COLUMNS, ["id"])
    table = Direct(spark, folder, topic, tables)
    topic.truncate(0x90, 0, snapshot="first")
    for key in (1, 2):
        topic.change("r", 0x90, 0, after={"id": key, "b": key})
    table.apply()
    assert table.held == 1
    return topic, table


class Overtaken(DeltaTable):
    """A table into which somebody inserts a row right after a commit of the job."""

    def write(self, *args: Any, **kwargs: Any) -> None:
        super().write(*args, **kwargs)
        self._insert()

    def upsert(self, changes: KeyedChanges, commit: Commit, found: Found | None) -> int:
        skipped = super().upsert(changes, commit, found)
        self._insert()
        return skipped

    def _insert(self) -> None:
        other = self.spark.newSession()
        other.sql(f"INSERT INTO delta.`{self.path}` VALUES (9, 9)")


class Failing(DeltaTable):
    """A table whose files cannot be listed, as while a storage does not answer."""

    def data_files(self, *args: Any) -> None:
        jvm: Any = self.spark._jvm
        jvm.java.util.Objects.requireNonNull(None)


@dataclass(frozen=True, slots=True)
class Opened(DeltaFormat):
    """Delta Lake with tables of another class."""

    kind: type[DeltaTable] = DeltaTable

    def table(self, spark: SparkSession, path: str, label: str) -> DeltaTable:
        DeltaFormat.prepare(self, spark)
        return self.kind(spark, path, label, self.files, self.checkpoints)


@pytest.mark.parametrize("change", ["an update", "a truncate", "a truncate and rows"])
def test_a_commit_of_others_right_after_one_of_the_job_is_not_taken_for_it(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    topic, table = copied(spark, tmp_path)
    table.tables = Opened(kind=Overtaken)
    if change == "an update":
        topic.change("u", 0xA0, 0, after={"id": 1, "b": 10})
    else:
        topic.truncate(0xA0, 0)
    if change == "a truncate and rows":
        topic.change("c", 0xA0, 1, after={"id": 3, "b": 3})

    with pytest.raises(TableError, match="written by another writer"):
        table.apply(held=False)


def test_columns_that_somebody_has_altered_are_seen_before_rows_are_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, tables := DeltaFormat())
    left = table.found()
    spark.sql(f"ALTER TABLE delta.`{table.path}` ALTER COLUMN b FIRST")
    opened = tables.table(spark.newSession(), table.path, "t")
    remembered = opened.fields()
    assert [field.name for field in remembered] == ["id", "b"]
    rows = opened.spark.createDataFrame([(3, 30)], StructType(remembered))

    with pytest.raises(TransientConsumerError, match="another writer"):
        opened.stage(rows, left, WriteMode.APPEND)

    assert [field.name for field in opened.fields()] == ["b", "id"]
    topic.change("c", 0xA0, 0, after={"id": 3, "b": 30})
    table.apply(held=False, small=False)
    assert table.rows() == [(1, 1), (2, 2), (30, 3)]


def test_no_more_files_are_listed_than_are_kept_in_mind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, table = copied(spark, tmp_path)
    for key in range(3, 8):
        topic.change("c", 0xA0 + key, 0, after={"id": key, "b": key})
        table.apply()
    listed: list[str] = []

    def file(path: str, *args: Any) -> DataFile:
        listed.append(path)
        return DataFile(path, *args)

    monkeypatch.setattr(delta_files, "DataFile", file)
    monkeypatch.setattr(delta_files, "_MOST_FILES", 3)
    opened = DeltaFormat().table(spark.newSession(), table.path, "t")

    assert opened.data_files(opened.find(), SMALL_TABLE_BYTES) is None
    assert len(listed) == 4


def test_a_table_whose_files_cannot_be_listed_is_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path)
    table.tables = Opened(kind=Failing)
    with pytest.raises(Py4JJavaError):
        Failing.data_files(table.tables.table(spark, table.path, "t"))  # type: ignore[arg-type]
    topic.change("u", 0xA0, 0, after={"id": 1, "b": 10})

    table.apply()

    assert table.held == 1
    assert table.rows() == [(1, 10), (2, 2)]


def test_the_state_from_which_files_are_listed_is_let_go(
    spark: SparkSession, tmp_path: Path
) -> None:
    _, table = copied(spark, tmp_path)
    opened = DeltaFormat().table(spark.newSession(), table.path, "t")
    log = PrivateLog(spark, table.path, "t").log()
    found = opened.find()
    taken = []
    for _ in range(3):
        assert found is not None
        known = opened.data_files(found, SMALL_TABLE_BYTES)
        assert known is not None
        taken.append(log.unsafeVolatileSnapshot().stateReconstructionTriggered())
        commit = replace(found.commit, serial=found.commit.serial + 1)
        found = Found(opened.replace_files(known, (), (), commit), commit)

    assert taken == [True, False, False]
    assert not log.unsafeVolatileSnapshot().stateReconstructionTriggered()
