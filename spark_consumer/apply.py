"""Apply a micro-batch to the Delta tables: one commit per touched table, idempotent.

Invariant: a table's commit carries the Kafka offset that it completes (`spark_consumer.tables`),
and changes at or before a table's offset are dropped before anything else is done with them. So it
does not matter where a crash fell, whether Spark repeats a batch or a new checkpoint begins at the
topics' first records: each change takes effect once, on the state it was meant for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import StructType

from spark_consumer.collapse import fold_keyed, fold_moves, fold_multiset
from spark_consumer.decode import (
    AVRO_OPTIONS,
    ColumnPlan,
    Survey,
    changes,
    source_table,
    survey,
)
from spark_consumer.epochs import Epoch, cut_epochs
from spark_consumer.layout import Layout, canonical, value_layout
from spark_consumer.names import quoted, table_path
from spark_consumer.registry import Schemas
from spark_consumer.small import INTERPRETED, REWRITE_BYTES, TABLE_BYTES, gather, tuned
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
        self._compiled = {key: str(self._spark.conf.get(key)) for key in INTERPRETED}
        self._warehouse = warehouse
        self._subscription = subscription
        self._schemas = schemas
        self._tables: dict[str, tuple[str, Table]] = {}
        self._written: dict[int, StructType] = {}

    @contextmanager
    def gathered(self, records: DataFrame) -> Iterator[DataFrame]:
        """Bring a small batch to the driver, for `apply`; see `spark_consumer.small`."""
        with tuned(self._spark):
            yield gather(records, self._spark)

    def apply(self, records: DataFrame, found: Survey, *, small: bool = False) -> Applied | None:
        """Bring one table up to date with its topic's records.

        Args:
            records: wire frame of the batch, cached; other topics' records are ignored.
            found: what it holds of the topic.
            small: `records` are what `gathered` has given.

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
        epochs = cut_epochs(mine, left, self._schemas) if left is not None else []
        if truncated and not epochs:
            self._empty(table, columns, found)
        for epoch in epochs:
            self._apply_epoch(table, columns, mine, epoch, found, empty=truncated, small=small)
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
        small: bool,
    ) -> None:
        schemas = {
            schema_id: self._json(schema_id)
            for piece in epoch.pieces
            for schema_id in (piece.key_id, piece.value_id)
            if schema_id is not None
        }
        inside = mine.where(F.col("offset").between(epoch.first, epoch.last))
        changed = changes(inside, epoch.pieces, columns, epoch.key, schemas)
        if small:
            changed = changed.coalesce(1)
        commit = self._commit(found, epoch.last)
        apply = _apply_multiset if epoch.key is None else _apply_keyed
        # A small batch says nothing of the table, and a large one is better read by compiled code.
        with tuned(self._spark, self._compiled) if _is_large(table, small) else nullcontext():
            apply(table, columns, changed, epoch, commit, empty=empty, small=small)


def _apply_keyed(
    table: Table,
    columns: Sequence[ColumnPlan],
    changed: DataFrame,
    epoch: Epoch,
    commit: Commit,
    *,
    empty: bool,
    small: bool,
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
    if small:
        folded = gather(folded, table.spark)
        if _is_tiny(table):
            table.write(_merged(table, folded, same, assigned), commit, overwrite=True)
            return
        if _all_new(table, folded, same):
            table.write(_named(folded, columns), commit, overwrite=False)
            return
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
    small: bool,
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
    if small:
        folded = gather(folded, table.spark)
    if small and _is_tiny(table):
        there = table.delta().toDF().alias("t")
        stays = there.join(folded.alias("s"), F.expr(" AND ".join(same)), "left_anti")
        comes = _named(folded.where("action = 'insert'"), columns)
        table.write(stays.unionByName(comes), commit, overwrite=True)
        return
    with table.merging(commit):
        (
            table.delta()
            .alias("t")
            .merge(folded.alias("s"), " AND ".join(same))
            .whenMatchedDelete()
            .whenNotMatchedInsert("s.action = 'insert'", values=dict(inserted))
            .execute()
        )


def _is_large(table: Table, small: bool) -> bool:
    """Whether a small batch meets a table that is none."""
    if not small:
        return False
    size = table.bytes()
    return size is None or size > TABLE_BYTES


def _is_tiny(table: Table) -> bool:
    size = table.bytes()
    return size is not None and size <= REWRITE_BYTES


def _merged(table: Table, folded: DataFrame, same: str, assigned: Mapping[str, str]) -> DataFrame:
    """What the table's rows are after a MERGE of `folded`."""
    there = table.delta().toDF().withColumn("~there", F.lit(True)).alias("t")
    return (
        there.join(folded.alias("s"), F.expr(same), "full_outer")
        .where("s.action IS NULL OR s.action = 'put' OR (s.action = 'set' AND t.`~there`)")
        .select(
            *(F.expr(sql).alias(name[1:-1].replace("``", "`")) for name, sql in assigned.items())
        )
    )


def _all_new(table: Table, folded: DataFrame, same: str) -> bool:
    """Whether an append does what a MERGE would: looking costs a fraction of it."""
    if not folded.where("action <> 'put'").isEmpty():
        return False
    there = table.delta().toDF().alias("t")
    return there.join(folded.alias("s"), F.expr(same), "left_semi").isEmpty()


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
