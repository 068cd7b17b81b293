"""From Kafka records to changes: one stream over all topics of a subscription, decoded in the JVM.

`wire` cuts headers and wire format, `survey` says on the driver what a batch holds, `changes` makes
the frame that `spark_consumer.collapse` folds. No row passes through Python.

A change has these columns:

    pos     struct<lsn string, seq bigint, offset bigint>: its place; orders changes
    op      put (a whole row), set (columns of a row that is there), delete,
            move (a row that is there gets another key, and columns)
    k       struct: the key, in canonical form; keyed tables only
    f       struct: the key the row had before, of a move; keyed tables only
    v       struct: the row, a field per column of the table; null for delete
    b       struct: the whole row before; multisets only
    unsent  array<string>: fields of v that were not sent, so keep their value (set and move)

A key change arrives as a `d` with rekey=old and a `c` with rekey=new whose `before` carries the old
identity. The second half says everything, so the first is dropped and a batch may end between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from spark_consumer.config import ConsumerSettings, java_properties
from spark_consumer.errors import ContractError
from spark_consumer.layout import KeyLayout, canonical
from spark_consumer.names import topic_pattern
from spark_consumer.registry import Schemas

__all__ = [
    "AVRO_OPTIONS",
    "ColumnPlan",
    "Piece",
    "Survey",
    "changes",
    "check",
    "read_stream",
    "source_table",
    "survey",
    "wire",
]

# CORRECTED: PostgreSQL's calendar is proleptic Gregorian, as Spark's.
AVRO_OPTIONS: Final = {"mode": "FAILFAST", "datetimeRebaseMode": "CORRECTED"}


def read_stream(spark: SparkSession, settings: ConsumerSettings, subscription: str) -> DataFrame:
    """The stream of a subscription's records, as Spark's Kafka source gives them, with headers.

    It begins at the topics' first records and reads what is committed; Spark's checkpoint has the
    offsets, so there is no consumer group.
    """
    reader = (
        spark.readStream.format("kafka")
        .option("subscribePattern", topic_pattern(settings, subscription))
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
    )
    for key, value in java_properties(settings).items():
        reader = reader.option(f"kafka.{key}", value)
    reader = reader.option("kafka.isolation.level", "read_committed")
    if settings.max_records_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(settings.max_records_per_batch))
    return reader.load()


def _header(name: str) -> Expr:
    value = f"get(filter(headers, h -> h.key = '{name}'), 0).value"
    return F.expr(f"CAST({value} AS STRING)")


def _prefixed(column: str) -> tuple[Expr, Expr]:
    """Schema id and Avro bytes of a column in Confluent's wire format; null where it is null."""
    number = F.expr(f"CAST(conv(hex(substring({column}, 2, 4)), 16, 10) AS BIGINT)")
    return number, F.expr(f"substring({column}, 6)")


def wire(records: DataFrame, markers: str) -> DataFrame:
    """Cut records into what the job works with.

    Args:
        records: topic, partition, offset, key, value, headers.
        markers: the topic of the markers; its records need no headers.

    Returns:
        topic, partition, offset, key_id, key_body, value_id, value_body (null for a tombstone),
        lsn, seq, op, rekey, and fault: what is wrong with the record's form, or null.
    """
    key_id, key_body = _prefixed("key")
    value_id, value_body = _prefixed("value")
    fault = F.expr(
        rf"""
        CASE WHEN value IS NULL THEN NULL
             WHEN length(value) < 6 OR substring(value, 1, 1) <> X'00'
               THEN 'the value is not in the wire format (magic byte 0, schema id, Avro)'
             WHEN key IS NOT NULL AND (length(key) < 5 OR substring(key, 1, 1) <> X'00')
               THEN 'the key is not in the wire format (magic byte 0, schema id, Avro)'
             WHEN topic = '{markers}' THEN NULL
             WHEN lsn IS NULL OR NOT lsn RLIKE '^[0-9A-F]{{8}}/[0-9A-F]{{8}}$'
               THEN 'header commit_lsn is missing or is not XXXXXXXX/XXXXXXXX'
             WHEN seq IS NULL THEN 'header seq is missing or is not a number'
             WHEN op IS NULL OR op NOT IN ('c', 'u', 'd', 't', 'r')
               THEN 'header op is missing or is not one of c, u, d, t, r'
             WHEN rekey NOT IN ('old', 'new') THEN 'header rekey is neither old nor new'
        END"""
    )
    return (
        records.withColumns(
            {
                "lsn": _header("commit_lsn"),
                "seq": F.expr(
                    "try_cast(CAST(get(filter(headers, h -> h.key = 'seq'), 0).value AS STRING)"
                    " AS BIGINT)"
                ),
                "op": _header("op"),
                "rekey": _header("rekey"),
                "key_id": key_id,
                "key_body": key_body,
                "value_id": value_id,
                "value_body": value_body,
            }
        )
        .withColumn("fault", fault)
        .drop("key", "value", "headers", "timestamp", "timestampType")
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one topic that have the same two schemas.

    Attributes:
        key_id: Schema id of the keys; None where there is no key.
        value_id: Schema id of the values.
        changes: Records that are not truncates.
        removals: Of these, the ones that need an old row: u, d, and the new half of a rekey.
        moves: Of these, the new halves of a rekey.
    """

    key_id: int | None
    value_id: int
    changes: int
    removals: int
    moves: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What a batch holds of one topic partition.

    Attributes:
        first: First offset.
        last: Last offset, tombstones included.
        records: Number of records, tombstones left out.
        bytes: Of the Avro bodies of all keys and values.
        truncate: Offset of the last `t`, or None.
        position: (commit_lsn as in headers, seq) of the last record, or None.
        pieces: By schema ids; tombstones left out.
    """

    topic: str
    partition: int
    first: int
    last: int
    records: int
    bytes: int
    truncate: int | None
    position: tuple[str, int] | None
    pieces: tuple[Piece, ...]


def survey(records: DataFrame) -> list[Survey]:
    """Say what a wire frame holds, by topic partition, in the order of their names.

    Raises:
        ContractError: a record whose form is at fault; names topic, partition and offset.
    """
    is_change = F.expr("value_id IS NOT NULL AND op <> 't'")
    is_move = F.expr("value_id IS NOT NULL AND op = 'c' AND rekey <=> 'new'")
    rows = (
        records.groupBy("topic", "partition", "key_id", "value_id")
        .agg(
            F.count("*").alias("records"),
            F.sum(F.expr("coalesce(length(key_body), 0) + coalesce(length(value_body), 0)")).alias(
                "bytes"
            ),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count_if(is_change).alias("changes"),
            F.count_if(F.expr("value_id IS NOT NULL AND op IN ('u', 'd')") | is_move).alias(
                "removals"
            ),
            F.count_if(is_move).alias("moves"),
            F.max(F.expr("CASE WHEN op = 't' THEN offset END")).alias("truncate"),
            F.max(F.expr("CASE WHEN value_id IS NOT NULL THEN struct(offset, lsn, seq) END")).alias(
                "position"
            ),
            F.min(F.expr("CASE WHEN fault IS NOT NULL THEN struct(offset, fault) END")).alias(
                "fault"
            ),
        )
        .collect()
    )
    by_partition: dict[tuple[str, int], list[Any]] = {}
    for row in rows:
        if row.fault is not None:
            raise ContractError(
                f"topic {row.topic}, partition {row.partition}, offset {row.fault.offset}:"
                f" {row.fault.fault}",
                hint="is the topic written by something else than the gateway?",
            )
        by_partition.setdefault((row.topic, row.partition), []).append(row)
    return [_survey(*place, by_partition[place]) for place in sorted(by_partition)]


def _survey(topic: str, partition: int, rows: Sequence[Any]) -> Survey:
    valued = [row for row in rows if row.value_id is not None]
    last = max((row.position for row in valued if row.position is not None), default=None)
    return Survey(
        topic=topic,
        partition=partition,
        first=min(row["first"] for row in rows),
        last=max(row["last"] for row in rows),
        records=sum(row.records for row in valued),
        bytes=sum(row.bytes for row in rows),
        truncate=max((row.truncate for row in valued if row.truncate is not None), default=None),
        position=None if last is None or last.lsn is None else (last.lsn, last.seq),
        pieces=tuple(
            Piece(row.key_id, row.value_id, row.changes, row.removals, row.moves) for row in valued
        ),
    )


def check(surveyed: Iterable[Survey], schemas: Schemas) -> None:
    """Look up every schema id of a batch.

    Raises:
        ContractError: an id that the registry does not have; names the topic and where it begins.
        TransientConsumerError: the registry does not answer.
    """
    for found in surveyed:
        for piece in found.pieces:
            for schema_id in (piece.key_id, piece.value_id):
                if schema_id is not None:
                    try:
                        schemas.schema(schema_id)
                    except ContractError as error:
                        raise ContractError(
                            f"topic {found.topic}, partition {found.partition}, offsets"
                            f" {found.first} to {found.last}: {error.message}",
                            hint=error.hint,
                        ) from error


def source_table(records: DataFrame, value_schema: str) -> tuple[str, str]:
    """Which schema and table a topic's records name in ``source``: the first one decides.

    Args:
        records: wire frame of records of that value schema, at least one.
        value_schema: as JSON text.
    """
    envelope = from_avro(F.col("value_body"), value_schema, AVRO_OPTIONS)
    row = (
        records.select(envelope.getField("source").alias("source"))
        .select(F.col("source.schema").alias("schema"), F.col("source.table").alias("table"))
        .first()
    )
    assert row is not None
    return row["schema"], row["table"]


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A column of the Delta table and how the frames know it.

    Attributes:
        field: Avro field.
        name: PostgreSQL's name, which is the Delta column's.
        pg_type: PostgreSQL's type.
        spark_type: Of the Delta column, as ``simpleString`` writes it.
    """

    field: str
    name: str
    pg_type: str
    spark_type: str


def changes(
    records: DataFrame,
    pieces: Sequence[Piece],
    columns: Sequence[ColumnPlan],
    key: KeyLayout | None,
    schemas: Mapping[int, str],
) -> DataFrame:
    """Decode records of one topic into changes; see the module's docstring for the frame.

    Args:
        records: wire frame of that topic.
        pieces: the schemas that occur; see `Survey.pieces`.
        columns: of the Delta table, all of them; those that a writer schema does not have are
            NULL in a put and unsent otherwise.
        key: None for a multiset.
        schemas: by id, as JSON text.
    """
    wanted = records.where(
        "value_id IS NOT NULL AND op <> 't' AND NOT (op = 'd' AND rekey <=> 'old')"
    )
    frames = [_piece(wanted, piece, columns, key, schemas) for piece in pieces if piece.changes > 0]
    return reduce(DataFrame.unionByName, frames)


def _piece(
    records: DataFrame,
    piece: Piece,
    columns: Sequence[ColumnPlan],
    key: KeyLayout | None,
    schemas: Mapping[int, str],
) -> DataFrame:
    has_key = F.col("key_id").isNull() if piece.key_id is None else F.col("key_id") == piece.key_id
    body = {"e": from_avro(F.col("value_body"), schemas[piece.value_id], AVRO_OPTIONS)}
    if key is not None:
        assert piece.key_id is not None
        body["key"] = from_avro(F.col("key_body"), schemas[piece.key_id], AVRO_OPTIONS)
    decoded = records.where((F.col("value_id") == piece.value_id) & has_key).withColumns(body)
    envelope = decoded.schema["e"].dataType
    assert isinstance(envelope, StructType)
    after = envelope["after"].dataType
    assert isinstance(after, StructType)
    sent = set(after.fieldNames())
    keys = set(key.fields) if key is not None else set()

    def value(column: ColumnPlan, side: str) -> str:
        if column.field not in sent:
            return f"CAST(NULL AS {column.spark_type})"
        sql = f"e.{side}.`{column.field}`"
        if side == "after" and column.field in keys:
            sql = f"coalesce({sql}, key.`{column.field}`)"
        elif side == "after" and key is None:
            old = f"e.before.`{column.field}`"
            sql = f"IF(array_contains(e.unchanged, '{column.field}'), {old}, {sql})"
        if after[column.field].dataType.simpleString() != column.spark_type:
            sql = f"CAST({sql} AS {column.spark_type})"
        return sql

    def struct(parts: Iterable[tuple[str, str]]) -> str:
        return "named_struct(" + ", ".join(f"'{name}', {sql}" for name, sql in parts) + ")"

    missing = [column.field for column in columns if column.field not in sent]
    listed = "array(" + ", ".join(f"'{field}'" for field in missing) + ")"
    unsent = f"concat(e.unchanged, {listed})" if missing else "e.unchanged"
    row = struct((column.field, value(column, "after")) for column in columns)
    selected = {
        "pos": "struct(lsn, seq, offset)",
        "op": "CASE WHEN op = 'u' THEN 'set' WHEN op = 'd' THEN 'delete'"
        " WHEN rekey <=> 'new' THEN 'move' ELSE 'put' END",
        "v": f"IF(op = 'd', NULL, {row})",
        "unsent": "IF(op IN ('c', 'r') AND rekey IS NULL,"
        f" CAST(array() AS ARRAY<STRING>), {unsent})",
    }
    if key is None:
        selected["b"] = struct((column.field, value(column, "before")) for column in columns)
    else:
        by_field = {column.field: column for column in columns}
        selected["k"] = struct((f, _canonical(f"key.`{f}`", by_field[f])) for f in key.fields)
        selected["f"] = struct(
            (f, _canonical(value(by_field[f], "before"), by_field[f])) for f in key.fields
        )
        selected["f"] = f"IF(rekey <=> 'new', {selected['f']}, NULL)"
    return decoded.select(*(F.expr(sql).alias(name) for name, sql in selected.items()))


def _canonical(sql: str, column: ColumnPlan) -> str:
    return canonical(
        f"CAST({sql} AS {column.spark_type})", column.spark_type, column.pg_type, key=True
    )
