"""States of the past can be read for as long as `keep_hours` says, with files of real ages."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.internals import PrivateLog
from spark_consumer.job import maintenance
from spark_consumer.job.maintenance import Maintenance
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.kafka.position import Position
from spark_consumer.reader import read
from spark_consumer.settings import ConsumerSettings
from spark_consumer.states.manifests import Manifest, Manifests, TableState
from spark_consumer.states.views import Views
from spark_consumer.verify.rebuilt import RebuiltTables
from tests.support.spark.direct import Direct
from tests.support.spark.records import Col, StaticSchemas, TableTopic
from tests.support.spark.view_readers import SparkReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY = 24.0


class History:
    """A table whose versions are as old as is said, and a state for each."""

    def __init__(self, spark: SparkSession, folder: Path, keep_hours: float) -> None:
        self.spark = spark
        self.folder = folder
        self.path = folder / "s" / "public" / "t"
        self.settings = ConsumerSettings(
            kafka={},
            registry_url="",
            warehouse=str(folder),
            subscriptions=("s",),
            keep_hours=keep_hours,
        )
        self.session = spark.newSession()
        self.manifests = Manifests(spark, str(folder), "s")
        self.state = Manifest("markers")

    def tables(self) -> SubscriberTables:
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        return SubscriberTables(self.session, DeltaFormat(), str(self.folder), "s")

    def write(self, marker: int, hours_ago: float) -> None:
        """Let the table hold the one row `marker`; the version that did it is so old."""
        tables = self.tables()
        table = tables.table(self.session, "public.t")
        position = Position("markers", marker, marker, None, "topic", "id", {0: marker})
        there = set(self.path.glob("*.parquet"))
        rows = self.spark.range(marker, marker + 1).coalesce(1)
        mode = WriteMode.REPLACE_TABLE if marker == 1 else WriteMode.REPLACE_ROWS
        table.write(rows, Commit(position, {}), table.find(), mode)
        self.date(table.version(), hours_ago, set(self.path.glob("*.parquet")) - there)
        self.store(marker, table.version())

    def date(self, version: int, hours_ago: float, files: set[Path]) -> None:
        moment = time.time() - hours_ago * 3600
        commit = self.path / "_delta_log" / f"{version:020}.json"
        lines = [json.loads(line) for line in commit.read_text().splitlines()]
        for line in lines:
            if "remove" in line:
                line["remove"]["deletionTimestamp"] = int(moment * 1000)
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = int(moment * 1000)
        commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
        commit.with_name(f".{commit.name}.crc").unlink()
        for file in {*files, *commit.parent.glob(f"{version:020}.*")}:
            os.utime(file, (moment, moment))

    def store(self, marker: int, version: int) -> None:
        state = replace(
            self.state,
            marker=marker,
            since_lsn=marker,
            since_marker=marker,
            end_lsn=marker,
            tables={"public.t": TableState(Version(version), "topic")},
        )
        self.state = self.manifests.store(state, self.state)

    def tidy(self) -> None:
        maintained = Maintenance(self.settings, self.session, "s", self.tables())
        moved = maintained.tidy(self.state.tables)
        if moved:
            self.store(self.state.marker, moved["public.t"].version)

    def rows(self, marker: int) -> tuple[list[int], list[int]]:
        """What reader and `verify` see at a marker."""
        self.tables()
        warehouse = str(self.folder)
        at = f"0/{marker:X}"
        seen = read("s", "public.t", at=at, warehouse=warehouse, spark=self.spark).collect()
        rebuilt = RebuiltTables(self.settings, self.spark, "s", StaticSchemas(), 0.0)
        tables = rebuilt.before(marker).tables
        verified = rebuilt.read("public.t", tables["public.t"]).collect()
        return [row.id for row in seen], [row.id for row in verified]


@pytest.mark.parametrize(
    ("keep_hours", "changed"),
    [(24.0, 12.0), (720.0, 10 * DAY)],
    ids=["a day", "a month"],
)
def test_a_table_that_rarely_changes_is_read_as_it_was_and_its_old_files_go_in_time(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    keep_hours: float,
    changed: float,
) -> None:
    monkeypatch.setattr(maintenance, "_SLACK_HOURS", 0.0)
    history = History(spark, tmp_path, keep_hours)
    history.write(1, 60 * DAY)
    history.write(2, 40 * DAY)
    history.tidy()
    # State 2 ends here, and is needed for `keep_hours` from here on.
    history.write(3, changed)
    history.tidy()
    # Of an age at which Delta would refuse to read it, were it not told otherwise.
    Views(spark, DeltaFormat(), str(tmp_path), "s", ["spark"]).publish(history.state)
    _, viewed = SparkReader(spark).ask(tmp_path / "s" / "views.spark.sql", "FROM `s.public.t`")
    assert viewed == [(3,)]
    first = history.path / "_delta_log"
    history.write(4, 0.0)
    # A checkpoint, which Delta makes after ten commits, forgets what is old.
    history.tables()
    PrivateLog(history.session, str(history.path), "t").log().checkpoint()
    assert list(first.glob("*.checkpoint*"))
    (tmp_path / "s" / ".pgsluice" / "maintained").unlink()
    history.tidy()

    assert history.rows(2) == ([2], [2])
    assert history.rows(3) == ([3], [3])
    assert history.rows(4) == ([4], [4])

    # What ended before that went, in the time that was asked for and not only after a week.
    def files_of(version: int) -> list[str]:
        lines = (first / f"{version:020}.json").read_text().splitlines()
        return [entry["add"]["path"] for entry in map(json.loads, lines) if "add" in entry]

    (past,) = files_of(0)
    assert not (history.path / past).exists()


def test_row_tracking_of_a_small_table_keeps_the_identity_of_rows_that_did_not_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = [Col("id", "int", "integer"), Col("b", "string", "text")]
    topic = TableTopic(StaticSchemas(), "s.public.t", columns, ["id"])
    table = Direct(spark, tmp_path, topic)
    topic.truncate(0x90, 0, snapshot="first")
    for key in range(20):
        topic.change("r", 0x90, 0, after={"id": key, "b": "copied"})
    table.apply()
    # Delta gives the rows that are there their identities by a commit of its own.
    spark.sql(
        f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES (delta.enableRowTracking = TRUE)"
    )

    def identities() -> dict[int, tuple[int, int]]:
        rows = spark.read.format("delta").load(table.path)
        tracked = rows.select("id", "_metadata.row_id", "_metadata.row_commit_version")
        return {row[0]: (row[1], row[2]) for row in tracked.collect()}

    before = identities()
    topic.change("u", 0xA0, 1, after={"id": 7, "b": "changed"})
    topic.change("d", 0xA0, 3, before={"id": 8})
    topic.change("c", 0xA0, 5, after={"id": 20, "b": "new"})
    found = table.apply()

    assert found is not None
    after = identities()
    touched = {7, 8, 20}
    assert {k: v for k, v in after.items() if k not in touched} == {
        k: v for k, v in before.items() if k not in touched
    }
    assert after[7] == (before[7][0], found.version)
    assert after[20][0] not in {row_id for row_id, _ in before.values()}
