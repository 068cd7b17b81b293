"""Iceberg's own ways: what a commit is bound to, how columns change, what maintenance leaves."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.commands.consume import consumer_settings
from gateway.config import load_settings
from spark_consumer.errors import SettingsError, TableError, TransientConsumerError
from spark_consumer.formats.changes import KeyedChanges, WriteMode
from spark_consumer.formats.choice import format_at
from spark_consumer.formats.commit_metadata import Commit, Found
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg import check, merge
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.iceberg.table import IcebergTable
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.kafka.layout import ColumnPlan
from spark_consumer.kafka.position import Position
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ID = ColumnPlan("id", "id", "bigint", "bigint")
ODD = "wäre haus/100%20 +2&3=?{a,b}[c]*~`d`'e'"
"""A folder with what paths, URLs, patterns and SQL have other uses for."""


def commit(serial: int) -> Commit:
    return Commit(Position("j", serial, serial, None, "t", "id", {0: serial}), {}, serial)


def files(table: Direct | IcebergTable) -> set[str]:
    return {path.name for path in Path(table.path, "data").glob("*.parquet")}


def found_in(table: IcebergTable) -> Found:
    found = table.find()
    assert found is not None
    return found


def state(table: IcebergTable) -> Any:
    found = table._metadata.state()
    assert found is not None
    return found.base


def delete(table: IcebergTable, first: int, end: int, serial: int) -> int:
    """Delete the rows of a range, one by one; the number of those that are not there."""
    gone = table.spark.sql(
        "SELECT struct(id) AS k, 'delete' AS action, struct(id) AS v, array('id') AS sent,"
        f" false AS made FROM range({first}, {end})"
    )
    number = end - first
    changes = KeyedChanges(gone, [ID], [ID], "TRUE", number, 0, 0, number)
    return table.upsert(changes, commit(serial), found_in(table))


def ids(table: IcebergTable) -> list[int]:
    return sorted(row.id for row in table.rows().collect())


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> IcebergTable:
    """A table with the number 0."""
    session = spark.newSession()
    made = IcebergFormat().table(session, str(tmp_path / ODD / "t"), "table t")
    made.write(session.range(1), commit(0), None, WriteMode.REPLACE_TABLE)
    return made


def test_another_writer_is_noticed_and_a_compaction_is_none(table: IcebergTable) -> None:
    spark, found = table.spark, found_in(table)
    for number in (1, 2):
        table.write(spark.range(number, number + 1), commit(number), found, WriteMode.APPEND)
        found = found_in(table)
    theirs = table._metadata.table()
    assert theirs is not None
    jvm: Any = spark._jvm
    actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
    actions.rewriteDataFiles(theirs).option("rewrite-all", "true").execute()

    assert table.find() == Found(table.version(), found.commit)
    assert table.version() > found.version
    table.write(spark.range(3, 4), commit(3), found, WriteMode.APPEND)
    found = found_in(table)

    with table._changing(found) as workspace:
        spark.range(9, 10).write.format("iceberg").mode("append").save(table.path)
        with pytest.raises(TransientConsumerError, match="another writer"):
            workspace.publish(commit(4), "add")
    with pytest.raises(TableError, match=r"version \d+ was written by another writer \(append\)"):
        table.write(spark.range(4, 5), commit(4), found, WriteMode.APPEND)
    with pytest.raises(TableError, match="written by another writer"):
        table.find(found.version)
    assert table.find(table.version()) == Found(table.version(), found.commit)
    assert {row.id for row in table.rows().collect()} == {0, 1, 2, 3, 9}
    assert not list(Path(table.path, ".writing").glob("*"))


def test_columns_follow_without_a_file_being_written_where_iceberg_can_read_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    key = Col("id", "int", "integer", number=1)
    others = [Col("b", "int", "integer", number=2), Col("c", "string", "text", number=3)]
    topic = TableTopic(StaticSchemas(), "s.public.t", [key, *others], ["id"])
    topic.truncate(0x90, 0, snapshot="first")
    for number in (1, 2):
        topic.change("r", 0x90, 0, after={"id": number, "b": number, "c": "text"})
    table = Direct(spark, tmp_path, topic, IcebergFormat())
    table.apply()
    before = files(table)

    wide = Col("b", "long", "bigint", number=2)
    renamed = Col("d", "string", "text", number=3)
    topic.columns = [key, wide, renamed, Col("e", "string", "text", number=4)]
    topic.change("c", 0xA0, 1, after={"id": 3, "b": 2**40, "d": "new", "e": "new"})
    table.apply(small=True)

    assert before < files(table)
    assert table.rows() == [(1, 1, "text", None), (2, 2, "text", None), (3, 2**40, "new", "new")]

    topic.columns = [key, Col("f", "int", "integer", number=5, missing="7")]
    topic.change("d", 0xB0, 1, before={"id": 2})
    table.apply()

    assert table.rows() == [(1, 7), (3, 7)]


def test_rows_have_the_columns_of_the_table_and_not_of_its_last_snapshot(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = [Col("a", "int", "integer", number=1), Col("b", "int", "integer", number=2)]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, [])
    topic.truncate(0x90, 0, snapshot="first")
    for number in (1, 2):
        topic.change("r", 0x90, 0, after={"a": number, "b": number})
    table = Direct(spark, tmp_path, topic, IcebergFormat())
    table.apply()

    topic.columns = [*columns, Col("d", "string", "text", number=3)]
    topic.change("d", 0xA0, 1, before={"a": 2, "b": 2, "d": None})
    topic.change("c", 0xA0, 2, after={"a": 3, "b": 3, "d": "new"})
    table.apply()

    assert sorted(table.rows()) == [(1, 1, None), (3, 3, "new")]


def test_vectors_that_later_states_need_outlive_the_states_that_wrote_them(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, found = table.spark, found_in(table)
    monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    table.write(spark.range(5, 60).repartition(2), commit(1), found, WriteMode.APPEND)
    left = set(ids(table))
    for serial, (first, end) in enumerate(((5, 20), (20, 24), (24, 25)), 2):
        delete(table, first, end, serial)
        left -= set(range(first, end))
    unset = table._metadata.state()
    assert unset is not None
    unset.changes.updateProperties().set("history.expire.max-snapshot-age-ms", "0").commit()
    unset.replace()

    table.vacuum(0.0)

    assert set(ids(table)) == left


def test_a_table_in_another_folder_than_its_own_is_refused(table: IcebergTable) -> None:
    shutil.copytree(table.path, f"{table.path}.copy")
    there = files(table)
    copy = IcebergFormat().table(table.spark, f"{table.path}.copy", "copy")

    with pytest.raises(TableError, match="has the metadata of the Iceberg table in"):
        copy.vacuum(0.0)
    with pytest.raises(TableError, match="has the metadata of the Iceberg table in"):
        copy.find()

    assert files(table) == there


def test_small_files_are_merged_and_what_nothing_needs_is_removed(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, found = table.spark, found_in(table)
    monkeypatch.setattr(merge, "VECTOR_BYTES", -1)
    table.write(spark.range(1, 99).repartition(8), commit(1), found, WriteMode.APPEND)
    # In most files rows are marked again and again; 15 rows of the last 49 are there.
    for serial, (first, end, absent) in enumerate(((20, 50, 0), (50, 99, 0), (5, 54, 34)), 2):
        assert delete(table, first, end, serial) == absent
    assert list(Path(table.path, "data").glob("*.puffin"))
    old = found_in(table)
    theirs = Path(table.path, "data", "left.parquet")
    theirs.write_bytes(b"of a commit that was not made")
    Path(table.path, ".writing", "left").mkdir(parents=True)
    table.keep_history(1000.0)

    table.compact(old.commit, small=1 << 20)

    assert table.find() == Found(table.version(), old.commit)
    assert table.version() > old.version
    assert table.files() == 1
    assert state(table).property("history.expire.max-snapshot-age-ms", "") == str(3_600_000_000)
    table.vacuum(0.0)
    assert theirs.exists()
    rows = IcebergFormat().rows_at(spark, table.path, old.version)
    assert sorted(row.id for row in rows.collect()) == [0, 1, 2, 3, 4]

    state_before = table._metadata.state()
    assert state_before is not None
    properties = state_before.changes.updateProperties()
    properties.remove("history.expire.max-snapshot-age-ms").commit()
    state_before.replace()
    table.vacuum(0.0)

    assert len(files(table)) == 1
    assert not list(Path(table.path, "data").glob("*.puffin"))
    assert not Path(table.path, ".writing").exists()
    with pytest.raises(TableError, match=f"no version {old.version} any more"):
        IcebergFormat().rows_at(spark, table.path, old.version)
    with pytest.raises(TableError, match="no longer say at which position"):
        table.position_at(old.version)
    assert table.find() == Found(table.version(), old.commit)
    assert sorted(row.id for row in table.rows().collect()) == [0, 1, 2, 3, 4]


def test_files_with_marked_rows_are_rewritten_marked_on_and_replaced(
    table: IcebergTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = table.spark
    rows = spark.range(1, 40).coalesce(1)
    table.write(rows, commit(1), found_in(table), WriteMode.APPEND)
    for serial, (first, size) in enumerate(((10, -1), (20, -1), (30, 1 << 30), (5, -1)), 2):
        monkeypatch.setattr(merge, "VECTOR_BYTES", size)
        assert delete(table, first, first + 5, serial) == 0
    left = {*range(5), *range(15, 20), *range(25, 30), *range(35, 40)}

    assert ids(table) == sorted(left)

    table.write(spark.range(2).coalesce(1), commit(6), found_in(table), WriteMode.REPLACE_ROWS)

    assert ids(table) == [0, 1]
    assert (table.files(), table.find()) == (1, Found(table.version(), commit(6)))


def test_what_iceberg_cannot_have_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = TableTopic(StaticSchemas(), "s.public.t", [Col("_pos", "int", "integer")], ["_pos"])
    topic.change("c", 0x90, 1, after={"_pos": 1})
    table = Direct(spark, tmp_path, topic, IcebergFormat())
    with pytest.raises(TableError, match="Iceberg reserves columns called _pos"):
        table.apply()
    assert table.found() is None

    assert IcebergFormat.checked(spark, str(tmp_path)) == IcebergFormat()
    with monkeypatch.context() as patch:
        patch.setattr(check, "RENAMING", frozenset({"hdfs"}))
        with pytest.raises(SettingsError, match="cannot be in a warehouse at file"):
            IcebergFormat.checked(spark, str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(check, "_LEAST", (1, 999))
        with pytest.raises(SettingsError, match=r"this is Iceberg 1\.12\.0, not 1\.999 or later"):
            IcebergFormat.checked(spark, str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(check, "_CATALOG", "org.apache.iceberg.Nothing")
        with pytest.raises(SettingsError, match="Iceberg's jar is missing"):
            IcebergFormat.checked(spark, str(tmp_path))
    with pytest.raises(SettingsError, match="cannot be in a warehouse with # in its path"):
        IcebergFormat.checked(spark, str(tmp_path / "house #1"))


def test_a_table_is_not_taken_for_one_of_another_format(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    formats: dict[str, TableFormat] = {"iceberg": IcebergFormat(), "delta": DeltaFormat()}
    for name, one in formats.items():
        tables = SubscriberTables(session, one, str(tmp_path), name)
        tables.table(session, "public.t").write(
            session.range(1), commit(0), None, WriteMode.REPLACE_TABLE
        )
        assert tables.find("public.t") is not None
    for name, one in formats.items():
        for other in set(formats) - {name}:
            tables = SubscriberTables(session, one, str(tmp_path), other)
            with pytest.raises(TableError, match=f"a table of the format {formats[other].name}, "):
                tables.find("public.t")


def test_a_table_is_there_while_a_commit_has_the_hint_removed(table: IcebergTable) -> None:
    # The hint is replaced in two steps: removed, and put there by a rename.
    Path(table.path, "metadata", "version-hint.text").unlink()

    found = format_at(table.spark, table.path)

    assert found is not None and found.name == "Iceberg"
    assert ids(table) == [0]
    assert format_at(table.spark, f"{table.path}/data") is None


def test_a_version_that_came_again_after_a_restore_is_another_one(table: IcebergTable) -> None:
    spark, copied = table.spark, f"{table.path}.copy"
    shutil.copytree(table.path, copied)
    found = []
    for serial in (1, 2):
        table.write(spark.range(1), commit(serial), found_in(table), WriteMode.APPEND)
        found.append(found_in(table))
        if serial == 1:
            shutil.rmtree(table.path)
            shutil.move(copied, table.path)
    assert found[0].version == found[1].version

    with pytest.raises(TransientConsumerError, match="another writer"):
        table.write(spark.range(1), commit(3), found[0], WriteMode.APPEND)
    table.write(spark.range(1), commit(3), found[1], WriteMode.APPEND)

    assert ids(table) == [0, 0, 0]


def test_the_jar_is_fetched_if_a_subscription_asks_for_it(tmp_path: Path) -> None:
    file = tmp_path / "pgsluice.toml"
    file.write_text(
        '[source]\ndsn = "dbname=d"\n[definitions]\nfile = "d.sql"\n'
        '[kafka]\n"bootstrap.servers" = "b:9092"\n[registry]\nurl = "http://r"\n'
        '[consumer.formats]\nt = "iceberg"\n'
    )
    settings = load_settings(file, {})

    def fetched(*subscriptions: str) -> bool:
        jars = consumer_settings(settings, subscriptions, None).jars
        return any("iceberg-spark-runtime" in jar for jar in jars)

    assert (fetched("s"), fetched("s", "t")) == (False, True)
