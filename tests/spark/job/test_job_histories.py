"""Histories in the job: they begin, go on, are held, released by a copy, and are no tables."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable

from spark_consumer.errors import FatalConsumerError, TransientConsumerError
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.history.applier import HistoryApplier
from spark_consumer.job import histories
from spark_consumer.job.job import run
from spark_consumer.job.maintenance import Maintenance
from spark_consumer.job.subscriber_tables import SubscriberTables
from spark_consumer.listing import print_tables
from spark_consumer.names import lsn_text
from spark_consumer.observe.progress import Progress
from spark_consumer.reader import as_of, read, state_at
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import TableTransientError
from spark_consumer.states.manifests import Manifests
from tests.support.spark.kafka_topics import RegisteredSchemas, Topics
from tests.support.spark.records import Col, TableTopic
from tests.support.spark.view_readers import SparkReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

COLUMNS = [Col("a", "int", "integer"), Col("b", "string", "text")]
OWN = "t__history"
MICROS = 1_700_000_000_000_000


class Scene:
    """A subscription of two tables; one of them has a history, and the other its folder's name."""

    def __init__(self, broker: str, registry: str, folder: Path) -> None:
        ids = RegisteredSchemas(registry)
        self.name = f"s{uuid.uuid4().hex[:8]}"
        self.topics = Topics(broker, ids, self.name)
        self.topics.create(self.topics.marker_topic)
        self.tables = {}
        for name in ("t", OWN):
            self.tables[name] = TableTopic(
                ids, f"{self.name}.public.{name}", list(COLUMNS), ["a"], table=name
            )
            self.topics.create(self.tables[name].topic)
        self.folder = folder / "warehouse" / self.name
        self.settings = ConsumerSettings(
            kafka={"bootstrap.servers": broker},
            registry_url=registry,
            warehouse=str(folder / "warehouse"),
            checkpoint=str(folder / "checkpoint"),
            subscriptions=(self.name,),
            history=("public.t",),
        )
        self.end_lsn = 0x100

    def copy(self, name: str, value: Any = "copied") -> None:
        self.tables[name].truncate(self.end_lsn, 0, snapshot="first")
        for key in (1, 2):
            self.tables[name].change("r", self.end_lsn, 0, after={"a": key, "b": value})

    def change(self, key: int, value: Any) -> None:
        """An update at an LSN, whose transaction ends eight bytes later."""
        self.tables["t"].change("u", self.end_lsn, 1, after={"a": key, "b": value})

    def publish(self) -> None:
        end = {"commit_lsn": self.end_lsn, "xid": self.end_lsn, "commit_time": MICROS}
        said = [{"kind": "END", "end_lsn": self.end_lsn + 8, "origin": "node1", **end}]
        self.end_lsn += 0x100
        progress = {"kind": "PROGRESS", "end_lsn": self.end_lsn}
        self.topics.commit(self.tables.values(), [*said, progress])

    def run(self, spark: SparkSession, **changed: Any) -> None:
        settings = replace(self.settings, endpos=self.end_lsn, **changed)
        assert run(settings, spark, stopping=threading.Event()) == 0

    def read(self, spark: SparkSession, name: str = f"public.{OWN}") -> DataFrame:
        return read(self.name, name, warehouse=self.settings.warehouse, spark=spark)

    def at(self, spark: SparkSession, lsn: int | str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row) for row in as_of(self.read(spark), lsn).collect())

    def manifest(self) -> Mapping[str, Any]:
        states = [
            json.loads(path.read_text())
            for path in (self.folder / ".pgsluice").glob("newest.?")
        ]  # fmt: skip
        return max(states, key=lambda state: int(state["store"]))


def test_a_history_begins_goes_on_is_held_and_is_released_by_a_copy_once(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "spark_consumer")
    scene = Scene(kafka, registry, tmp_path)
    scene.copy("t")
    scene.publish()
    scene.run(spark, history=())
    assert "histories" not in scene.manifest()

    # A failure that may pass is tried some times, and again by the next round.
    with monkeypatch.context() as patch:
        tries, at_work = [], []

        def named(self: Progress, name: str, table: Any = Progress.table) -> Any:
            at_work.append(name)  # as the log says after some seconds
            return table(self, name)

        def begin(self: HistoryApplier, *given: Any) -> Any:
            tries.append(given)
            raise TableTransientError("the file system was away")

        patch.setattr(histories, "_BACK_OFF_S", 0.0)
        patch.setattr(HistoryApplier, "begin", begin)
        patch.setattr(Progress, "table", named)
        held = r"history of table public\.t is held: the file system was away"
        with pytest.raises(FatalConsumerError, match=held):
            scene.run(spark)
        assert len(tries) == 4
        assert "history of public.t" in at_work
    caplog.clear()
    scene.run(spark, history=("public.t", "public.nothing"))
    assert "history released: subscription" in caplog.text
    unknown = "consumer.history has public.nothing, and no such table is published"
    assert caplog.text.count(unknown) == caplog.text.count("consumer.history has") == 1
    scene.change(1, "first")
    changed = scene.end_lsn
    scene.publish()
    scene.run(spark)

    assert scene.at(spark, "0/200") == scene.at(spark, changed + 7) == [
        (1, "copied"), (2, "copied")
    ]  # fmt: skip
    assert scene.at(spark, changed + 8) == [(1, "first"), (2, "copied")]
    change = ("_from_lsn", "_from_seq", "_from_xid", "_from_origin", "unix_micros(_from_time)")
    updated = scene.read(spark).where("_from_op = 'u'").selectExpr(*change)
    assert updated.collect() == [(changed + 8, 1, changed, "node1", MICROS)]
    assert scene.manifest()["histories"]["public.t"]["held"] is None
    assert list(scene.manifest()["tables"]) == ["public.t"]

    # Another program writes to it.
    DeltaTable.forPath(spark, str(scene.folder / "public" / OWN)).delete("a = 2")
    scene.change(1, "second")
    scene.publish()
    held = r"history of table public\.t is held: .*public\.t__history: version \d+ was written by"
    with pytest.raises(FatalConsumerError, match=held):
        scene.run(spark)
    assert sorted(map(tuple, scene.read(spark, "public.t").collect())) == [
        (1, "second"), (2, "copied")
    ]  # fmt: skip

    # A copy releases it. The job dies after its commit, before the manifest.
    scene.copy("t")
    scene.publish()
    with monkeypatch.context() as patch:
        stores = Manifests.store

        def store(self: Manifests, manifest: Any, before: Any) -> Any:
            if manifest.histories["public.t"].held is None:
                raise TransientConsumerError("the process is gone")
            return stores(self, manifest, before)

        patch.setattr(Manifests, "store", store)
        with pytest.raises(TransientConsumerError, match="the process is gone"):
            scene.run(spark)
    assert scene.manifest()["histories"]["public.t"]["held"] is not None
    scene.run(spark)

    assert scene.at(spark, scene.end_lsn) == [(1, "copied"), (2, "copied")]
    assert scene.read(spark).where("_from_op = 'r'").count() == 2
    assert scene.read(spark).where("_to_op = 'r'").count() == 1
    assert state_at(
        scene.name, at=None, warehouse=scene.settings.warehouse, spark=spark
    ).complete_lsn == scene.end_lsn  # fmt: skip

    # Records of a type that nothing converts come before the copy that settles it.
    scene.tables["t"].columns = [COLUMNS[0], Col("b", "boolean", "boolean")]
    scene.change(1, True)
    scene.publish()
    scene.copy("t", False)
    scene.publish()
    scene.run(spark)
    there = as_of(scene.read(spark), scene.end_lsn).select("a", "b").sort("a")
    assert there.collect() == [(1, False), (2, False)]


def test_a_history_that_is_not_written_any_more_is_not_taken_for_a_table(
    spark: SparkSession,
    kafka: str,
    registry: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scene = Scene(kafka, registry, tmp_path)
    scene.copy("t")
    scene.publish()
    # Views show it beside its table.
    scene.run(spark, views=("spark",))
    before = scene.read(spark).count()
    view = f"`{scene.name}.public.{OWN}`"
    question = f"SELECT count(*), min(_from_op) FROM {view}"
    _, counted = SparkReader(spark).ask(scene.folder / "views.spark.sql", question)
    assert counted == [(before, "s")] == [(2, "s")]
    reached = lsn_text(scene.manifest()["end_lsn"])

    scene.copy(OWN)
    scene.publish()
    reason = r"table public\.t__history is held by the job: .*has the history of table public\.t"
    with pytest.raises(FatalConsumerError, match=reason):
        scene.run(spark, history=())
    assert scene.read(spark).count() == before
    print_tables(scene.settings, at=None, as_json=True)
    listed = json.loads(capsys.readouterr().out)
    (history,) = listed["histories"]
    assert (history["table"], history["complete_until"]) == ("public.t", reached)
    assert [one["table"] for one in listed["tables"]] == ["public.t"]

    # Maintenance knows it, as it has files.
    warehouse = scene.settings.warehouse
    session = spark.newSession()
    tables = SubscriberTables(session, DeltaFormat(), warehouse, scene.name)
    newest = state_at(scene.name, at=None, warehouse=warehouse, spark=spark)
    settings = replace(scene.settings, keep_hours=1.0)
    Maintenance(settings, session, scene.name, tables).tidy(newest.every_table())
    kept = json.loads((scene.folder / ".pgsluice" / "maintained").read_text())
    assert set(kept) == {"public.t", "public.t__history"}

    # Once that folder is moved away, it is the table's, and nothing takes it for the history.
    shutil.rmtree(scene.folder / "public" / OWN)
    scene.copy(OWN)
    scene.publish()
    scene.run(spark, history=())
    assert "histories" not in scene.manifest()
    assert sorted(map(tuple, scene.read(spark).collect())) == [(1, "copied"), (2, "copied")]

    # A table of that name is refused at the start, if it was there first.
    other = replace(scene.settings, warehouse=str(tmp_path / "other"))
    scene.settings = other
    scene.run(spark, history=())
    with pytest.raises(
        FatalConsumerError, match=r"public\.t__history has the folder .* of public\.t would"
    ):
        scene.run(spark)
