"""The change data feed of tables that the driver writes, read by a stream, against the versions."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from spark_consumer.apply.driver import writer as driver_writer
from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.formats.data_files import DataFile, DataFiles
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.table import DeltaTable
from tests.support.run.seeds import in_turn
from tests.support.spark.apply_worker import KeyedTable, Multiset
from tests.support.spark.direct import Direct, let_mark
from tests.support.spark.histories import (
    BAG_COLUMNS,
    BIG,
    KEYED_COLUMNS,
    bag_history,
    keyed_history,
)
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

CUTS = 4
GOES, COMES = ("delete", "update_preimage"), ("insert", "update_postimage")
Change = tuple[str, tuple[Any, ...]]


def let_feed(table: Direct, *, on: bool = True) -> None:
    """Enable or disable the change data feed, as somebody who owns the table could."""
    set_property(table, "delta.enableChangeDataFeed", str(on).lower())


def set_property(table: Direct, name: str, value: str) -> None:
    table.spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('{name}' = '{value}')")


def streamed(table: Direct, since: int, checkpoint: Path) -> dict[int, list[Change]]:
    """The changes that a downstream stream gets, of the versions from one on, by version."""
    found: dict[int, list[Change]] = defaultdict(list)

    def take(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            *values, kind, version, _time = row
            found[version].append((kind, tuple(values)))

    changes = (
        table.spark.readStream.format("delta")
        .option("readChangeFeed", "true")
        .option("startingVersion", since)
        .load(table.path)
    )
    (
        changes.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    return found


def rows_at(table: Direct, version: int) -> Counter[tuple[Any, ...]]:
    """The rows of a version, each with its number."""
    then = table.spark.read.format("delta").option("versionAsOf", version).load(table.path)
    return Counter(tuple(row) for row in then.collect())


def assert_net(table: Direct, changes: dict[int, list[Change]], first: int, last: int) -> None:
    """Each version is the one before it and its changes, none of which undoes another.

    TRUNCATE is the exception: all rows go, and those that follow come, even if they are the same.
    """
    rows = rows_at(table, first)
    assert set(changes) <= set(range(first + 1, last + 1))
    for version in range(first + 1, last + 1):
        listed = changes.get(version, [])
        gone = Counter(row for kind, row in listed if kind in GOES)
        come = Counter(row for kind, row in listed if kind in COMES)
        kinds = Counter(kind for kind, _ in listed)
        assert kinds["update_preimage"] == kinds["update_postimage"]
        assert not gone & come or gone == rows
        assert not gone - rows
        rows = rows - gone + come
        assert rows == rows_at(table, version), version


@pytest.mark.parametrize(
    ("way", "tail"),
    [*in_turn(__name__, [("in a base", 0), ("in a tail", 4_000)]), ("bag", None)],
)
def test_a_stream_gets_each_net_change_of_a_cut_once(
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    tail: int | None,
) -> None:
    chance = random.Random(seed)
    model: KeyedTable | Multiset
    if tail is None:
        topic = TableTopic(StaticSchemas(), "s.public.t", BAG_COLUMNS, [])
        model = Multiset()
        bag_history(chance, topic, model, changes=200, values=25)
        changing = len(topic.records)
        topic.change("d", 1 << 20, 1, before={"x": -1.0, "y": None})
    else:
        monkeypatch.setattr(driver_writer, "TAIL_BYTES", tail)
        topic = TableTopic(StaticSchemas(), "s.public.t", KEYED_COLUMNS, ["id"], partitions=3)
        model = KeyedTable("id")
        keyed_history(chance, topic, model, changes=300, keys=60)
        row = {"id": "900", "a": 1, BIG: None}
        topic.change("c", 1 << 20, 1, after=row)
        model.insert(row)
        changing = len(topic.records)
        topic.rekey(1 << 20, 3, before={"id": "901"}, after=row)
    table = Direct(spark, tmp_path, topic)
    records = len(topic.records)
    # The last cut changes nothing: a row that is not there goes, or gets the key of another one.
    cuts = [*sorted(chance.sample(range(20, changing), CUTS - 2)), changing, records]
    table.apply(cuts[0], held=False)
    if tail is not None:
        let_mark(table)
    let_feed(table)
    begun = table.found()
    assert begun is not None
    first = 0
    # The last round has nothing new; each other one may begin with what the table has already.
    for cut in [*cuts[1:], records]:
        found = table.apply(cut, first=first)
        first = chance.choice([cut, chance.randrange(cut)])

    assert found is not None
    assert table.held == CUTS - 1
    assert table.rows() == model.contents()
    changes = streamed(table, begun.version + 1, tmp_path / "checkpoint")
    assert_net(table, changes, begun.version, found.version)
    # The LSN and the commit time of each cut are in the history of the table.
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table.path}`").collect()
    ends = {row.version: json.loads(row.userMetadata) for row in history if row.userMetadata}
    for version in changes:
        assert {"end_lsn", "commit_time"} <= ends[version].keys()
    assert ends[found.version]["end_lsn"] == found.commit.position.end_lsn == records


class Killed(BaseException):
    """The end of a process."""


class Mortal(DeltaTable):
    """A table whose process ends when files are written and nothing is committed."""

    def replace_files(
        self,
        files: DataFiles,
        removed: Collection[DataFile],
        added: Collection[DataFile],
        commit: Commit,
        changes: Collection[DataFile] | None = None,
    ) -> Version:
        assert changes
        raise Killed


class MortalFormat(DeltaFormat):
    """Delta with tables that are `Mortal`."""

    def table(self, spark: SparkSession, path: str, label: str) -> DeltaTable:
        self.prepare(spark)
        return Mortal(spark, path, label, self.files, self.checkpoints, private=True)


def test_changes_are_in_the_feed_once_whatever_ended_in_between(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = [Col("id", "int", "integer"), Col("b", "string", "text")]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    for key in (1, 2, 3):
        topic.change("r", 0x90, 0, after={"id": key, "b": "copied"})
    table.apply()
    let_feed(table)
    begun = table.found()
    assert begun is not None
    # 1 is changed and back again, 2 changes twice, 3 comes and goes; a key goes to another.
    topic.change("u", 0xA0, 1, after={"id": 1, "b": "other"})
    topic.change("u", 0xA0, 3, after={"id": 1, "b": "copied"})
    topic.change("u", 0xA0, 5, after={"id": 2, "b": "once"})
    topic.change("u", 0xA0, 7, after={"id": 2, "b": "twice"})
    topic.change("c", 0xA0, 9, after={"id": 4, "b": "new"})
    topic.change("d", 0xA0, 11, before={"id": 4})
    topic.rekey(0xA0, 13, before={"id": 3}, after={"id": 5, "b": None}, unchanged=["b"])
    with pytest.raises(Killed):
        Direct(spark, tmp_path, topic, MortalFormat()).apply()
    left = set(Path(table.path, "_change_data").iterdir())
    assert left
    table.apply()
    # Another one that was as far has done the same.
    assert Direct(spark, tmp_path, topic).apply() == table.found()
    # Nothing changes: files take the place of others, and the feed is silent.
    topic.change("u", 0xB0, 1, after={"id": 1, "b": "other"})
    topic.change("u", 0xB0, 3, after={"id": 1, "b": "copied"})
    table.apply()
    topic.truncate(0xC0, 1)
    topic.change("c", 0xC0, 3, after={"id": 9, "b": "last"})
    table.apply()

    assert table.held == 4
    one, two, three = range(begun.version + 1, begun.version + 4)
    changes = streamed(table, one, tmp_path / "checkpoint")
    assert {version: sorted(listed) for version, listed in changes.items()} == {
        one: [
            ("delete", (3, "copied")),
            ("insert", (5, "copied")),
            ("update_postimage", (2, "twice")),
            ("update_preimage", (2, "copied")),
        ],
        three: [
            ("delete", (1, "copied")),
            ("delete", (2, "twice")),
            ("delete", (5, "copied")),
            ("insert", (9, "last")),
        ],
    }
    assert_net(table, changes, begun.version, three)
    assert two not in changes


def test_a_feed_that_is_switched_follows_renames_and_has_its_own_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = [Col("id", "int", "integer", None, 1), Col("b", "string", "text", None, 2)]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    topic.change("r", 0x90, 0, after={"id": 1, "b": "copied"})
    table.apply()
    let_feed(table)
    set_property(table, "delta.columnMapping.mode", "name")
    topic.columns = [columns[0], Col("c", "string", "text", None, 2)]
    topic.change("u", 0xA0, 1, after={"id": 1, "c": "renamed"})
    renamed = table.apply()
    let_feed(table, on=False)
    topic.change("u", 0xB0, 1, after={"id": 1, "c": "untold"})
    table.apply()
    let_feed(table)
    topic.change("u", 0xC0, 1, after={"id": 1, "c": "told"})
    told = table.apply()

    assert renamed is not None and told is not None
    # After a rename the first cut may be Spark's.
    assert table.held >= 3
    assert list(Path(table.path, "_change_data").glob("cdc-*.parquet"))
    for found, before, after in [(renamed, "copied", "renamed"), (told, "untold", "told")]:
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        feed = feed.option("startingVersion", found.version).option("endingVersion", found.version)
        changes = {tuple(row)[2]: tuple(row)[:2] for row in feed.load(table.path).collect()}
        assert changes == {"update_preimage": (1, before), "update_postimage": (1, after)}
    # A copy with a column of the feed's own name: Delta says so, and nothing is written.
    topic.columns = [columns[0], Col("x", "string", "text", "_change_type", 3)]
    topic.truncate(0xD0, 0, snapshot="first")
    topic.change("r", 0xD0, 0, after={"id": 2, "x": "y"})
    with pytest.raises(Py4JJavaError, match="RESERVED_CDC_COLUMNS_ON_WRITE"):
        table.apply()
    assert table.rows() == [(1, "told")]
