"""The Spark job on large tables, beside reading alone and beside Delta's own operations.

Beside each measurement stands what it is compared with, on the same rows in the same session:
reading and decoding the records without writing, an append or a MERGE of the rows from Parquet
files, and a loop with one MERGE for each batch as Delta's documentation has it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession

from bench import many_tables, neighbours
from bench.rebuilt import Bench, Job, plain_merge, report, timed
from devkit.embedded.kafka import EmbeddedKafka
from gateway.jars.ivy import jars
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.session import build_session

__all__ = ["measure", "measure_bulk", "run"]

BATCHES = 10


def measure(
    spark: SparkSession, bootstrap: str, folder: Path, rows: int, *, mixed: bool = True
) -> None:
    """All measurements on one table of `rows` rows; those of mixed batches only if asked for."""
    print(f"a table of {rows:,} rows", flush=True)
    bench = Bench(Job(spark, bootstrap, folder))
    copy = [bench.begin(), bench.put(bench.rows("r", 0, rows))]
    reading = bench.decode(*copy)
    report("copy", rows, bench.take(*copy), "read and decode", reading)
    assert bench.count() == rows
    few = max(rows // 20, 20)
    inserted = bench.rows("c", rows, few)
    plain = bench.copied("appended")
    staged = bench.staged(inserted, "inserts").drop("op")
    spent = timed(lambda: staged.write.format("delta").mode("append").save(plain))
    marker = bench.put(inserted)
    reading = bench.decode(marker)
    report("inserts", few, bench.take(marker), "plain append", spent, reading)
    plain = bench.copied("merged")
    vectors = "'delta.enableDeletionVectors' = 'true'"
    spark.sql(f"ALTER TABLE delta.`{plain}` SET TBLPROPERTIES ({vectors})")
    for number, name in enumerate(("updates of neighbours", "others", "and others")):
        updated = bench.rows("u", rows // 3 + number * few, few)
        spent = plain_merge(spark, plain, bench.staged(updated, f"updates{number}"))
        marker = bench.put(updated)
        reading = bench.decode(marker)
        report(name, few, bench.take(marker), "plain MERGE", spent, reading)
    # The last rows that were inserted get other keys.
    moved = bench.rows("c", 2 * rows, few, old=f"id - {rows}")
    report("key changes", few, bench.take(bench.put(moved)), "plain MERGE", spent)
    assert bench.count() == rows + few
    if mixed:
        _mixed(bench, spark, rows, few // 10)


def _mixed(bench: Bench, spark: SparkSession, rows: int, each: int) -> None:
    """Batches of 60 % inserts, 30 % updates and 10 % deletes, beside a MERGE for each."""
    plain = bench.copied("mixed")
    spent = merged = 0.0

    def batch(number: int) -> DataFrame:
        first = 3 * rows + number * each
        return (
            bench.rows("c", first, each * 6 // 10)
            .union(bench.rows("u", number * each, each * 3 // 10))
            .union(bench.rows("d", rows // 2 + number * each, each // 10))
        )

    for number in range(BATCHES):
        staged = bench.staged(batch(number), f"mixed{number}")
        merged += plain_merge(spark, plain, staged)
        spent += bench.take(bench.put(batch(number)))
    report(f"{BATCHES} mixed batches", BATCHES * each, spent, "plain MERGEs", merged)
    there = spark.read.format("delta").load(plain)
    assert bench.count() == there.count()
    waiting = [bench.put(batch(BATCHES + number)) for number in range(BATCHES)]
    name = f"{BATCHES} more that waited: one cut"
    report(name, BATCHES * each, bench.take(*waiting), "plain MERGEs", merged)


def measure_bulk(spark: SparkSession, bootstrap: str, folder: Path, rows: int) -> None:
    """Key changes, and changes of rows without a key, of so many rows in one batch."""
    for name, keyed in (("key changes", True), ("without a key", False)):
        bench = Bench(Job(spark, bootstrap, folder / name), keyed=keyed)
        bench.take(bench.begin(), bench.put(bench.rows("r", 0, rows)))
        change = bench.rows("c" if keyed else "u", rows, rows, old=f"id - {rows}")
        marker = bench.put(change)
        reading = bench.decode(marker)
        report(f"{rows:,} at once: {name}", rows, bench.take(marker), "decode", reading)
        assert bench.count() == rows


def measure_batches(spark: SparkSession, bootstrap: str, folder: Path) -> None:
    """Batches of two sizes, the median of three each, behind a first one that is for the JVM."""
    rows = 200_000
    bench = Bench(Job(spark, bootstrap, folder))
    bench.take(bench.begin(), bench.put(bench.rows("r", 0, rows)))
    plain = bench.copied("plain")
    vectors = "'delta.enableDeletionVectors' = 'true'"
    spark.sql(f"ALTER TABLE delta.`{plain}` SET TBLPROPERTIES ({vectors})")
    for few in (2_000, 25_000):
        spent, beside, reading = [], [], []
        for number in range(4):
            batch = bench.rows("c", rows * few + number * few, few)
            staged = bench.staged(batch, f"inserts{few}-{number}").drop("op")
            write = staged.write.format("delta").mode("append")
            beside.append(timed(partial(write.save, plain)))
            marker = bench.put(batch)
            reading.append(bench.decode(marker))
            spent.append(bench.take(marker))
        report("batch: inserts", few, *_medians(spent, "plain append", beside, reading))
        spent, beside, reading = [], [], []
        for number in range(4):
            batch = (
                bench.rows("c", 2 * rows * few + number * few, few * 6 // 10)
                .union(bench.rows("u", number * few, few * 3 // 10))
                .union(bench.rows("d", rows // 2 + number * few, few // 10))
            )
            staged = bench.staged(batch, f"mixed{few}-{number}")
            beside.append(plain_merge(spark, plain, staged))
            marker = bench.put(batch)
            reading.append(bench.decode(marker))
            spent.append(bench.take(marker))
        report("batch: mixed", few, *_medians(spent, "plain MERGE", beside, reading))
    assert bench.count() == spark.read.format("delta").load(plain).count()


def _medians(
    spent: list[float], name: str, beside: list[float], reading: list[float]
) -> tuple[float, str, float, float]:
    """What `report` wants, without the first round."""
    return median(spent[1:]), name, median(beside[1:]), median(reading[1:])


@contextmanager
def _session(folder: Path) -> Iterator[SparkSession]:
    settings = ConsumerSettings(
        kafka={},
        registry_url="",
        warehouse="",
        checkpoint="",
        subscriptions=(),
        jars=tuple(str(jar) for jar in jars("spark")),
        spark={"spark.driver.memory": "2g", "spark.local.dir": str(folder / "local")},
    )
    spark = build_session(settings)
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def run(rows: int, part: str = "tables") -> None:
    """Make the parts, measure, take them down.

    Args:
        rows: of the large table.
        part: ``tables``, ``neighbours`` or ``many-tables``.
    """
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka() as kafka:
        folder, broker = Path(name), kafka.bootstrap_servers
        with _session(folder) as spark:
            match part:
                case "neighbours":
                    neighbours.measure(spark, broker, folder, rows)
                case "many-tables":
                    many_tables.measure(spark, broker, folder)
                case _:
                    # The JVM compiles what is run often; the first, smaller round is for that.
                    measure(spark, broker, folder / "few", rows // 10, mixed=False)
                    measure(spark, broker, folder / "many", rows)
                    measure_batches(spark, broker, folder / "batches")
                    measure_bulk(spark, broker, folder, min(rows, 500_000))
