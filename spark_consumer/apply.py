"""Apply a micro-batch to the Delta tables: one commit per touched table, idempotent.

Invariant: a table's commit carries the Kafka offset that it completes (`spark_consumer.tables`),
and changes at or before a table's offset are dropped before anything else is done with them. So it
does not matter where a crash fell, whether Spark repeats a batch or a new checkpoint begins at the
topics' first records: each change takes effect once, on the state it was meant for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from spark_consumer.collapse import fold_keyed, fold_moves, fold_multiset
from spark_consumer.decode import (
    AVRO_OPTIONS,
    ColumnPlan,
    Piece,
    Survey,
    changes,
    source_table,
    survey,
)
from spark_consumer.errors import ContractError
from spark_consumer.layout import KeyLayout, Layout, canonical, key_layout, value_layout
from spark_consumer.names import quoted, table_path
from spark_consumer.registry import Schemas
from spark_consumer.tables import Commit, Table

__all__ = ["Applied", "Applier"]


@dataclass(frozen=True, slots=True)
class Applied:
    """A table that a batch has brought up to date.

    Attributes:
        table: ``schema.table`` in the source.
        version: Of the Delta table, now.
    """

    table: str
    version: int


class Applier:
    """Applies the batches of one subscription. Not to be used by two threads at once.

    Args:
        spark: any session of the application; a session of its own is derived from it.
        warehouse: folder of the tables.
        subscription: name of the subscription.
        schemas: writer schemas by id.
    """

    def __init__(
        self, spark: SparkSession, warehouse: str, subscription: str, schemas: Schemas
    ) -> None:
        self._spark = spark.newSession()
        self._warehouse = warehouse
        self._subscription = subscription
        self._schemas = schemas
        self._tables: dict[str, tuple[str, Table]] = {}
        self._written: dict[int, StructType] = {}

    def apply(self, records: DataFrame, found: Survey) -> Applied | None:
        """Bring one table up to date with its topic's records.

        Args:
            records: wire frame of the batch, cached; other topics' records are ignored.
            found: what it holds of the topic.

        Returns:
            None when the batch holds nothing but tombstones of it.

        Raises:
            ContractError: the records cannot be what the contract says.
            TableError: the Delta table cannot take them.
        """
        if not found.pieces:
            return None
        mine = records.where((F.col("topic") == found.topic) & (F.col("value_id").isNotNull()))
        name, table = self._table(mine, found)
        columns = self._prepare(table, found)
        start = table.applied(found.topic, found.partition)
        truncated = found.truncate is not None and found.truncate > start
        if truncated:
            assert found.truncate is not None
            start = found.truncate
        left: Survey | None = found
        if start >= found.first:
            mine = mine.where(F.col("offset") > start)
            left = next(iter(survey(mine)), None) if start < found.last else None
        epochs = _epochs(mine, left, self._schemas) if left is not None else []
        if truncated and not epochs:
            self._empty(table, columns, found)
        for epoch in epochs:
            self._apply_epoch(table, columns, mine, epoch, found, empty=truncated)
            truncated = False
        return Applied(name, table.version())

    def _table(self, mine: DataFrame, found: Survey) -> tuple[str, Table]:
        if found.topic not in self._tables:
            value_id = found.pieces[0].value_id
            schema, table = source_table(
                mine.where(F.col("value_id") == value_id), self._json(value_id)
            )
            path = table_path(self._warehouse, self._subscription, schema, table)
            name = f"{schema}.{table}"
            label = f"subscription {self._subscription}, table {name}"
            self._tables[found.topic] = (name, Table(self._spark, path, label))
        return self._tables[found.topic]

    def _prepare(self, table: Table, found: Survey) -> list[ColumnPlan]:
        """Let the table have all columns of all writer schemas, in the order of their ids."""
        plans: dict[str, ColumnPlan] = {}
        for value_id in sorted({piece.value_id for piece in found.pieces}):
            layout = value_layout(self._schemas.schema(value_id))
            for plan in table.prepare(layout, self._after(value_id, layout)):
                sent = plan.field in layout
                if sent or plan.name not in plans:
                    plans[plan.name] = plan
        # The table's own order, which the last call has given.
        return [
            ColumnPlan(p.field, p.name, p.pg_type, final.dataType.simpleString())
            for final in table.columns()
            for p in [plans[final.name]]
        ]

    def _after(self, value_id: int, layout: Layout) -> StructType:
        """The row's type as Spark decodes it; no job is run."""
        if value_id not in self._written:
            empty = self._spark.createDataFrame([], "v binary")
            decoded = empty.select(from_avro("v", self._json(value_id), AVRO_OPTIONS).alias("e"))
            envelope = decoded.schema["e"].dataType
            assert isinstance(envelope, StructType)
            after = envelope["after"].dataType
            assert isinstance(after, StructType)
            self._written[value_id] = after
        return self._written[value_id]

    def _json(self, schema_id: int) -> str:
        return json.dumps(self._schemas.schema(schema_id))

    def _commit(self, found: Survey, offset: int) -> Commit:
        metadata = {
            "pgsluice": 1,
            "subscription": self._subscription,
            "offsets": {found.topic: {str(found.partition): offset}},
        }
        if found.position is not None and offset == found.last:
            metadata["commit_lsn"], metadata["seq"] = found.position
        return Commit(found.topic, found.partition, offset, metadata)

    def _empty(self, table: Table, columns: Sequence[ColumnPlan], found: Survey) -> None:
        none = self._spark.createDataFrame([], table.delta().toDF().schema)
        table.write(none, self._commit(found, found.last), overwrite=True)

    def _apply_epoch(
        self,
        table: Table,
        columns: Sequence[ColumnPlan],
        mine: DataFrame,
        epoch: Epoch,
        found: Survey,
        *,
        empty: bool,
    ) -> None:
        schemas = {
            schema_id: self._json(schema_id)
            for piece in epoch.pieces
            for schema_id in (piece.key_id, piece.value_id)
            if schema_id is not None
        }
        inside = mine.where(F.col("offset").between(epoch.first, epoch.last))
        changed = changes(inside, epoch.pieces, columns, epoch.key, schemas)
        commit = self._commit(found, epoch.last)
        if epoch.key is None:
            _apply_multiset(table, columns, changed, epoch, commit, empty=empty)
        else:
            _apply_keyed(table, columns, changed, epoch, commit, empty=empty)


@dataclass(frozen=True, slots=True)
class Epoch:
    """A run of a topic's records under one kind of identity.

    Attributes:
        key: The identity; None for a multiset.
        pieces: The schemas that occur.
        first: First offset.
        last: Last offset.
    """

    key: KeyLayout | None
    pieces: tuple[Piece, ...]
    first: int
    last: int

    @property
    def moves(self) -> bool:
        """Rows change their keys."""
        return any(piece.moves for piece in self.pieces)

    @property
    def removals(self) -> bool:
        """Some change needs a row that is there."""
        return any(piece.removals for piece in self.pieces)


def _epochs(mine: DataFrame, found: Survey, schemas: Schemas) -> list[Epoch]:
    """Cut a batch where the replica identity changed: seldom, and then by the offsets."""
    changing = [piece for piece in found.pieces if piece.changes]
    keys: dict[int | None, KeyLayout | None] = {None: None}
    for piece in changing:
        if piece.key_id is not None:
            keys[piece.key_id] = key_layout(schemas.schema(piece.key_id))
        elif piece.removals:
            raise ContractError(
                f"topic {found.topic}, partition {found.partition}, offsets {found.first} to"
                f" {found.last}: an update or delete has no key",
                hint="the table needs a replica identity: ALTER TABLE ... REPLICA IDENTITY",
            )
    kinds = list(dict.fromkeys(keys[piece.key_id] for piece in changing))
    if len(kinds) <= 1:
        key = kinds[0] if kinds else None
        return [Epoch(key, tuple(changing), found.first, found.last)] if changing else []
    # The number of the kind, record by record; a new run begins where it changes.
    number = reduce(
        lambda sofar, key_id: F.when(
            F.col("key_id").eqNullSafe(F.lit(key_id)), kinds.index(keys[key_id])
        ).otherwise(sofar),
        keys,
        F.lit(0),
    )
    starts = [
        (row["offset"], row["kind"])
        for row in mine.where("op <> 't'")
        .select("offset", number.alias("kind"))
        .withColumn("before", F.expr("lag(kind) OVER (ORDER BY offset)"))
        .where("NOT kind <=> before")
        .orderBy("offset")
        .collect()
    ]
    ends = [offset - 1 for offset, _ in starts[1:]] + [found.last]
    epochs = []
    for (first, kind), last in zip(starts, ends, strict=True):
        held = survey(mine.where(F.col("offset").between(first, last)))[0]
        pieces = tuple(piece for piece in held.pieces if piece.changes)
        epochs.append(Epoch(kinds[kind], pieces, first, last))
    return epochs


def _apply_keyed(
    table: Table,
    columns: Sequence[ColumnPlan],
    changed: DataFrame,
    epoch: Epoch,
    commit: Commit,
    *,
    empty: bool,
) -> None:
    assert epoch.key is not None
    fields = [column.field for column in columns]
    by_field = {column.field: column for column in columns}
    keys = {field: _in_table(by_field[field], key=True) for field in epoch.key.fields}
    if epoch.moves:
        changed = changed.cache()
        target = None if empty else _target(table, columns, keys)
        folded = fold_moves(changed, fields, target)
        changed.unpersist()
    else:
        folded = fold_keyed(changed, fields)
    if empty:
        table.write(_named(folded.where("action = 'put'"), columns), commit, overwrite=True)
        return
    same = " AND ".join(f"{sql('t.')} = s.k.`{field}`" for field, sql in keys.items())
    assigned = {
        quoted(c.name): f"CASE WHEN s.action = 'put' OR array_contains(s.sent, '{c.field}')"
        f" THEN s.v.`{c.field}` ELSE t.{quoted(c.name)} END"
        for c in columns
    }
    inserted = {quoted(c.name): f"s.v.`{c.field}`" for c in columns}
    with table.merging(commit):
        (
            table.delta()
            .alias("t")
            .merge(folded.alias("s"), same)
            .whenMatchedDelete("s.action = 'delete'")
            .whenMatchedUpdate(set=dict(assigned))
            .whenNotMatchedInsert("s.action = 'put'", values=dict(inserted))
            .execute()
        )


def _apply_multiset(
    table: Table,
    columns: Sequence[ColumnPlan],
    changed: DataFrame,
    epoch: Epoch,
    commit: Commit,
    *,
    empty: bool,
) -> None:
    if not epoch.removals:
        table.write(_named(changed, columns), commit, overwrite=empty)
        return
    keys = {column.field: _in_table(column, key=False) for column in columns}
    new, old = (
        F.struct(*(F.expr(_canonical_of(c, f"{side}.`{c.field}`")).alias(c.field) for c in columns))
        for side in ("v", "b")
    )
    changed = changed.cache()
    target = None if empty else _target(table, columns, keys)
    folded = fold_multiset(changed, new, old, target)
    changed.unpersist()
    if empty:
        table.write(_named(folded.where("action = 'insert'"), columns), commit, overwrite=True)
        return
    same = ["s.action = 'delete'"]
    same += [f"{keys[c.field]('t.')} <=> {_canonical_of(c, f's.v.`{c.field}`')}" for c in columns]
    inserted = {quoted(c.name): f"s.v.`{c.field}`" for c in columns}
    with table.merging(commit):
        (
            table.delta()
            .alias("t")
            .merge(folded.alias("s"), " AND ".join(same))
            .whenMatchedDelete()
            .whenNotMatchedInsert("s.action = 'insert'", values=dict(inserted))
            .execute()
        )


def _in_table(column: ColumnPlan, *, key: bool) -> Callable[[str], str]:
    """The canonical form of a table's column, given the prefix that tells its table."""
    return lambda prefix: canonical(
        prefix + quoted(column.name), column.spark_type, column.pg_type, key=key
    )


def _canonical_of(column: ColumnPlan, sql: str) -> str:
    return canonical(sql, column.spark_type, column.pg_type, key=False)


def _target(
    table: Table, columns: Sequence[ColumnPlan], keys: Mapping[str, Callable[[str], str]]
) -> DataFrame:
    """The table's rows: k, their keys in canonical form, and v."""
    key = F.struct(*(F.expr(sql("")).alias(field) for field, sql in keys.items()))
    row = F.struct(*(F.col(quoted(c.name)).alias(c.field) for c in columns))
    return table.delta().toDF().select(key.alias("k"), row.alias("v"))


def _named(frame: DataFrame, columns: Sequence[ColumnPlan]) -> DataFrame:
    """The rows in `v` as rows of the table."""
    return frame.select(*(F.col(f"v.`{c.field}`").alias(c.name) for c in columns))
