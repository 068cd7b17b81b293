"""Fold a batch of changes to what one MERGE needs: one row per key. DataFrame in, DataFrame out.

Changes are ordered by `pos`. Per key the fold looks for the last *boundary*, a put or a delete:
after a delete nothing else can have happened to the key (a set of an absent row is skipped), after
a put the row is known whole, and without a boundary there are only sets, which hold if the table
has the row. So the outcome of each key is one of

    put      the row is `v`, whatever the table has
    set      if the table has the row, the columns in `sent` become those of `v`
    delete   the table does not have the row

A key change makes the outcome of one key depend on another's. Then the keys that take part in
one, and they alone, are looked up in the table and walked through in order
(`spark_consumer.lineage`); of them only ids and positions reach the driver, values stay in Spark.
With the table's rows known nothing conditional is left: every outcome is a put or a delete.

The frames' columns are described in `spark_consumer.decode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_consumer.lineage import Bags, Event, Lineages, trace_bags, trace_keys

__all__ = ["fold_keyed", "fold_moves", "fold_multiset"]

_BEFORE_ALL = "named_struct('lsn', '', 'seq', -1L, 'offset', -1L)"


def fold_keyed(changes: DataFrame, fields: Sequence[str]) -> DataFrame:
    """Fold changes of a keyed table without key changes.

    Args:
        changes: pos, op (put, set, delete), k, v, unsent.
        fields: the fields of `v`.

    Returns:
        One row per key: k, action (put, set, delete), v, sent (array<string>; of a set only).
    """
    boundary = F.expr("CASE WHEN op IN ('put', 'delete') THEN pos END")
    since = changes.withColumn("boundary", F.max(boundary).over(Window.partitionBy("k"))).where(
        "boundary IS NULL OR pos >= boundary"
    )
    folded = since.groupBy("k").agg(
        F.max_by(F.col("op"), boundary).alias("op"),
        *_last_sent(fields, F.expr("CASE WHEN op <> 'delete' THEN pos END")),
    )
    return folded.select(
        "k", F.expr("coalesce(op, 'set')").alias("action"), _row(fields), _sent(fields)
    )


def _last_sent(fields: Sequence[str], position: Expr) -> list[Expr]:
    """Per field the last value that was sent, in a struct so that a NULL that was sent differs."""
    return [
        F.max_by(
            F.struct(F.col(f"v.`{field}`").alias("value")),
            F.when(~F.array_contains("unsent", field), position),
        ).alias(f"_{field}")
        for field in fields
    ]


def _row(fields: Sequence[str]) -> Expr:
    return F.struct(*(F.col(f"`_{field}`.value").alias(field) for field in fields)).alias("v")


def _sent(fields: Sequence[str]) -> Expr:
    flags = [F.when(F.col(f"`_{field}`").isNotNull(), F.lit(field)) for field in fields]
    return F.array_compact(F.array(*flags)).alias("sent")


def fold_moves(changes: DataFrame, fields: Sequence[str], target: DataFrame | None) -> DataFrame:
    """Fold changes of a keyed table among which there are key changes.

    Args:
        changes: pos, op, k, f, v, unsent; read several times, so it should be cached.
        fields: the fields of `v`.
        target: k and v of the table's rows; None for an empty table.

    Returns:
        As `fold_keyed`.
    """
    moves = changes.where("op = 'move'")
    moved = moves.select("k").union(moves.select(F.col("f").alias("k"))).distinct()
    # Both halves of a move have the same offset; doubled, so that each half has a number.
    halves = (
        changes.where("op <> 'move'")
        .join(moved, "k", "left_semi")
        .select("k", "pos", "op", F.expr("pos.offset * 2").alias("half"))
        .union(moves.select(F.col("f").alias("k"), "pos", "op", F.expr("pos.offset * 2")))
        .union(moves.select("k", "pos", "op", F.expr("pos.offset * 2 + 1")))
        .withColumn("id", F.min("half").over(Window.partitionBy("k")))
        .cache()
    )
    try:
        ids = halves.select("k", "id").distinct()
        base = None
        present: list[int] = []
        if target is not None:
            base = target.join(ids, "k").select("id", "v").cache()
            present = [row.id for row in base.select("id").distinct().collect()]
        lineages = trace_keys(_key_events(halves), present)
        resolved = _resolved(changes, fields, ids, base, lineages, present)
        plain = changes.where("op <> 'move'").join(moved, "k", "left_anti")
        folded = fold_keyed(plain, fields).unionByName(resolved).localCheckpoint()
        if base is not None:
            base.unpersist()
        return folded
    finally:
        halves.unpersist()


def _key_events(halves: DataFrame) -> list[Event]:
    """The walk's events, in order; of the two halves of a move, the first is the old key's."""
    events: list[Event] = []
    old: int | None = None
    for row in halves.orderBy("pos", "half").select("op", "half", "id").collect():
        offset = row.half // 2
        if row.op == "put":
            events.append(Event(offset, "put", new=row.id))
        elif row.op == "move" and row.half % 2 == 0:
            old = row.id
        elif row.op == "move":
            events.append(Event(offset, "move", old=old, new=row.id))
        else:
            events.append(Event(offset, row.op, old=row.id))
    return events


def _resolved(
    changes: DataFrame,
    fields: Sequence[str],
    ids: DataFrame,
    base: DataFrame | None,
    lineages: Lineages,
    present: Sequence[int],
) -> DataFrame:
    """The outcomes of the keys that take part in a key change."""
    spark = changes.sparkSession
    belongs = spark.createDataFrame(lineages.changes, "offset long, id long")
    made_of = changes.join(belongs, F.col("pos.offset") == F.col("offset")).select(
        "id",
        "pos",
        "v",
        F.expr("IF(op = 'put', CAST(array() AS ARRAY<STRING>), unsent)").alias("unsent"),
    )
    if base is not None and lineages.bases:
        moved_to = spark.createDataFrame(lineages.bases, "id long, end long")
        made_of = made_of.unionByName(
            base.join(moved_to, "id").select(
                F.col("end").alias("id"),
                F.expr(_BEFORE_ALL).alias("pos"),
                "v",
                F.expr("CAST(array() AS ARRAY<STRING>)").alias("unsent"),
            )
        )
    rows = made_of.groupBy("id").agg(*_last_sent(fields, F.col("pos")))
    outcomes = spark.createDataFrame(
        [(key, "put") for key in lineages.present]
        + [(key, "delete") for key in present if key not in lineages.present],
        "id long, action string",
    )
    return (
        outcomes.join(ids, "id")
        .join(rows, "id", "left")
        .select("k", "action", _row(fields), _sent(fields))
    )


def fold_multiset(
    changes: DataFrame, value: Expr, old_value: Expr, target: DataFrame | None
) -> DataFrame:
    """Fold changes of a table whose rows have no key, so are told apart by their values alone.

    A row of the table that goes takes all rows with its value with it, and those that stay are
    inserted again: MERGE cannot take one of several equal rows.

    Args:
        changes: pos, op, v, b; read several times, so it should be cached.
        value: the canonical form of `v`, over `changes`.
        old_value: the canonical form of `b`, over `changes`.
        target: k (canonical form) and v of the table's rows; None for an empty table.

    Returns:
        action (insert, delete) and v; a delete means all rows with that value.
    """
    events = changes.select("pos", "op", "v", value.alias("new"), old_value.alias("old"))
    arriving = events.where("op <> 'delete'")
    leaving = events.where("op <> 'put'")
    halves = (
        leaving.select(F.col("old").alias("k"), "pos", "op", F.expr("pos.offset * 2").alias("half"))
        .union(arriving.select(F.col("new"), "pos", "op", F.expr("pos.offset * 2 + 1")))
        .withColumns(
            {
                "id": F.min("half").over(Window.partitionBy("k")),
                "leaves": F.max(F.expr("half % 2 = 0")).over(Window.partitionBy("k")),
            }
        )
        .cache()
    )
    try:
        # A value that nothing takes away is inserted as it comes.
        walked = halves.where("leaves OR op <> 'put'")
        ids = halves.where("leaves").select("k", "id").distinct()
        base = None
        present: dict[int, int] = {}
        if target is not None:
            same = target.join(ids, target["k"].eqNullSafe(ids["k"])).select("id", "v")
            # Which of equal rows stay is open; the number makes it the same for all of the batch.
            base = same.withColumn(
                "number", F.row_number().over(Window.partitionBy("id").orderBy(F.lit(1)))
            ).localCheckpoint()
            present = {row.id: row["count"] for row in base.groupBy("id").count().collect()}
        bags = trace_bags(_value_events(walked), present)
        untouched = halves.where("NOT leaves AND op = 'put'").select(
            F.expr("half div 2").alias("offset")
        )
        return _bag_actions(changes, untouched, base, bags).localCheckpoint()
    finally:
        halves.unpersist()


def _value_events(halves: DataFrame) -> list[Event]:
    by_offset: dict[int, Event] = {}
    for row in halves.orderBy("pos", "half").select("op", "half", "id").collect():
        offset, arrives = divmod(row.half, 2)
        known = by_offset.get(offset)
        by_offset[offset] = Event(
            offset,
            row.op,
            old=known.old if known is not None else None if arrives else row.id,
            new=row.id if arrives else None,
        )
    return list(by_offset.values())


def _bag_actions(
    changes: DataFrame, untouched: DataFrame, base: DataFrame | None, bags: Bags
) -> DataFrame:
    spark = changes.sparkSession
    offsets = spark.createDataFrame([(o,) for o in bags.inserted], "offset long").union(untouched)
    parts = [
        changes.join(offsets, F.col("pos.offset") == F.col("offset")).select(
            F.lit("insert").alias("action"), "v"
        )
    ]
    if base is not None and bags.removed:
        gone = spark.createDataFrame(list(bags.removed.items()), "id long, removed long")
        touched = base.join(gone, "id")
        parts.append(touched.where("number > removed").select(F.lit("insert").alias("action"), "v"))
        parts.append(touched.where("number = 1").select(F.lit("delete").alias("action"), "v"))
    return reduce(DataFrame.unionByName, parts)
