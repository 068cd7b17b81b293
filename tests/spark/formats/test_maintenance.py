"""Between cuts small files are put together, and files go that no kept state needs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from pyspark.sql.types import IntegerType, StructField

from spark_consumer.cli import main
from spark_consumer.errors import TableError, TransientConsumerError
from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.iceberg.table import IcebergTable
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.formats.schema_evolution import Add
from spark_consumer.job import maintenance
from spark_consumer.job.job import run
from spark_consumer.job.maintenance import Maintenance
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.kafka.position import Position
from spark_consumer.reader import state_at
from spark_consumer.settings import ConsumerSettings
from spark_consumer.states.manifests import TableState
from tests.support.run.seeds import in_turn
from tests.support.spark.direct import Direct
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, StaticSchemas, TableTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 17


def test_small_files_are_put_together_and_old_ones_stay_as_long_as_they_are_needed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse=str(tmp_path), subscriptions=("s",), keep_hours=1.0
    )
    folder = tmp_path / "s" / "public" / "t"
    session = spark.newSession()
    tables = SubscriberTables(session, DeltaFormat(), str(tmp_path), "s")
    table = tables.table(session, "public.t")
    for marker in (0, 1):
        position = Position("markers", marker, marker + 1, None, "topic", "id", {0: marker})
        rows = spark.range(marker * FILES, (marker + 1) * FILES).repartition(FILES)
        mode = WriteMode.APPEND if marker else WriteMode.REPLACE_TABLE
        table.write(rows, Commit(position, {}), table.find(), mode)
    kept = TableState(table.version(), "topic")
    files = len(list(folder.glob("*.parquet")))

    def tidy(keep_hours: float, state: TableState) -> dict[str, TableState]:
        changed = replace(settings, keep_hours=keep_hours)
        return Maintenance(changed, session, "s", tables).tidy({"public.t": state})

    def rows_at(version: int) -> list[int]:
        frame = spark.read.format("delta").option("versionAsOf", version).load(str(folder))
        return sorted(row.id for row in frame.collect())

    moved = tidy(1.0, kept)

    now = moved["public.t"].version
    assert now == table.version() > kept.version
    assert len(spark.read.format("delta").load(str(folder)).inputFiles()) == 1
    assert rows_at(now) == rows_at(kept.version) == list(range(2 * FILES))
    tables.found.clear()
    found = tables.find("public.t")
    assert found is not None and found.commit.position.marker == 1
    assert tidy(1.0, moved["public.t"]) == {}
    assert len(list(folder.glob("*.parquet"))) == files + 1

    monkeypatch.setattr(maintenance, "_SLACK_HOURS", 0.0)
    (tmp_path / "s" / ".pgsluice" / "maintained").unlink()
    assert tidy(0.0, moved["public.t"]) == {}
    assert len(list(folder.glob("*.parquet"))) == 1
    assert rows_at(now) == list(range(2 * FILES))


KILLED, OTHER = "a job that is killed", "another program"
COMPACTED: list[tuple[TableFormat, str]] = [
    *in_turn(__name__, [(DeltaFormat(), KILLED), (DeltaFormat(), OTHER)]),
    *in_turn(__name__, [(IcebergFormat(), OTHER), (IcebergFormat(), KILLED)]),
]
"""A compactor for each format; with another seed the other one."""


@pytest.mark.parametrize(
    ("table_format", "compactor"),
    COMPACTED,
    ids=[f"{tables.name}, {compactor}" for tables, compactor in COMPACTED],
)
def test_the_version_of_the_newest_state_outlives_a_compaction_that_no_state_names(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    table_format: TableFormat,
    compactor: str,
) -> None:
    monkeypatch.setattr(maintenance, "_SLACK_HOURS", 0.0)
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse=str(tmp_path), subscriptions=("s",), keep_hours=0.0
    )
    session = spark.newSession()
    tables = SubscriberTables(session, table_format, str(tmp_path), "s")
    table = tables.table(session, "public.t")
    commit = Commit(Position("markers", 0, 1, None, "topic", "id", {0: 0}), {})
    rows = session.range(2 * FILES).repartition(FILES)
    table.write(rows, commit, None, WriteMode.REPLACE_TABLE)
    state = TableState(table.version(), "topic")

    def tidy(state: TableState) -> dict[str, TableState]:
        subscriber = SubscriberTables(session, table_format, str(tmp_path), "s")
        return Maintenance(settings, session, "s", subscriber).tidy({"public.t": state})

    def ids(version: Version) -> list[int]:
        rows = table_format.rows_at(session, table.path, version)
        return sorted(row.id for row in rows.collect())

    if compactor == OTHER:
        monkeypatch.setattr(maintenance, "_MANY_FILES", FILES + 1)
        tidy(state)
        if isinstance(table, IcebergTable):
            jvm: Any = session._jvm
            actions = jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)
            actions.rewriteDataFiles(table._metadata.table()).execute()
        else:
            session.sql(f"OPTIMIZE delta.`{table.path}`")
    else:
        # The manifest with what this returns is not stored.
        assert set(tidy(state)) == {"public.t"}
    newest = table.version()
    assert newest > state.version

    for _ in range(2):
        moved = tidy(state)
        assert moved == {"public.t": TableState(newest, "topic")}
        assert ids(state.version) == list(range(2 * FILES))
    assert tidy(moved["public.t"]) == {}
    assert ids(newest) == list(range(2 * FILES))
    assert table.files() == 1
    assert len(list(Path(table.path).rglob("*.parquet"))) == 1


def test_large_files_keep_their_place_and_a_table_clustered_by_its_user_is_clustered(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "_SMALL_FILE_BYTES", 1 << 16)
    monkeypatch.setattr(maintenance, "_MANY_FILES", 4)
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse=str(tmp_path), subscriptions=("s",)
    )
    session = spark.newSession()
    tables = SubscriberTables(session, DeltaFormat(), str(tmp_path), "s")
    large = 40_000
    many = spark.range(large + 1, large + 2).union(spark.range(large + 10, large + 11))
    batches = [spark.range(0, large).coalesce(1), *[many.repartition(FILES // 2)] * 2]
    states = {}
    for name in ("plain", "clustered"):
        table = tables.table(session, f"public.{name}")
        for marker, rows in enumerate(batches):
            position = Position("markers", marker, marker + 1, None, name, "id", {0: marker})
            mode = WriteMode.APPEND if marker else WriteMode.REPLACE_TABLE
            table.write(rows, Commit(position, {}), table.find(), mode)
        if name == "clustered":
            session.sql(f"ALTER TABLE delta.`{table.path}` CLUSTER BY (id)")
        states[f"public.{name}"] = TableState(table.version(), name)

    def files(name: str) -> list[tuple[str, int, int]]:
        frame = spark.read.format("delta").load(tables.table(session, f"public.{name}").path)
        ranges = frame.groupBy("_metadata.file_path").agg({"id": "min", "*": "count"})
        return sorted((row[0], row["min(id)"], row["count(1)"]) for row in ranges.collect())

    before = files("plain")
    tables.found.clear()
    moved = Maintenance(settings, session, "s", tables).tidy(states)

    assert set(moved) == set(states)
    kept = [file for file in before if file[1] == 0]
    assert [count for *_, count in kept] == [large]
    assert kept[0] in files("plain")
    assert sorted(count for *_, count in files("plain")) == [4, large]
    assert sum(count for *_, count in files("clustered")) == large + 4
    table = tables.table(session, "public.clustered")
    detail = session.sql(f"DESCRIBE DETAIL delta.`{table.path}`").first()
    assert detail is not None and detail.clusteringColumns == ["id"]
    after = tables.find("public.clustered")
    assert after is not None and after.version == table.version()
    table.write(spark.range(1), after.commit, after, WriteMode.APPEND)
    assert sum(count for *_, count in files("clustered")) == large + 5


def test_longer_times_of_the_user_count_and_one_table_s_trouble_is_its_own(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(maintenance, "_SLACK_HOURS", 0.0)
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse=str(tmp_path), subscriptions=("s",)
    )
    session = spark.newSession()
    tables = SubscriberTables(session, DeltaFormat(), str(tmp_path), "s")
    names = ("broken", "long", "plain")
    states = {}
    for name in names:
        table = tables.table(session, f"public.{name}")
        for marker in (0, 1):
            position = Position("markers", marker, marker + 1, None, name, "id", {0: marker})
            rows = spark.range(1).coalesce(1)
            mode = WriteMode.REPLACE_ROWS if marker else WriteMode.REPLACE_TABLE
            table.write(rows, Commit(position, {}), table.find(), mode)
        if name == "long":
            session.sql(
                f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES"
                " ('delta.deletedFileRetentionDuration' = 'interval 100 hours',"
                " 'delta.logRetentionDuration' = 'interval 9999 hours')"
            )
        states[f"public.{name}"] = TableState(table.version(), name)
    log = tmp_path / "s" / "public" / "broken" / "_delta_log"
    (log / f"{2:020}.json").write_text("not of Delta")

    def property_of(name: str, key: str) -> str:
        path = tables.table(session, f"public.{name}").path
        detail = session.sql(f"DESCRIBE DETAIL delta.`{path}`").first()
        assert detail is not None
        return str(detail.properties[key])

    def tidy(keep_hours: float) -> None:
        changed = replace(settings, keep_hours=keep_hours)
        Maintenance(changed, session, "s", tables).tidy(states)

    tidy(0.0)

    folder = tmp_path / "s" / "public"
    files = {name: len(list((folder / name).glob("*.parquet"))) for name in names}
    assert files == {"broken": 2, "long": 2, "plain": 1}
    (failed,) = [text for text in caplog.messages if text.startswith("maintenance failed")]
    # With the cause: no option shows more.
    assert "table=public.broken: " in failed
    assert "Exception" in failed or "DELTA" in failed

    (tmp_path / "s" / ".pgsluice" / "maintained").unlink()
    tidy(1000.0)

    kept = "delta.logRetentionDuration"
    assert property_of("long", kept) == "interval 9999 hours"
    assert property_of("plain", kept) == "interval 1000 hours"


@pytest.mark.parametrize("table_format", [DeltaFormat(), IcebergFormat()], ids=["delta", "iceberg"])
def test_a_state_does_not_get_the_columns_of_a_change_that_was_not_written(
    spark: SparkSession, tmp_path: Path, table_format: TableFormat
) -> None:
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse=str(tmp_path), subscriptions=("s",)
    )
    session = spark.newSession()
    tables = SubscriberTables(session, table_format, str(tmp_path), "s")
    table = tables.table(session, "public.t")
    commit = Commit(Position("markers", 0, 1, None, "topic", "id", {0: 0}), {})
    table.write(session.range(2), commit, None, WriteMode.REPLACE_TABLE)
    state = TableState(table.version(), "topic")
    table.alter(
        [Add(StructField("b", IntegerType(), True, {"comment": "integer"}), "7", exists=False)]
    )
    assert table.version() > state.version

    for _ in range(2):
        assert Maintenance(settings, session, "s", tables).tidy({"public.t": state}) == {}

    assert table_format.rows_at(session, table.path, state.version).columns == ["id"]


@pytest.mark.parametrize("change", ["rows are deleted", "the folder is restored"])
def test_a_table_that_others_have_changed_is_not_taken_for_the_one_that_the_job_has_left(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    settings = ConsumerSettings(
        kafka={}, registry_url="", warehouse=str(tmp_path), subscriptions=("s",)
    )
    topic = TableTopic(StaticSchemas(), "s.public.t", [Col("id", "int", "integer")], ["id"])
    direct = Direct(spark, tmp_path, topic, tables := DeltaFormat())
    topic.truncate(0x90, 0, snapshot="first")
    for key in range(2):
        topic.change("c", 0xA0 + key, 0, after={"id": key})
        before = direct.found()
        left = direct.apply()
    assert direct.held == 2 and before is not None and left is not None
    subscriber = SubscriberTables(spark.newSession(), tables, str(tmp_path), "s")
    subscriber.found["public.t"] = left
    if change == "rows are deleted":
        spark.newSession().sql(f"DELETE FROM delta.`{direct.path}` WHERE id = 0")
    else:
        for path in Path(direct.path, "_delta_log").glob(f"*{left.version:020}*"):
            path.unlink()
    there = set(Path(direct.path, "_delta_log").glob("*.json"))

    moved = Maintenance(settings, spark.newSession(), "s", subscriber).tidy(
        {"public.t": TableState(left.version, topic.topic)}
    )

    assert moved == {}
    assert set(Path(direct.path, "_delta_log").glob("*.json")) == there
    if change == "rows are deleted":
        assert any(
            text.startswith("maintenance failed: table=public.t") for text in caplog.messages
        )
        with pytest.raises(TableError, match=r"written by another writer \(DELETE\)"):
            subscriber.find("public.t")
    else:
        assert subscriber.find("public.t") == before
        direct.apply()
        assert direct.rows() == [(0,), (1,)]


def test_files_are_put_together_on_top_of_the_last_commit_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    table = SubscriberTables(session, DeltaFormat(), str(tmp_path), "s").table(session, "public.t")
    commits = []
    for marker in (0, 1):
        position = Position("markers", marker, marker + 1, None, "topic", "id", {0: marker})
        commits.append(Commit(position, {}, marker))
        rows = spark.range(FILES).repartition(FILES)
        mode = WriteMode.APPEND if marker else WriteMode.REPLACE_TABLE
        table.write(rows, commits[-1], table.find(), mode)
    found = table.find()

    with pytest.raises(TransientConsumerError, match="another writer"):
        table.compact(commits[0], small=1 << 20)
    assert table.find() == found

    table.compact(commits[1], small=1 << 20)
    after = table.find()
    assert after is not None and after.commit == commits[1]
    assert table.files() == 1


@pytest.mark.kafka
@pytest.mark.parametrize("delta_private", in_turn(__name__, ["auto", "never"]))
def test_the_job_looks_after_tables_when_it_is_time_and_ends_when_it_has_what_there_was(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    delta_private: Literal["auto", "never"],
) -> None:
    ids = RegisteredSchemas(registry)
    name = f"s{uuid.uuid4().hex[:8]}"
    topics = Topics(kafka, ids, name)
    columns = [Col("a", "int", "integer")]
    table = TableTopic(ids, f"{name}.public.t", columns, ["a"], table="t")
    settings = ConsumerSettings(
        kafka={"bootstrap.servers": kafka},
        registry_url=registry,
        warehouse=str(tmp_path),
        checkpoint=str(tmp_path / "checkpoint"),
        subscriptions=(name,),
        keep_hours=0.0,
        delta_private=delta_private,
        available_now=True,
    )
    monkeypatch.setattr(maintenance, "_SLACK_HOURS", 0.0)
    # Without a topic there is nothing to wait for.
    assert run(settings, spark, stopping=threading.Event()) == 0
    for topic in (table.topic, topics.marker_topic):
        topics.create(topic)
    folder = tmp_path / name / "public" / "t"

    def cut(end_lsn: int) -> int:
        topics.commit([table], [{"kind": "PROGRESS", "end_lsn": end_lsn}])
        assert run(settings, spark, stopping=threading.Event()) == 0
        return len(list(folder.glob("*.parquet")))

    table.truncate(0x90, 0, snapshot="first")
    table.change("r", 0x90, 0, after={"a": 1})
    assert cut(0x100) == 1
    table.change("c", 0x108, 1, after={"a": 2})
    assert cut(0x200) == 2
    os.utime(tmp_path / name / ".pgsluice" / "maintained", (0, 0))
    table.change("d", 0x208, 1, before={"a": 2})

    assert cut(0x300) == 1

    manifest = state_at(name, at=None, warehouse=settings.warehouse, spark=spark)
    assert manifest.end_lsn == 0x300
    rows = spark.read.format("delta").load(str(folder)).collect()
    assert [row.a for row in rows] == [1]

    # Without any manifest all markers are read, and the table skips what it has.
    shutil.rmtree(tmp_path / name / ".pgsluice")
    assert run(settings, spark, stopping=threading.Event()) == 0
    again = state_at(name, at=None, warehouse=settings.warehouse, spark=spark)
    assert (again.end_lsn, again.tables) == (0x300, manifest.tables)

    program = tmp_path / "consumer.toml"
    program.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka}"\n[registry]\nurl = "{registry}"\n'
        f'[consumer]\nsubscriptions = ["{name}"]\nwarehouse = "{tmp_path}"\n'
    )
    capsys.readouterr()
    assert main(["--config", str(program), "--available-now"]) == 0
    assert main(["--config", str(program), "--tables", "--at", "0/300"]) == 0
    version = manifest.tables["public.t"].version
    shown = f"up to: 0/300\ntable public.t: ready, version {version}, 1 rows, last change 0/300\n"
    assert f"{shown}  {folder}\n" in capsys.readouterr().out
    assert main(["--config", str(program), "--tables", "--at", "2001-01-01"]) == 1
    assert "no state at or before 2001-01-01" in capsys.readouterr().err

    # Without a JVM, and after a subscription that has no state yet.
    text = program.read_text()
    program.write_text(text.replace(f'["{name}"]', f'["{name}_new", "{name}"]'))
    listed = subprocess.run(
        [sys.executable, "-m", "spark_consumer", "--config", str(program), "--tables", "--json"],
        env={**os.environ, "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 1
    assert f"subscription {name}_new has no state yet" in listed.stderr
    (one,) = map(json.loads, listed.stdout.splitlines())
    assert (one["subscription"], one["up_to"], one["incomplete"]) == (name, "0/300", [])
    assert one["tables"] == [
        {
            "table": "public.t",
            "path": str(folder),
            "version": version,
            "rows": 1,
            "last_change_lsn": "0/300",
            "last_change": None,
            "state": "ready",
            "reason": None,
        }
    ]
