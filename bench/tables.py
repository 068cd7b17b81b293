"""The Spark job on large tables, beside reading alone and beside Delta's own operations.

The topics are written by Spark itself, so that millions of rows take no time to make; the markers
are made here, and `spark_consumer.rebuild.Rebuild` takes them as it does in the job. Beside each
measurement stands what it is compared with, on the same rows in the same session: reading and
decoding the records without writing, an append or a MERGE of the rows from Parquet files, and a
loop with one MERGE for each batch as Delta's documentation has it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

import schemas
from gateway.embedded.jars import jars
from gateway.embedded.kafka import EmbeddedKafka
from spark_consumer.config import ConsumerSettings
from spark_consumer.decode import changes, read_offsets, wire
from spark_consumer.layout import ColumnPlan, KeyLayout
from spark_consumer.markers import Cut, Marker, Range
from spark_consumer.rebuild import Rebuild
from spark_consumer.session import build_session
from spark_consumer.survey import survey
from spark_consumer.topics import Topics

__all__ = ["Bench", "measure", "measure_bulk", "run"]

BATCHES = 10
COLUMNS = (
    ("id", "long", "bigint", "bigint"),
    ("region", "string", "text", "string"),
    ("note", "string", "text", "string"),
    ("quantity", "int", "integer", "int"),
    ("amount", "double", "double precision", "double"),
    ("flag", "boolean", "boolean", "boolean"),
)
_ROW = """
named_struct('id', id, 'region', concat('region ', id % 50),
  'note', concat('{note} ', id, repeat(' and so on', 3)), 'quantity', CAST(id % 1000 AS INT),
  'amount', id / 7, 'flag', id % 2 = 0)"""
_TYPE = "struct<id:bigint,region:string,note:string,quantity:int,amount:double,flag:boolean>"


class _Schemas:
    """The writer schemas: 1 keys, 2 values with that key, 3 values of the same, whole row a key."""

    def __init__(self, table: str) -> None:
        envelope = schemas.load("envelope")
        envelope["namespace"] = f"pgsluice.public.{table}"
        envelope["fields"][0]["type"][1]["fields"] = [
            {"name": name, "type": ["null", kind], "default": None, "pg_type": pg_type}
            for name, kind, pg_type, _ in COLUMNS
        ]
        key = [{"name": "id", "type": "long"}]
        whole = [{"name": name, "type": ["null", kind]} for name, kind, *_ in COLUMNS]
        base = {"type": "record", "name": "Key", "namespace": f"pgsluice.public.{table}"}
        self.by_id: dict[int, dict[str, Any]] = {
            1: {**base, "fields": key},
            2: envelope,
            3: {**base, "fields": whole},
        }

    def schema(self, schema_id: int) -> dict[str, Any]:
        return self.by_id[schema_id]


class Bench:
    """One table's topic, and what has been put into it.

    Args:
        spark: the session.
        bootstrap: the broker.
        folder: for tables and files; a fresh one.
        keyed: the table has a key.
    """

    def __init__(
        self, spark: SparkSession, bootstrap: str, folder: Path, *, keyed: bool = True
    ) -> None:
        self.spark = spark
        self.folder = folder
        self._keyed = keyed
        self._topic = f"bench.public.t{int(time.time() * 1000)}"
        self._name = self._topic.split(".")[2]
        self._schemas = _Schemas(self._name)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(self._topic, 1, 1)])[self._topic].result(30)
        self.settings = ConsumerSettings(
            kafka={"bootstrap.servers": bootstrap},
            registry_url="",
            warehouse=str(folder / "warehouse"),
            checkpoint="",
            subscriptions=("bench",),
            max_batch_records=None,
        )
        self._topics = Topics(self.settings)
        stopping = threading.Event()
        self.rebuild = Rebuild(self.settings, spark, "bench", self._schemas, self._topics, stopping)
        self.rebuild.open("journal")
        self._next = 0
        self._lsn = 0x1000
        self._markers = 0

    def put(self, rows: DataFrame) -> Marker:
        """Write records, given as op, id, note and old (a key change's), and make their marker."""
        self._lsn += 0x100
        lsn = f"{self._lsn >> 32:08X}/{self._lsn & 0xFFFFFFFF:08X}"
        value = _ROW.format(note="note")
        after = f"IF(op IN ('d', 't'), CAST(NULL AS {_TYPE}), {value})"
        before_id = "coalesce(old, IF(op = 'd', id, NULL))"
        if self._keyed:
            before = (
                f"IF({before_id} IS NULL, CAST(NULL AS {_TYPE}), CAST(named_struct('id',"
                f" {before_id}, 'region', NULL, 'note', NULL, 'quantity', NULL, 'amount', NULL,"
                f" 'flag', NULL) AS {_TYPE}))"
            )
        else:
            old_value = _ROW.format(note="note").replace(" id", " coalesce(old, id)")
            old_value = old_value.replace("(id", "(coalesce(old, id)")
            before = f"IF(op IN ('u', 'd'), {old_value}, CAST(NULL AS {_TYPE}))"
        envelope = f"""
        named_struct('before', {before}, 'after', {after},
          'source', named_struct('version', '0', 'connector', 'postgresql', 'name', 'g',
            'db', 'd', 'schema', 'public', 'table', '{self._name}', 'identity', 'd', 'ts_ms', 0L,
            'snapshot', IF(op = 't', 'first', 'false'), 'commit_lsn', {self._lsn}L,
            'txId', CAST(NULL AS BIGINT), 'origin', CAST(NULL AS STRING), 'lsn', {self._lsn}L,
            'seq', seq),
          'transaction', CAST(NULL AS struct<id:string,total_order:bigint,
            data_collection_order:bigint>), 'op', op, 'ts_ms', CAST(NULL AS BIGINT),
          'unchanged', CAST(array() AS ARRAY<STRING>))"""
        key = "named_struct('id', id)" if self._keyed else _ROW.format(note="note")
        headers = f"""
        filter(array(
          named_struct('key', 'commit_lsn', 'value', CAST('{lsn}' AS BINARY)),
          named_struct('key', 'lsn', 'value', CAST('{lsn}' AS BINARY)),
          named_struct('key', 'seq', 'value', CAST(CAST(seq AS STRING) AS BINARY)),
          named_struct('key', 'op', 'value', CAST(op AS BINARY)),
          named_struct('key', 'rekey', 'value', CAST(IF({self._keyed} AND op = 'c'
            AND old IS NOT NULL, 'new', NULL) AS BINARY))), h -> h.value IS NOT NULL)"""
        value_text = json.dumps(self._schemas.schema(2))
        key_text = json.dumps(self._schemas.schema(1 if self._keyed else 3))
        key_head = F.expr(f"X'000000000{1 if self._keyed else 3}'")
        records = rows.select(
            F.when(F.col("op") != "t", F.concat(key_head, to_avro(F.expr(key), key_text))).alias(
                "key"
            ),
            F.concat(F.expr("X'0000000002'"), to_avro(F.expr(envelope), value_text)).alias("value"),
            F.expr(headers).alias("headers"),
        )
        (
            records.write.format("kafka")
            .option("kafka.bootstrap.servers", self.settings.kafka["bootstrap.servers"])
            .option("kafka.compression.type", "lz4")
            .option("includeHeaders", "true")
            .option("topic", self._topic)
            .save()
        )
        end = self._topics.look([self._topic])[self._topic].latest[0]
        span = Range(0, self._next, end, self._next, end - self._next)
        self._next = end
        self._markers += 1
        return Marker(self._markers, self._lsn, None, {self._topic: (span,)})

    def begin(self) -> Marker:
        """The record with which a copy begins."""
        return self.put(self.rows("t", 0, 1))

    def rows(self, op: str, first: int, count: int, old: str = "NULL") -> DataFrame:
        """Changes of consecutive keys."""
        return self.spark.range(first, first + count).selectExpr(
            f"'{op}' AS op", "id", "id AS seq", f"CAST({old} AS BIGINT) AS old"
        )

    def take(self, *markers: Marker) -> float:
        """Apply a cut; how many seconds it took."""
        return timed(lambda: self.rebuild.take(Cut(markers)))

    def decode(self, *markers: Marker) -> float:
        """Read and decode a cut's records, and write nothing."""
        first, end = (
            markers[0].ranges[self._topic][0].first,
            markers[-1].ranges[self._topic][0].next,
        )
        spans = {self._topic: {0: (first, end)}}
        cores = self.spark.sparkContext.defaultParallelism
        frame = wire(read_offsets(self.spark, self.settings, spans, tasks=2 * cores))
        pieces = survey(frame)[self._topic].pieces
        columns = [ColumnPlan(name, name, pg, kind) for name, _, pg, kind in COLUMNS]
        key = KeyLayout(("id",)) if self._keyed else None
        decoded = changes(frame, pieces, columns, key, self._schemas)
        return timed(lambda: decoded.write.format("noop").mode("overwrite").save())

    @property
    def table(self) -> str:
        """The folder of the table."""
        return f"{self.settings.warehouse}/bench/public/{self._name}"

    def count(self) -> int:
        """How many rows the table has."""
        return self.spark.read.format("delta").load(self.table).count()

    def staged(self, rows: DataFrame, name: str) -> DataFrame:
        """The same rows as plain columns in Parquet files."""
        path = str(self.folder / name)
        value = F.expr(_ROW.format(note="note")).alias("v")
        rows.select("op", "id", value).select("op", "v.*").write.mode("overwrite").parquet(path)
        return self.spark.read.parquet(path)

    def copied(self, name: str) -> str:
        """A copy of the table for the plain operation."""
        path = str(self.folder / name)
        shutil.copytree(self.table, path)
        return path


def timed(work: Callable[[], object]) -> float:
    """How many seconds it takes."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def plain_merge(spark: SparkSession, path: str, staged: DataFrame) -> float:
    """One MERGE as Delta's documentation has it."""
    merge = (
        DeltaTable.forPath(spark, path)
        .alias("t")
        .merge(staged.alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.op = 'd'")
        .whenMatchedUpdate("s.op = 'u'", set={name: f"s.{name}" for name, *_ in COLUMNS})
        .whenNotMatchedInsert("s.op = 'c'", values={name: f"s.{name}" for name, *_ in COLUMNS})
    )
    return timed(merge.execute)


def report(name: str, rows: int, seconds: float, beside: str, plain: float) -> None:
    """One line."""
    print(
        f"{name:<34} {rows:>9,} rows {seconds:>7.1f} s {rows / seconds:>9,.0f}/s"
        f"   {beside} {plain:>6.1f} s   ratio {seconds / plain:.2f}",
        flush=True,
    )


def measure(
    spark: SparkSession, bootstrap: str, folder: Path, rows: int, *, mixed: bool = True
) -> None:
    """All measurements on one table of `rows` rows; those of mixed batches only if asked for."""
    print(f"a table of {rows:,} rows", flush=True)
    bench = Bench(spark, bootstrap, folder)
    copy = [bench.begin(), bench.put(bench.rows("r", 0, rows))]
    reading = bench.decode(*copy)
    report("copy", rows, bench.take(*copy), "read and decode", reading)
    assert bench.count() == rows
    few = max(rows // 20, 20)
    inserted = bench.rows("c", rows, few)
    plain = bench.copied("appended")
    staged = bench.staged(inserted, "inserts").drop("op")
    spent = timed(lambda: staged.write.format("delta").mode("append").save(plain))
    report("inserts", few, bench.take(bench.put(inserted)), "plain append", spent)
    updated = bench.rows("u", rows // 3, few)
    staged = bench.staged(updated, "updates")
    plain = bench.copied("merged")
    vectors = "'delta.enableDeletionVectors' = 'true'"
    spark.sql(f"ALTER TABLE delta.`{plain}` SET TBLPROPERTIES ({vectors})")
    spent = plain_merge(spark, plain, staged)
    report("updates of neighbours", few, bench.take(bench.put(updated)), "plain MERGE", spent)
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
        bench = Bench(spark, bootstrap, folder, keyed=keyed)
        bench.take(bench.begin(), bench.put(bench.rows("r", 0, rows)))
        change = bench.rows("c" if keyed else "u", rows, rows, old=f"id - {rows}")
        marker = bench.put(change)
        reading = bench.decode(marker)
        report(f"{rows:,} at once: {name}", rows, bench.take(marker), "decode", reading)
        assert bench.count() == rows


def measure_batches(spark: SparkSession, bootstrap: str, folder: Path) -> None:
    """Batches of two sizes, the median of three each, behind a first one that is for the JVM."""
    rows = 200_000
    bench = Bench(spark, bootstrap, folder)
    bench.take(bench.begin(), bench.put(bench.rows("r", 0, rows)))
    plain = bench.copied("plain")
    vectors = "'delta.enableDeletionVectors' = 'true'"
    spark.sql(f"ALTER TABLE delta.`{plain}` SET TBLPROPERTIES ({vectors})")
    for few in (2_000, 25_000):
        spent, beside = [], []
        for number in range(4):
            batch = bench.rows("c", rows * few + number * few, few)
            staged = bench.staged(batch, f"inserts{few}-{number}").drop("op")
            write = staged.write.format("delta").mode("append")
            beside.append(timed(partial(write.save, plain)))
            spent.append(bench.take(bench.put(batch)))
        report("batch: inserts", few, median(spent[1:]), "plain append", median(beside[1:]))
        spent, beside = [], []
        for number in range(4):
            batch = (
                bench.rows("c", 2 * rows * few + number * few, few * 6 // 10)
                .union(bench.rows("u", number * few, few * 3 // 10))
                .union(bench.rows("d", rows // 2 + number * few, few // 10))
            )
            staged = bench.staged(batch, f"mixed{few}-{number}")
            beside.append(plain_merge(spark, plain, staged))
            spent.append(bench.take(bench.put(batch)))
        report("batch: mixed", few, median(spent[1:]), "plain MERGE", median(beside[1:]))
    assert bench.count() == spark.read.format("delta").load(plain).count()


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


def run(rows: int) -> None:
    """Make the parts, measure, take them down."""
    with tempfile.TemporaryDirectory() as name, EmbeddedKafka() as kafka:
        folder = Path(name)
        with _session(folder) as spark:
            # The JVM compiles what is run often; the first, smaller round is for that.
            measure(spark, kafka.bootstrap_servers, folder / "few", rows // 10, mixed=False)
            measure(spark, kafka.bootstrap_servers, folder / "many", rows)
            measure_batches(spark, kafka.bootstrap_servers, folder / "batches")
            measure_bulk(spark, kafka.bootstrap_servers, folder, min(rows, 500_000))
