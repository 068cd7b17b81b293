"""Changes of a table's topic between two positions of the table, with marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_consumer.errors import TransientConsumerError
from spark_consumer.kafka.avro_values import decode
from spark_consumer.kafka.batch_profile import Piece, of_piece, survey
from spark_consumer.kafka.decode import read_offsets, row_type, wire
from spark_consumer.kafka.layout import KeyLayout, Layout, identity_layout, value_layout
from spark_consumer.kafka.position import Position
from spark_consumer.kafka.registry import Schemas
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.failures import as_error
from spark_consumer.spark.tuning import SMALL_QUERIES, is_small, tuned
from spark_consumer.verify.replay import Change
from spark_consumer.verify.text import Row, marks_sql

__all__ = ["DisturbedError", "Window", "read_window"]


class DisturbedError(TransientConsumerError):
    """The table was copied, truncated or altered while it was compared; a retry may succeed."""


class Window:
    """The changes of one table's topic in a range of offsets.

    Args:
        frame: Frame of partition, offset, op, key, old, row, unsent, xid, lsn, seq, commit_lsn;
            None if there are no changes.
        topic: Name of the topic, for errors.
        settings: Settings of the session for queries over the frame.
    """

    def __init__(
        self,
        frame: DataFrame | None,
        topic: str = "",
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._frame = frame
        self._topic = topic
        self._settings = settings

    def keys(self) -> set[Row]:
        """Return the keys that changes name.

        Raises:
            ConsumerError: a record cannot be read, or the topic cannot.
        """
        if self._frame is None:
            return set()
        both = self._frame.select(F.explode(F.array("key", "old")).alias("key"))
        rows = self._collected(both.where("key IS NOT NULL").distinct())
        return {tuple(row.key) for row in rows}

    def changes(self, after: Position | None = None, unseen: Iterable[int] = ()) -> list[Change]:
        """Return the changes in order.

        Args:
            after: Position of a table whose changes are omitted, except those of the transactions
                `unseen`; None for all changes.
            unseen: Low 32 bits of transaction IDs.

        Raises:
            ConsumerError: a record cannot be read, or the topic cannot.
        """
        if self._frame is None:
            return []
        frame = self._frame
        if after is not None:
            later = [
                f"(partition = {number} AND offset >= {offset})"
                for number, offset in after.next.items()
            ]
            known = ", ".join(map(str, after.next)) or "-1"
            wanted = " OR ".join([*later, f"partition NOT IN ({known})"])
            listed = ", ".join(str(xid & 0xFFFFFFFF) for xid in unseen)
            frame = frame.where(f"{wanted} OR xid IN ({listed})" if listed else wanted)
        rows = self._collected(frame)
        rows.sort(key=lambda row: (row.lsn, row.seq, row.offset))
        return [_change(row) for row in rows]

    def _collected(self, frame: DataFrame) -> list[Any]:
        try:
            with tuned(frame.sparkSession, self._settings):
                return frame.collect()
        except (PySparkException, Py4JError) as error:
            raise as_error(f"topic {self._topic}", error) from error


def _change(row: Any) -> Change:
    return Change(
        op=row.op,
        xid=row.xid,
        commit_lsn=row.commit_lsn,
        key=tuple(row.key),
        old=None if row.old is None else tuple(row.old),
        row=None if row.row is None else tuple(row.row),
        unsent=frozenset(row.unsent),
    )


def read_window(
    spark: SparkSession,
    settings: ConsumerSettings,
    schemas: Schemas,
    begin: Position,
    end: Position,
    columns: StructType,
    key: Sequence[str],
) -> Window:
    """Read the changes that brought a table from one position to another.

    Args:
        spark: Session to read Kafka with.
        settings: Settings with address and properties of the broker.
        schemas: Writer schemas by ID.
        begin: Position of the table.
        end: Later position of the table.
        columns: Columns of the table.
        key: Names of the key's columns; empty for a table without one.

    Raises:
        DisturbedError: the table was copied, truncated or altered in between.
        ConsumerError: the topic cannot be read.
    """
    if (begin.generation, begin.topic, begin.topic_id) != (
        end.generation,
        end.topic,
        end.topic_id,
    ):
        raise DisturbedError("it was copied again meanwhile")
    spans = {
        number: (begin.next.get(number, 0), offset)
        for number, offset in end.next.items()
        if offset > begin.next.get(number, 0)
    }
    if not spans:
        return Window(None)
    records = wire(read_offsets(spark, settings, {end.topic: spans}))
    few = is_small(sum(last - first for first, last in spans.values()))
    if few:
        records = records.coalesce(1)
    queries = SMALL_QUERIES if few else {}
    with tuned(spark, queries):
        profile = survey(records).get(end.topic)
    if profile is None:
        return Window(None)
    if any(one.truncate is not None for one in profile.partitions.values()):
        raise DisturbedError("it was truncated or copied again meanwhile")
    frames = [
        frame
        for piece in profile.pieces
        if piece.changes
        for frame in _decoded(spark, records, piece, schemas, columns, key)
    ]
    return Window(reduce(DataFrame.unionByName, frames) if frames else None, end.topic, queries)


def _decoded(
    spark: SparkSession,
    records: DataFrame,
    piece: Piece,
    schemas: Schemas,
    columns: StructType,
    key: Sequence[str],
) -> Iterator[DataFrame]:
    schema = schemas.schema(piece.value_id)
    layout = value_layout(schema)
    fields = {column.name: column.field for column in layout.columns}
    if set(fields) != set(columns.names):
        raise DisturbedError("its columns changed meanwhile")
    mine = records.where(
        of_piece(piece.key_id, piece.value_id)
        & (F.col("op") != "t")
        & ~((F.col("op") == "d") & F.col("rekey").eqNullSafe("old"))
    )
    key_schema = None
    if key:
        in_key = _identity(piece, schemas, layout, key)
        if not in_key.in_row and piece.key_id is not None:
            key_schema = schemas.schema(piece.key_id)
    mine = decode(mine, schema, key_schema)
    if key and key_schema is None:
        mine = mine.withColumn("key", F.expr("coalesce(e.after, e.before)"))
    sent = row_type(spark, schema)
    marked = _Marked(columns, fields, sent, key)
    moved = "(op = 'c' AND rekey <=> 'new')"
    if key:
        old = f"IF({moved}, {marked.array(key, 'e.before')}, NULL)"
        row = marked.array(columns.names, "e.after", keys="key")
        own = marked.array(key, "key")
    else:
        old = f"IF(op IN ('u', 'd') OR {moved}, {marked.array(columns.names, 'e.before')}, NULL)"
        row = marked.array(columns.names, "e.after", kept="e.before")
        own = "CAST(array() AS ARRAY<STRING>)"
    places = ", ".join(f"'{fields[name]}'" for name in columns.names)
    unsent = f"transform(e.unchanged, f -> array_position(array({places}), f) - 1)"
    yield mine.selectExpr(
        "partition",
        "offset",
        "lsn",
        "seq",
        "coalesce(e.source.txId, 0) AS xid",
        "e.source.commit_lsn AS commit_lsn",
        f"CASE WHEN {moved} THEN 'move' WHEN op = 'u' THEN 'set' WHEN op = 'd' THEN 'delete'"
        " ELSE 'put' END AS op",
        f"{own} AS key",
        f"{old} AS old",
        f"IF(op = 'd', NULL, {row}) AS row",
        f"IF(op = 'u' OR {moved}, {unsent}, CAST(array() AS ARRAY<BIGINT>)) AS unsent",
    )


def _identity(piece: Piece, schemas: Schemas, layout: Layout, key: Sequence[str]) -> KeyLayout:
    of_key = None if piece.key_id is None else schemas.schema(piece.key_id)
    found = identity_layout(schemas.schema(piece.value_id), of_key)
    names = {column.field: column.name for column in layout.columns}
    if found is None or {names.get(field) for field in found.fields} != set(key):
        raise DisturbedError("its replica identity changed meanwhile")
    return found


class _Marked:
    """SQL of the marks of a decoded row's columns."""

    def __init__(
        self, columns: StructType, fields: Mapping[str, str], sent: StructType, key: Sequence[str]
    ) -> None:
        self._columns = columns
        self._fields = fields
        self._sent = sent
        self._key = key

    def array(self, names: Sequence[str], side: str, *, keys: str = "", kept: str = "") -> str:
        """Return SQL of an array of marks.

        Args:
            names: Names of the columns.
            side: Struct that has them.
            keys: Struct that has the key's columns where `side` has NULL.
            kept: Struct that has the columns that were not sent.
        """
        fields = {self._fields[name]: self._columns[name] for name in names}
        values = (
            f"'{self._fields[name]}', {self._value(name, side, keys, kept)}" for name in names
        )
        whole = [self._fields[name] for name in self._key]
        return marks_sql(f"named_struct({', '.join(values)})", fields, whole)

    def _value(self, name: str, side: str, keys: str, kept: str) -> str:
        field, column = self._fields[name], self._columns[name]
        value = f"{side}.`{field}`"
        if keys and name in self._key:
            value = f"coalesce({value}, {keys}.`{field}`)"
        if kept:
            value = f"IF(array_contains(e.unchanged, '{field}'), {kept}.`{field}`, {value})"
        kind = column.dataType.simpleString()
        if self._sent[field].dataType.simpleString() != kind:
            value = f"CAST({value} AS {kind})"
        return value
