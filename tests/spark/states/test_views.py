"""Readers without the job's code see all tables of a subscription at one point."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from schemas.settings.consumer import ViewEngine
from schemas.topic_names import topic_part
from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Commit
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.kafka.position import Position
from spark_consumer.names import table_folder
from spark_consumer.spark.files import Folder
from spark_consumer.states.manifests import Hold, Manifest, Manifests, TableState
from spark_consumer.states.views import Views
from tests.support.run.waiting import PATIENCE
from tests.support.spark.memory_format import MemoryFormat
from tests.support.spark.view_readers import DuckDbReader, Reader, SparkReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ACCOUNTS = ["accounts", 'Büro "A"', "a.b", "c`d'e", "x;--y"]
EACH = 100
STATES = 3
"""Number of states that each engine has to see of each bank."""
SECONDS = float(os.environ.get("PGSLUICE_VIEW_S", "0"))


class Bank:
    """Five tables with a row each; a transfer between two leaves the sum of all as it is.

    Each transfer is a cut: two commits, one after the other, and a manifest with its views.
    """

    def __init__(
        self, spark: SparkSession, warehouse: Path, name: str, tables: TableFormat
    ) -> None:
        self.name = name
        self._session = spark.newSession()
        self._session.conf.set("spark.sql.adaptive.enabled", "false")
        self._format = tables
        self._manifests = Manifests(spark, str(warehouse), name)
        self._views = Views(self._session, tables, str(warehouse), name, ["spark", "duckdb"])
        self._warehouse = str(warehouse)
        self._balances = [EACH] * len(ACCOUNTS)
        self._state = Manifest("markers")
        self.at: dict[int, list[int]] = {}
        self._cut(range(len(ACCOUNTS)))

    def transfer(self) -> None:
        payer, payee = random.sample(range(len(ACCOUNTS)), 2)
        amount = random.randint(1, EACH)
        self._balances[payer] -= amount
        self._balances[payee] += amount
        self._cut((payer, payee))

    def _cut(self, changed: Iterable[int]) -> None:
        lsn = self._state.end_lsn + 0x10
        self.at[lsn] = list(self._balances)
        versions = dict(self._state.tables)
        for number in changed:
            name = f"public.{topic_part(ACCOUNTS[number])}"
            path = table_folder(self._warehouse, self.name, name)
            table = self._format.table(self._session, path, name)
            position = Position("markers", lsn, lsn, None, name, "id", {0: lsn})
            rows = self._session.sql(f"SELECT {self._balances[number]} AS balance")
            mode = WriteMode.REPLACE_ROWS if name in versions else WriteMode.REPLACE_TABLE
            table.write(rows, Commit(position, {}), table.find(), mode)
            versions[name] = TableState(table.version(), name)
        after = replace(
            self._state,
            marker=lsn,
            since_marker=lsn,
            since_lsn=lsn,
            end_lsn=lsn,
            tables=versions,
        )
        self._state = self._manifests.store(after, self._state)
        self._views.publish(self._state)

    def question(self, engine: ViewEngine) -> str:
        """SQL for the five balances."""
        quote = "`" if engine == "spark" else '"'
        point = "." if engine == "spark" else '"."'
        names = [point.join((self.name, "public", topic_part(one))) for one in ACCOUNTS]
        return "SELECT " + ", ".join(
            f"(SELECT sum(balance) FROM {quote}{name}{quote})" for name in names
        )


def test_each_read_through_the_views_is_of_one_point_while_cuts_go_on(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random.seed(seed)
    warehouse = tmp_path / 'd\'or & "co" {a,b}[c]*?'
    banks = [
        Bank(spark, warehouse, "delta", DeltaFormat()),
        Bank(spark, warehouse, "iceberg", IcebergFormat()),
    ]
    readers: dict[ViewEngine, Reader] = {"spark": SparkReader(spark), "duckdb": DuckDbReader()}
    seen: dict[tuple[str, str], list[int]] = {
        (bank.name, engine): [] for bank in banks for engine in readers
    }
    done = threading.Event()

    def transfer(bank: Bank) -> None:
        while not done.is_set():
            bank.transfer()

    begun = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(transfer, bank) for bank in banks]
        try:
            while time.monotonic() < begun + SECONDS or any(
                len(set(points)) < STATES for points in seen.values()
            ):
                assert not any(writer.done() for writer in writers)
                for bank, (engine, reader) in product(banks, readers.items()):
                    file = warehouse / bank.name / f"views.{engine}.sql"
                    lsn, (row,) = reader.ask(file, bank.question(engine))
                    assert list(row) == bank.at[lsn], (bank.name, engine, hex(lsn))
                    seen[bank.name, engine].append(lsn)
        finally:
            done.set()
        for writer in writers:
            writer.result(60 * PATIENCE)
    for where, points in seen.items():
        print(f"{where}: {len(points)} reads of {len(set(points))} states, 0 wrong")


def test_a_table_that_an_engine_cannot_show_costs_no_other_one_its_view(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = MemoryFormat()
    for name in ("whole", "held", "alike", "Alike"):
        table = tables.table(spark, str(tmp_path / "s" / "public" / name), name)
        position = Position("m", 1, 1, None, name, "id", {0: 1})
        table.write(spark.range(1), Commit(position, {}), None, WriteMode.REPLACE_TABLE)
    version = table.version()
    names = ("whole", "held", "lost", "alike", "Alike")
    manifest = Manifest(
        "markers",
        marker=1,
        since_lsn=0x1A0,
        tables={f"public.{name}": TableState(version, name) for name in names},
        held_by_job={f"public.{name}": Hold("reason;\nDROP", None, 1) for name in ("held", "lost")},
        copies={"public.whole": "running"},
        store=1,
    )
    folder = tmp_path / "s"
    folder.mkdir()
    (folder / "views.spark.sql").write_text("of a job with other settings")
    views = Views(spark, tables, str(tmp_path), "s", ["duckdb"])
    views.clear()
    views.publish(manifest)

    text = (folder / "views.duckdb.sql").read_text()
    lines = text.splitlines()
    assert not (folder / "views.spark.sql").exists()
    assert "-- Incomplete: public.held, held by the job." in lines
    assert "-- Incomplete: public.whole, being copied." in lines
    shown = [line.split('"')[5] for line in lines if line.startswith("CREATE OR REPLACE")]
    dropped = [line.split('"')[5] for line in lines if line.startswith("DROP")]
    assert shown == ["held", "whole"]
    assert dropped == ["Alike", "alike", "lost"]
    _, answer = DuckDbReader().ask(folder / "views.duckdb.sql", "SELECT * FROM s.public.whole")
    assert answer == [(version,)]

    # What shows the same is not written again.
    before = (folder / "views.duckdb.sql").stat().st_ino
    views.publish(manifest)
    assert (folder / "views.duckdb.sql").stat().st_ino == before


def test_a_file_of_views_is_there_at_every_moment_and_always_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, file = Folder(spark, str(tmp_path)), tmp_path / "views.spark.sql"
    texts = {letter * 100_000 for letter in "ab"}
    folder.publish(file.name, "a" * 100_000)
    done = threading.Event()
    bad: list[Any] = []

    def watch() -> None:
        while not done.is_set():
            try:
                if file.read_text() not in texts:
                    bad.append("half")
            except FileNotFoundError:
                bad.append("none")

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        for _ in range(100):
            for text in sorted(texts):
                folder.publish(file.name, text)
        done.set()
        watching.result()
    assert bad == []
