"""A batch of neighbours, into a large table and into one with a twentieth of its rows."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from bench.rebuilt import Bench, Job
from spark_consumer.formats.changes import WriteMode
from spark_consumer.formats.commit_metadata import Found
from spark_consumer.formats.delta.format import DeltaFormat

__all__ = ["measure"]

_TIMES = 20
_BATCHES = 4
_PIECE = 1_000_000


def measure(spark: SparkSession, bootstrap: str, folder: Path, rows: int) -> None:
    """Batches of inserts and of updates, in turns into both; the first of each is for the JVM."""
    few = max(rows // 40, 20)
    small = _filled(Bench(Job(spark, bootstrap, folder / "small")), rows)
    large = _filled(Bench(Job(spark, bootstrap, folder / "large")), _TIMES * rows)
    for name in ("updates", "inserts"):
        spent: dict[int, list[float]] = {rows: [], _TIMES * rows: []}
        for number in range(_BATCHES):
            for bench, size in ((small, rows), (large, _TIMES * rows)):
                first = size // 2 + number * few if name == "updates" else size + number * few
                batch = bench.rows("u" if name == "updates" else "c", first, few)
                spent[size].append(bench.take(bench.put(batch)))
        mine, others = (median(seconds[1:]) for seconds in reversed(spent.values()))
        print(
            f"{few:,} {name} of neighbours: into {_TIMES * rows:,} rows {mine:.1f} s,"
            f" into {rows:,} rows {others:.1f} s, ratio {mine / others:.2f}",
            flush=True,
        )
    for bench in (small, large):
        folder_size = bench.spark.read.format("delta").load(bench.table).inputFiles()
        print(f"{bench.count():,} rows in {len(folder_size)} files", flush=True)


def _filled(bench: Bench, rows: int) -> Bench:
    """A table with so many rows, as its copy would have left it: in the order of its keys."""
    bench.take(bench.begin())
    table = DeltaFormat().table(bench.spark, bench.table, bench.name)
    found = table.find()
    assert found is not None
    for first in range(0, rows, _PIECE):
        piece = bench.plain(bench.rows("r", first, min(_PIECE, rows - first)))
        table.write(piece, found.commit, found, WriteMode.APPEND)
        found = Found(table.version(), found.commit)
    return bench
