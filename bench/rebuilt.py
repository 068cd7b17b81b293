"""Tables' topics as Spark writes them, with the markers, and the job that takes them.

So millions of rows take no time to make; `spark_consumer.job.rebuild.Rebuild` takes the markers as
it does in the job.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

import schemas
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.job.marker_batches import MarkerBatch
from spark_consumer.job.rebuild import Rebuild
from spark_consumer.kafka.batch_profile import survey
from spark_consumer.kafka.decode import changes, read_offsets, wire
from spark_consumer.kafka.layout import ColumnPlan, KeyLayout
from spark_consumer.kafka.markers import Marker, Range
from spark_consumer.kafka.topics import Topics
from spark_consumer.settings import ConsumerSettings

__all__ = ["Bench", "Job", "plain_merge", "report", "timed"]

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
    """The writer schemas: three of each table, of its keys, values, and whole rows as keys."""

    def __init__(self) -> None:
        self._by_id: dict[int, dict[str, Any]] = {}

    def add(self, table: str) -> int:
        """Make a table's schemas; the id of the first."""
        envelope = schemas.load("envelope")
        envelope["namespace"] = f"pgsluice.public.{table}"
        envelope["fields"][0]["type"][1]["fields"] = [
            {"name": name, "type": ["null", kind], "default": None, "pg_type": pg_type}
            for name, kind, pg_type, _ in COLUMNS
        ]
        key = [{"name": "id", "type": "long"}]
        whole = [{"name": name, "type": ["null", kind]} for name, kind, *_ in COLUMNS]
        base = {"type": "record", "name": "Key", "namespace": f"pgsluice.public.{table}"}
        first = len(self._by_id) + 1
        made = ({**base, "fields": key}, envelope, {**base, "fields": whole})
        self._by_id |= {first + number: schema for number, schema in enumerate(made)}
        return first

    def schema(self, schema_id: int) -> dict[str, Any]:
        """A schema by its id."""
        return self._by_id[schema_id]


class Job:
    """The job, and the markers that it is given.

    Args:
        spark: the session.
        bootstrap: the broker.
        folder: for tables and files; a fresh one.
    """

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.schemas = _Schemas()
        self.settings = ConsumerSettings(
            kafka={"bootstrap.servers": bootstrap},
            registry_url="",
            warehouse=str(folder / "warehouse"),
            checkpoint="",
            subscriptions=("bench",),
            max_batch_records=1 << 40,
        )
        self.topics = Topics(self.settings)
        stopping = threading.Event()
        self.rebuild = Rebuild(
            self.settings, spark, DeltaFormat(), "bench", self.schemas, self.topics, stopping
        )
        self.rebuild.open("markers")
        self._lsn = 0x1000
        self._markers = 0

    def lsn(self) -> int:
        """The next transaction's."""
        self._lsn += 0x100
        return self._lsn

    def marker(self, ranges: dict[str, tuple[Range, ...]]) -> Marker:
        """The marker of a transaction that has just been written."""
        self._markers += 1
        return Marker(self._markers, self._lsn, None, ranges)

    def take(self, *markers: Marker) -> float:
        """Apply a cut; how many seconds it took."""
        return timed(lambda: self.rebuild.apply(MarkerBatch(markers)))


class Bench:
    """One table's topic, and what has been put into it.

    Args:
        job: what the table belongs to.
        keyed: the table has a key.
        name: the table's; one that no other topic of the broker has.
    """

    def __init__(self, job: Job, *, keyed: bool = True, name: str | None = None) -> None:
        self.job = job
        self.spark = job.spark
        self.folder = job.folder
        self.settings = job.settings
        self._keyed = keyed
        self.name = name or f"t{int(time.time() * 1000)}"
        self._topic = f"bench.public.{self.name}"
        self._schemas = job.schemas
        self._first_id = job.schemas.add(self.name)
        admin = AdminClient({"bootstrap.servers": self.settings.kafka["bootstrap.servers"]})
        admin.create_topics([NewTopic(self._topic, 1, 1)])[self._topic].result(30)
        self._topics = job.topics
        self._next = 0

    def put(self, rows: DataFrame) -> Marker:
        """Write records, given as op, id, note and old (a key change's), and make their marker."""
        self.write(self.records(rows))
        return self.written()

    def records(self, rows: DataFrame) -> DataFrame:
        """The records of one transaction, as Spark writes them to Kafka; `rows` as in `put`."""
        number = self.job.lsn()
        lsn = f"{number >> 32:08X}/{number & 0xFFFFFFFF:08X}"
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
            'db', 'd', 'schema', 'public', 'table', '{self.name}', 'identity', 'd', 'ts_ms', 0L,
            'snapshot', IF(op = 't', 'first', 'false'), 'commit_lsn', {number}L,
            'txId', CAST(NULL AS BIGINT), 'origin', CAST(NULL AS STRING), 'lsn', {number}L,
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
        value_id = self._first_id + 1
        key_id = self._first_id + (0 if self._keyed else 2)
        value_text = json.dumps(self._schemas.schema(value_id))
        key_text = json.dumps(self._schemas.schema(key_id))
        value_head = F.expr(f"X'00{value_id:08X}'")
        key_head = F.expr(f"X'00{key_id:08X}'")
        return rows.select(
            F.lit(self._topic).alias("topic"),
            F.when(F.col("op") != "t", F.concat(key_head, to_avro(F.expr(key), key_text))).alias(
                "key"
            ),
            F.concat(value_head, to_avro(F.expr(envelope), value_text)).alias("value"),
            F.expr(headers).alias("headers"),
        )

    def write(self, records: DataFrame) -> None:
        """Write what `records` has given, of this table and of others."""
        (
            records.write.format("kafka")
            .option("kafka.bootstrap.servers", self.settings.kafka["bootstrap.servers"])
            .option("kafka.compression.type", "lz4")
            .option("includeHeaders", "true")
            .save()
        )

    def written(self) -> Marker:
        """The marker of what has come to the topic since the last one."""
        end = self._topics.describe([self._topic])[self._topic].latest[0]
        span = Range(0, self._next, end, self._next, end - self._next)
        self._next = end
        return self.job.marker({self._topic: (span,)})

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
        return self.job.take(*markers)

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
        return f"{self.settings.warehouse}/bench/public/{self.name}"

    def count(self) -> int:
        """How many rows the table has."""
        return self.spark.read.format("delta").load(self.table).count()

    def plain(self, rows: DataFrame) -> DataFrame:
        """The rows of changes, as plain columns."""
        return rows.select(F.expr(_ROW.format(note="note")).alias("v")).select("v.*")

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


def report(
    name: str, rows: int, seconds: float, beside: str, plain: float, reading: float = 0.0
) -> None:
    """One line.

    Args:
        name: what was measured.
        rows: how many.
        seconds: it took.
        beside: what stands beside it.
        plain: the seconds that that took.
        reading: the seconds that it takes to read and decode the records, which `plain` had in
            Parquet files.
    """
    whole = f"   with reading {reading:.2f} s: {seconds / (plain + reading):.2f}" if reading else ""
    print(
        f"{name:<34} {rows:>9,} rows {seconds:>7.2f} s {rows / seconds:>9,.0f}/s"
        f"   {beside} {plain:>6.2f} s   ratio {seconds / plain:.2f}{whole}",
        flush=True,
    )
