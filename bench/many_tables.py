"""Many small tables: all of them in one cut, and a few of very many."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import reduce
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from bench.rebuilt import Bench, Job, plain_merge
from spark_consumer.kafka.markers import Marker
from spark_consumer.states.manifests import TableState

__all__ = ["measure"]

_TABLES = 50
_ROWS = 20
_FEW = 5
_MANY = 1_000
_BATCHES = 4


def measure(spark: SparkSession, bootstrap: str, folder: Path) -> None:
    """A cut that changes all of 50 tables; then 5 of them, alone and as 5 of 1,000 tables."""
    job = Job(spark, bootstrap, folder)
    tables = [Bench(job, name=f"small{number}") for number in range(_TABLES)]
    begun = _put(tables, "t", 0, 1)
    copied = _put(tables, "r", 0, _ROWS)
    print(f"{_TABLES} tables copied in one cut: {job.take(*begun, *copied):.1f} s", flush=True)
    spent = []
    for number in range(_BATCHES):
        markers = _changed(tables, number)
        spent.append(job.take(*markers))
    reading = sum(table.decode(marker) for table, marker in zip(tables, markers, strict=True))
    print(
        f"{_TABLES} tables changed in one cut: {median(spent[1:]):.1f} s;"
        f" read and decoded one by one {reading:.1f} s, merged one by one {_merged(tables):.1f} s",
        flush=True,
    )
    few = tables[:_FEW]
    alone = [job.take(*_changed(few, number)) for number in range(_BATCHES)]
    first = job.rebuild.manifest.tables["public.small0"]
    others = {}
    for number in range(_TABLES, _MANY):
        name = f"small{number}"
        shutil.copytree(tables[0].table, Path(tables[0].table).parent / name)
        others[f"public.{name}"] = TableState(first.version, f"bench.public.{name}")
    manifest = job.rebuild.manifest
    job.rebuild.manifest = replace(manifest, tables={**manifest.tables, **others})
    among = [job.take(*_changed(few, number)) for number in range(_BATCHES)]
    print(
        f"{_FEW} tables changed: alone {median(alone[1:]):.2f} s,"
        f" as {_FEW} of {len(job.rebuild.manifest.tables):,} {median(among[1:]):.2f} s",
        flush=True,
    )


def _merged(tables: list[Bench]) -> float:
    """How long one plain MERGE for each table takes, of the rows of a cut."""
    spent = 0.0
    for number, table in enumerate(tables):
        staged = table.staged(table.rows("u", 0, _ROWS // 4), f"staged{number}")
        spent += plain_merge(table.spark, table.copied(f"plain{number}"), staged)
    return spent


def _changed(tables: list[Bench], number: int) -> list[Marker]:
    return _put(tables, "u", number, _ROWS // 4)


def _put(tables: list[Bench], op: str, first: int, count: int) -> list[Marker]:
    """A transaction for each table, all written at once."""
    records = [table.records(table.rows(op, first, count)) for table in tables]
    tables[0].write(reduce(DataFrame.unionAll, records))
    return [table.written() for table in tables]
