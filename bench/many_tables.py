"""Many small tables: all of them in one cut, and a few of very many."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from bench.rebuilt import Bench, Job
from spark_consumer.manifests import TableState
from spark_consumer.markers import Marker

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
    begun = [table.begin() for table in tables]
    copied = [table.put(table.rows("r", 0, _ROWS)) for table in tables]
    print(f"{_TABLES} tables copied in one cut: {job.take(*begun, *copied):.1f} s", flush=True)
    spent = [job.take(*_changed(tables, number)) for number in range(_BATCHES)]
    print(f"{_TABLES} tables changed in one cut: {median(spent[1:]):.1f} s", flush=True)
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


def _changed(tables: list[Bench], number: int) -> list[Marker]:
    return [table.put(table.rows("u", number, _ROWS // 4)) for table in tables]
