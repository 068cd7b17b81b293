"""What large batches do to a table that has rows, like the batch before or unlike it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_consumer.apply.driver import writer as small_writer
from spark_consumer.errors import ContractError, TableError, TransientConsumerError
from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.formats.delta import merge
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.internals import Candidates, DeletedRows
from spark_consumer.formats.delta.log_files import LOG, rows_at
from spark_consumer.formats.iceberg import merge as iceberg_merge
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.kafka.position import Position
from spark_consumer.spark.local_folder import LocalFolder
from tests.support.run.seeds import in_turn
from tests.support.spark.direct import Direct
from tests.support.spark.memory_format import MemoryFormat
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COLUMNS = [Col("id", "int", "integer"), Col("b", "string", "text")]
ODD = "wäre haus/100%20 #1+2&3=?{a,b}[c]*~`d`'e'"
"""A folder with what paths, URLs, patterns and SQL have other uses for."""


def copied(
    spark: SparkSession,
    folder: Path,
    *keys: int,
    tables: TableFormat | None = None,
) -> tuple[TableTopic, Direct]:
    """A table with rows of these keys, all of them copied, and its topic."""
    topic = TableTopic(StaticSchemas(), "s.public.t", COLUMNS, ["id"])
    table = Direct(spark, folder, topic, tables)
    topic.truncate(0x90, 0, snapshot="first")
    for key in keys:
        topic.change("r", 0x90, 0, after={"id": key, "b": "copied"})
    table.apply(held=False, small=False)
    return topic, table


def written(spark: SparkSession, path: str) -> set[str]:
    """The data files that have rows, whether the table knows of them or not."""
    rows = spark.read.parquet(f"{path}/*.parquet")
    return {row[0] for row in rows.select("_metadata.file_name").distinct().collect()}


WAYS = [
    *in_turn(__name__, ["rewritten", "marked"]),
    *in_turn(__name__, ["merged", "Iceberg", "in memory"]),
]
"""Ways in which rows change: one of those that Delta's own files allow, and one of the others."""


@pytest.fixture(params=WAYS)
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TableFormat:
    """Tables whose rows change by one of `WAYS`, however small they are."""
    if request.param != "rewritten":
        monkeypatch.setattr(small_writer, "LARGEST_BYTES", -1)
    if request.param == "marked":
        monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    if request.param == "Iceberg":
        monkeypatch.setattr(iceberg_merge, "VECTOR_BYTES", -1)
        return IcebergFormat()
    if request.param == "in memory":
        return MemoryFormat()
    return DeltaFormat(private=request.param != "merged")


def strangers(topic: TableTopic, lsn: int, there: int, deleted: int, replaced: int) -> None:
    """Changes of these rows, and an update and a delete of rows that are not there."""
    topic.change("u", lsn, 1, after={"id": there, "b": "there"})
    topic.change("u", lsn, 3, after={"id": 31, "b": "not there"})
    topic.change("d", lsn, 5, before={"id": deleted})
    topic.change("d", lsn, 7, before={"id": 32})
    topic.change("c", lsn, 9, after={"id": 33, "b": "comes and goes"})
    topic.change("d", lsn, 11, before={"id": 33})
    topic.change("c", lsn, 13, after={"id": replaced, "b": "replaced"})


def test_batches_like_the_one_before_and_unlike_it_change_rows_and_count_those_not_there(
    spark: SparkSession, tmp_path: Path, tables: TableFormat
) -> None:
    topic, table = copied(spark, tmp_path, *range(1, 6), tables=tables)

    # Keys that have bounds.
    topic.change("u", 0x98, 1, after={"id": 1, "b": None}, unchanged=["b"])
    topic.change("u", 0x98, 3, after={"id": 2, "b": "set"})
    topic.change("d", 0x98, 5, before={"id": 3})
    topic.change("c", 0x98, 7, after={"id": 7, "b": "new"})
    table.apply(held=False, small=False)
    assert table.rows() == [(1, "copied"), (2, "set"), (4, "copied"), (5, "copied"), (7, "new")]
    assert table.skipped == 0

    # Like that one.
    strangers(topic, 0xA0, there=1, deleted=2, replaced=4)
    table.apply(held=False, small=False)
    assert table.rows() == [(1, "there"), (4, "replaced"), (5, "copied"), (7, "new")]
    assert table.skipped == 2

    # Of another kind.
    topic.columns = [*COLUMNS, Col("late", "string", "text", number=9)]
    strangers(topic, 0xB0, there=4, deleted=1, replaced=5)
    topic.change("u", 0xB0, 15, after={"id": 7, "b": "changed", "late": "set"})
    table.apply(held=False, small=False)
    assert table.rows() == [(4, "there", None), (5, "replaced", None), (7, "changed", "set")]
    assert table.skipped == 4

    # With a truncate in the middle.
    topic.change("u", 0xC0, 1, after={"id": 7, "b": "x", "late": "y"})
    topic.change("c", 0xC0, 2, after={"id": 8, "b": "before", "late": None})
    topic.truncate(0xC0, 3)
    for key in (1, 2, 3):
        topic.change("c", 0xC0, 3 + key, after={"id": key, "b": "behind", "late": None})
    table.apply(held=False, small=False)
    assert table.rows() == [(key, "behind", None) for key in (1, 2, 3)]
    assert table.skipped == 4

    # By the driver, where it may.
    strangers(topic, 0xD0, there=1, deleted=2, replaced=3)
    table.apply()
    assert table.rows() == [(1, "there", None), (3, "replaced", None)]
    assert table.skipped == 6


def test_a_small_share_becomes_one_file_however_many_partitions_it_comes_from(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, *range(1, 6))
    before = set(spark.read.format("delta").load(table.path).inputFiles())
    for key in range(10, 40):
        topic.change("c", 0x98, key, after={"id": key, "b": "new"})

    table.apply(held=False)

    after = set(spark.read.format("delta").load(table.path).inputFiles())
    assert (len(after - before), before - after) == (1, set())


def test_a_large_batch_like_the_one_before_that_lacks_a_record_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, 1)
    topic.change("c", 0xA0, 1, after={"id": 2, "b": "new"})
    topic.change("c", 0xA0, 3, after={"id": 3, "b": "new"})

    with pytest.raises(ContractError, match="offsets 2 to 3: 1 records, and the markers say 2"):
        table.apply(held=False, small=False, lost=1)

    assert table.rows() == [(1, "copied")]


def test_an_append_is_made_on_top_of_the_version_that_was_read_or_not_at_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "t")
    rows = spark.range(3)
    rows.write.format("delta").save(path)
    log = DeltaFormat().table(spark, path, "t").private
    assert log is not None
    before = log.snapshot()
    rows.write.format("delta").mode("append").save(path)

    drafts = [log.draft(before, rows), log.draft(before, rows, WriteMode.REPLACE_TABLE)]
    for draft in drafts:
        with pytest.raises(TransientConsumerError, match="made by another writer meanwhile"):
            draft.commit(Commit(Position("j", 1, 1, None, "t", "id", {}), {}))
        draft.discard()

    assert spark.read.format("delta").load(path).count() == 6
    there = spark.read.format("delta").load(path).inputFiles()
    assert written(spark, path) == {Path(name).name for name in there}


def test_inserts_of_keys_before_and_beyond_the_greatest_replace_what_is_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, 5)
    for lsn, keys in ((0xA0, [6, 7]), (0xA8, [8]), (0xB0, [8, 9]), (0xB8, [1, 7]), (0xC0, [10])):
        for seq, key in enumerate(keys):
            topic.change("c", lsn, seq + 1, after={"id": key, "b": f"{lsn:X}"})
        table.apply(held=False, small=False)

    assert table.rows() == [
        (1, "B8"),
        (10, "C0"),
        (5, "copied"),
        (6, "A0"),
        (7, "B8"),
        (8, "B0"),
        (9, "B0"),
    ]


def test_new_rows_are_written_as_they_are_read_and_nothing_is_left_of_a_wrong_guess(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, 1, 2)

    topic.change("c", 0xA0, 1, after={"id": 3, "b": "new"})
    table.apply(held=False, small=False)
    topic.change("c", 0xA8, 1, after={"id": 4, "b": "new"})
    topic.change("c", 0xA8, 2, after={"id": 4, "b": "again"})
    table.apply(held=False, small=False)
    topic.change("c", 0xB0, 1, after={"id": 2, "b": "replaced"})
    table.apply(held=False, small=False)
    topic.change("c", 0xB8, 1, after={"id": 5, "b": "new"})
    table.apply(held=False, small=False)
    topic.change("c", 0xC0, 1, after={"id": 6, "b": "new"})
    topic.change("d", 0xC0, 2, before={"id": 5})
    table.apply(held=False, small=False)

    assert table.rows() == [(1, "copied"), (2, "replaced"), (3, "new"), (4, "again"), (6, "new")]
    log = "".join(path.read_text() for path in Path(table.path).glob("_delta_log/*.json"))
    assert all(name in log for name in written(spark, table.path))


def test_a_copy_begins_a_table_again_with_columns_of_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, table = copied(spark, tmp_path, 1, 2)
    topic.columns = [COLUMNS[0], Col("c_d", "long", "bigint", "c d")]
    topic.truncate(0xA0, 0, snapshot="first")
    for key in (7, 8):
        topic.change("r", 0xA0, 0, after={"id": key, "c_d": key * 10})

    found = table.apply(held=False, small=False)

    assert found is not None
    assert found.commit.position.generation > 0
    assert table.rows() == [(7, 70), (8, 80)]
    topic.change("c", 0xA8, 1, after={"id": 9, "c_d": 90})
    table.apply(held=False, small=False)
    topic.change("c", 0xB0, 1, after={"id": 8, "c_d": 0})
    table.apply(held=False, small=False)
    assert table.rows() == [(7, 70), (8, 0), (9, 90)]


def test_a_copy_of_several_partitions_begins_in_each_or_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", COLUMNS, ["id"], partitions=3)
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    for key in range(20):
        topic.change("r", 0x90, 0, after={"id": key, "b": "copied"})

    with pytest.raises(ContractError):
        table.apply(held=False, small=False, lost=1)
    assert table.apply(held=False, small=False) is not None

    assert len(table.rows()) == 20


def test_rows_are_marked_as_deleted_again_and_again_whatever_the_folder_is_called(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    columns = [*COLUMNS, Col("file", "string", "text", "~k", number=7)]
    topic, table = copied(spark, tmp_path / ODD, *range(1, 9))
    topic.columns = columns
    for lsn in (0xA0, 0xB0):
        for key in (2, 3):
            topic.change("u", lsn, key * 2, after={"id": key, "b": f"{lsn:X}", "file": "f"})
        topic.change("u", lsn, 8, after={"id": 4, "b": None, "file": f"{lsn:X}"}, unchanged=["b"])
        topic.change("d", lsn, 9, before={"id": (lsn >> 4) - 5})
        topic.rekey(lsn, 11, before={"id": 8}, after={"id": 80, "b": "moved", "file": None})
        topic.rekey(lsn, 13, before={"id": 80}, after={"id": 8, "b": "back", "file": None})
        table.apply(held=False, small=False)

    assert table.rows() == [
        (1, "copied", None),
        (2, "B0", "f"),
        (3, "B0", "f"),
        (4, "copied", "B0"),
        (7, "copied", None),
        (8, "back", None),
    ]
    log = "".join(path.read_text() for path in sorted(Path(table.path).glob("_delta_log/*.json")))
    assert '"deletionVector"' in log
    assert table.skipped == 0
    # The files of the log say as many rows of each version as Spark finds, and without checksums.
    newest = DeltaFormat().table(spark, table.path, "t").version()
    versions = [Version(number) for number in range(newest + 1)]
    counts = [DeltaFormat().rows_at(spark, table.path, version).count() for version in versions]
    folder = LocalFolder(f"{table.path}/{LOG}")
    assert [rows_at(folder, version) for version in versions] == counts
    for checksum in Path(table.path).glob("_delta_log/*.crc"):
        checksum.unlink()
    assert [rows_at(folder, version) for version in versions] == counts


def test_rows_are_marked_in_the_version_that_was_looked_at_or_not_at_all(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic, direct = copied(spark, tmp_path, 1, 2)
    topic.change("c", 0xA0, 1, after={"id": 7, "b": "in another file"})
    direct.apply(held=False, small=False)
    table = DeltaFormat().table(spark, direct.path, "t")
    table.require({"delta.enableDeletionVectors": "true"})
    log = table.private
    assert log is not None
    candidates = Candidates(log.log(), table.rows().alias("t").where("t.id BETWEEN 2 AND 3"))
    found = table.find()
    none = table.rows().where("false")
    rows = candidates.rows.select("id", "_metadata.file_path", "_metadata.row_index")
    places = rows.where("id = 2").toDF("id", "file", "place")
    files = [row.file for row in places.collect()]
    deleted = DeletedRows(places, files, candidates.version, few=True)
    assert found is not None
    assert 7 not in {row.id for row in rows.collect()}

    spark.sql(f"ALTER TABLE delta.`{direct.path}` SET TBLPROPERTIES ('of' = 'others')")
    with pytest.raises(TransientConsumerError, match="made by another writer meanwhile"):
        table.mark(none, deleted, found.commit, found)

    again = replace(deleted, version=table.version())
    table.mark(none, again, found.commit, table.find())
    assert direct.rows() == [(1, "copied"), (7, "in another file")]


def test_a_file_is_gone_when_all_its_rows_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    topic, table = copied(spark, tmp_path, *range(1, 9))
    for lsn in (0xA0, 0xB0):
        for key in range(1, 9):
            topic.change("u", lsn, key, after={"id": key, "b": f"{lsn:X}"})
        table.apply(held=False, small=False)
        there = spark.read.format("delta").load(table.path)
        paths = [row[0] for row in there.select("_metadata.file_path").distinct().collect()]
        assert sorted(paths) == sorted(there.inputFiles())

    assert table.rows() == [(key, "B0") for key in range(1, 9)]


def test_a_large_batch_of_keys_that_no_file_has_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    topic, table = copied(spark, tmp_path, 1, 2)
    for key in (11, 12):
        topic.change("u", 0xA0, key, after={"id": key, "b": "not there"})
        topic.change("d", 0xA0, key + 10, before={"id": key + 10})

    table.apply(held=False, small=False)

    assert table.rows() == [(1, "copied"), (2, "copied")]
    assert table.skipped == 4


def test_what_a_commit_holds_beyond_the_end_of_a_smaller_cut_is_not_applied_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", COLUMNS, [])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1, "b": "copied"})
    table.apply()
    for number in range(2, 6):
        topic.change("c", 0xA0 + number, 1, after={"id": number, "b": "new"})
    topic.columns = [COLUMNS[0], Col("b", "int", "integer")]
    topic.change("c", 0xB0, 1, after={"id": 6, "b": 6})

    with pytest.raises(TableError):  # the rows before it are in the table
        table.apply()
    table.apply(3, first=2)
    table.apply(6, first=3)

    assert table.rows() == [(1, "copied"), *((number, "new") for number in range(2, 6))]
