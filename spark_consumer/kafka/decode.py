"""Decoding of Kafka records to changes, in the JVM. No row passes through Python.

`wire` parses headers and wire format. Given the profile of a frame from
`spark_consumer.kafka.batch_profile`, `changes` makes the frame that `spark_consumer.fold` folds.

A change has these columns:

    pos     struct<lsn string, seq bigint, offset bigint>: its place; orders changes
    id      bigint: unique among the changes of its topic
    op      put (a whole row), set (columns of a row that is there), delete,
            move (a row that is there gets another key, and columns)
    k       struct: the key, in canonical form; keyed tables only
    f       struct: the key the row had before, of a move; keyed tables only
    v       struct: the row, a field per column of the table; null for delete
    b       struct: the whole row before; multisets only
    unsent  array<string>: fields of v that were not sent, so keep their value (set and move)

A key change arrives as a `d` with rekey=old and a `c` with rekey=new whose `before` carries the old
identity, perhaps in another partition. The second half has everything, so the first is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from schemas.headers import HEADERS
from spark_consumer.kafka.avro_values import AVRO_OPTIONS, decode
from spark_consumer.kafka.batch_profile import Piece, of_piece
from spark_consumer.kafka.layout import ColumnPlan, KeyLayout
from spark_consumer.kafka.registry import Schemas
from spark_consumer.settings import ConsumerSettings, source_options
from spark_consumer.values.keys import canonical

__all__ = [
    "RowTypes",
    "changes",
    "read_offsets",
    "source_table",
    "wire",
]

_PARTITIONS: Final = 1 << 16
_MOST_TYPES: Final = 1000
_ROW_FIELDS: Final = ("before", "after", "unchanged")


def read_offsets(
    spark: SparkSession,
    settings: ConsumerSettings,
    spans: Mapping[str, Mapping[int, tuple[int, int]]],
    *,
    tasks: int | None = None,
) -> DataFrame:
    """Return the committed records between offsets, as Spark's Kafka source gives them.

    Args:
        spark: Session of the frame.
        settings: Settings with address and properties of the broker.
        spans: First offset and the one after the last, by topic and partition.
        tasks: Minimum number of Spark partitions.
    """
    reader = spark.read.format("kafka").option("includeHeaders", "true")
    reader = reader.options(**source_options(settings))
    if tasks is not None:
        reader = reader.option("minPartitions", tasks)
    texts = [
        json.dumps(
            {
                topic: {str(number): span[side] for number, span in parts.items()}
                for topic, parts in spans.items()
            }
        )
        for side in (0, 1)
    ]
    assigned = {topic: sorted(parts) for topic, parts in spans.items()}
    return (
        reader.option("assign", json.dumps(assigned))
        .option("startingOffsets", texts[0])
        .option("endingOffsets", texts[1])
        .option("failOnDataLoss", "true")
        .load()
    )


_OPS: Final = [op for name, op in HEADERS["op"].values.items() if name != "MESSAGE"]
_HALVES: Final = list(HEADERS["rekey"].values.values())


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(f"'{text}'" for text in texts)


def _header(name: str) -> str:
    assert name in HEADERS, name
    # A lambda over the headers would be interpreted, for each record.
    place = f"CAST(array_position(headers.key, '{name}') AS INT) - 1"
    return f"CAST(get(headers.value, {place}) AS STRING)"


def _prefixed(column: str) -> tuple[Expr, Expr]:
    """Return schema id and Avro bytes of a column in Confluent's wire format; null for null.

    The id stays as it is there, four bytes: see `spark_consumer.kafka.batch_profile.schema_id`.
    """
    return F.expr(f"substring({column}, 2, 4)"), F.expr(f"substring({column}, 6)")


def wire(records: DataFrame) -> DataFrame:
    """Return the wire frame of records of tables' topics.

    Args:
        records: Frame of topic, partition, offset, key, value, headers.

    Returns:
        Frame of topic, partition, offset, key_id, key_body, value_id, value_body (null for a
        tombstone; IDs as from `schema_id`), lsn, seq, op, rekey, and fault: the defect of a
        malformed record, or null.
    """
    key_id, key_body = _prefixed("key")
    value_id, value_body = _prefixed("value")
    fault = F.expr(
        r"""
        CASE WHEN value IS NULL THEN NULL
             WHEN length(value) < 6 OR substring(value, 1, 1) <> X'00'
               THEN 'the value is not in the wire format (magic byte 0, schema id, Avro)'
             WHEN key IS NOT NULL AND (length(key) < 5 OR substring(key, 1, 1) <> X'00')
               THEN 'the key is not in the wire format (magic byte 0, schema id, Avro)'
             WHEN lsn IS NULL OR NOT lsn RLIKE '^[0-9A-F]{8}/[0-9A-F]{8}$'
               THEN 'header commit_lsn is missing or is not XXXXXXXX/XXXXXXXX'
             WHEN seq IS NULL THEN 'header seq is missing or is not a number'
             WHEN op IS NULL OR op NOT IN """
        f"({_quoted(_OPS)}) THEN 'header op is missing or is not one of {', '.join(_OPS)}'"
        f" WHEN rekey NOT IN ({_quoted(_HALVES)})"
        f" THEN 'header rekey is neither {' nor '.join(_HALVES)}' END"
    )
    return (
        records.withColumns(
            {
                "lsn": F.expr(_header("commit_lsn")),
                "seq": F.expr(f"try_cast({_header('seq')} AS BIGINT)"),
                "op": F.expr(_header("op")),
                "rekey": F.expr(_header("rekey")),
                "key_id": key_id,
                "key_body": key_body,
                "value_id": value_id,
                "value_body": value_body,
            }
        )
        .withColumn("fault", fault)
        .drop("key", "value", "headers", "timestamp", "timestampType")
    )


def row_type(spark: SparkSession, value_schema: Mapping[str, Any]) -> StructType:
    """Return the type of a table's rows, decoded and as tables store them, without a job."""
    empty = spark.createDataFrame([], "value_body binary")
    envelope = decode(empty, value_schema).schema["e"].dataType
    assert isinstance(envelope, StructType)
    after = envelope["after"].dataType
    assert isinstance(after, StructType)
    return after


class RowTypes:
    """Types of tables' rows, in a bounded cache.

    Args:
        spark: Any session.
        schemas: Writer schemas by ID.
    """

    def __init__(self, spark: SparkSession, schemas: Schemas) -> None:
        self._spark = spark
        self._schemas = schemas
        self._found: dict[int, StructType] = {}

    def of(self, value_id: int) -> StructType:
        """Return the type of the rows in values of a schema."""
        if value_id not in self._found:
            if len(self._found) >= _MOST_TYPES:
                self._found.clear()
            self._found[value_id] = row_type(self._spark, self._schemas.schema(value_id))
        return self._found[value_id]


def source_table(records: DataFrame, value_schema: str) -> tuple[str, str]:
    """Return the schema and table that a topic's records name in ``source``, by the first one.

    Args:
        records: Wire frame of records of that value schema, at least one.
        value_schema: Value schema as JSON text.
    """
    envelope = from_avro(F.col("value_body"), value_schema, AVRO_OPTIONS)
    row = (
        records.select(envelope.getField("source").alias("source"))
        .select(F.col("source.schema").alias("schema"), F.col("source.table").alias("table"))
        .first()
    )
    assert row is not None
    return row["schema"], row["table"]


def changes(
    records: DataFrame,
    pieces: Sequence[Piece],
    columns: Sequence[ColumnPlan],
    key: KeyLayout | None,
    schemas: Schemas,
    more: Mapping[str, str] | None = None,
) -> DataFrame:
    """Decode records of one topic into changes; see the module's docstring for the frame.

    Args:
        records: Wire frame of that topic.
        pieces: Schemas that occur; see `TopicProfile.pieces`. All have the same columns.
        columns: Columns of those schemas, as the Delta table has them.
        key: Key of the table; None for a multiset.
        schemas: Writer schemas by ID.
        more: Further columns: SQL over the wire frame, by name.
    """
    wanted = records.where(
        "value_id IS NOT NULL AND op <> 't' AND NOT (op = 'd' AND rekey <=> 'old')"
    )
    frames = [
        _piece(wanted, piece, columns, key, schemas, more or {})
        for piece in pieces
        if piece.changes > 0
    ]
    return reduce(DataFrame.unionByName, frames)


def _piece(
    records: DataFrame,
    piece: Piece,
    columns: Sequence[ColumnPlan],
    key: KeyLayout | None,
    schemas: Schemas,
    more: Mapping[str, str],
) -> DataFrame:
    value_schema = schemas.schema(piece.value_id)
    key_schema = None
    if key is not None and not key.in_row:
        assert piece.key_id is not None
        key_schema = schemas.schema(piece.key_id)
    mine = records.where(of_piece(piece.key_id, piece.value_id))
    decoded = decode(mine, value_schema, key_schema, reader=_needed(value_schema))
    sent = row_type(records.sparkSession, value_schema)
    keys = set() if key_schema is None or key is None else set(key.fields)

    def value(column: ColumnPlan, side: str) -> str:
        sql = f"e.{side}.`{column.field}`"
        if side == "after" and column.field in keys:
            sql = f"coalesce({sql}, key.`{column.field}`)"
        elif side == "after" and key is None:
            old = f"e.before.`{column.field}`"
            sql = f"IF(array_contains(e.unchanged, '{column.field}'), {old}, {sql})"
        if sent[column.field].dataType.simpleString() != column.spark_type:
            sql = f"CAST({sql} AS {column.spark_type})"
        return sql

    def struct(parts: Iterable[tuple[str, str]]) -> str:
        return "named_struct(" + ", ".join(f"'{name}', {sql}" for name, sql in parts) + ")"

    row = struct((column.field, value(column, "after")) for column in columns)
    selected = {
        "pos": "struct(lsn, seq, offset)",
        "id": f"offset * {_PARTITIONS}L + partition",
        "op": "CASE WHEN op = 'u' THEN 'set' WHEN op = 'd' THEN 'delete'"
        " WHEN rekey <=> 'new' THEN 'move' ELSE 'put' END",
        "v": f"IF(op = 'd', NULL, {row})",
        "unsent": "IF(op IN ('c', 'r') AND rekey IS NULL,"
        " CAST(array() AS ARRAY<STRING>), e.unchanged)",
    }
    if key is None:
        selected["b"] = struct((column.field, value(column, "before")) for column in columns)
    else:
        by_field = {column.field: column for column in columns}
        own = "coalesce(e.after.`{0}`, e.before.`{0}`)" if key.in_row else "key.`{0}`"
        selected["k"] = struct((f, _canonical(own.format(f), by_field[f])) for f in key.fields)
        selected["f"] = struct(
            (f, _canonical(value(by_field[f], "before"), by_field[f])) for f in key.fields
        )
        selected["f"] = f"IF(rekey <=> 'new', {selected['f']}, NULL)"
    every = {**selected, **more}
    return decoded.select(*(F.expr(sql).alias(name) for name, sql in every.items()))


def _needed(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reader's schema of the envelope without the metadata, which decodes faster."""
    fields = [field for field in envelope["fields"] if field["name"] in _ROW_FIELDS]
    return {**envelope, "fields": fields}


def _canonical(sql: str, column: ColumnPlan) -> str:
    return canonical(
        f"CAST({sql} AS {column.spark_type})", column.spark_type, column.pg_type, key=True
    )
