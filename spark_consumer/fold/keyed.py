"""Folding of changes to one row per key, for one write. DataFrame in, DataFrame out.

Changes are ordered by `pos`. Per key the fold looks for the last *boundary*, a put or a delete:
after a delete nothing else can have happened to the key (a set of an absent row is skipped), after
a put the row is known whole, and without a boundary there are only sets, which hold if the table
has the row. The outcome of each key is one of

    put      the row is `v`, whatever the table has
    set      if the table has the row, the columns in `sent` become those of `v`
    delete   the table does not have the row

A key change makes the outcome of one key depend on another's: see
`spark_consumer.fold.key_changes`. Rows without a key are in `spark_consumer.apply.frames.unkeyed`.
The frames' columns are described in `spark_consumer.kafka.decode`.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

__all__ = ["fold_keyed", "last_sent", "row", "sent"]


def fold_keyed(changes: DataFrame, fields: Sequence[str]) -> DataFrame:
    """Fold changes of a keyed table without key changes.

    Args:
        changes: Frame of pos, op (put, set, delete), k, v, unsent.
        fields: Fields of `v`.

    Returns:
        Frame with one row per key: k, action (put, set, delete), v, sent (array<string>; of a set
        only), made (whether the first change was a put: the table need not have had the row).
    """
    boundary = F.expr("CASE WHEN op IN ('put', 'delete') THEN pos END")
    key = Window.partitionBy("k")
    seen = {"boundary": F.max(boundary).over(key), "made": F.min_by("op", "pos").over(key) == "put"}
    since = changes.withColumns(seen).where("boundary IS NULL OR pos >= boundary")
    folded = since.groupBy("k").agg(
        F.max_by(F.col("op"), boundary).alias("op"),
        F.first("made").alias("made"),
        *last_sent(fields, F.expr("CASE WHEN op <> 'delete' THEN pos END")),
    )
    return folded.select(
        "k", F.expr("coalesce(op, 'set')").alias("action"), row(fields), sent(fields), "made"
    )


def last_sent(fields: Sequence[str], position: Expr) -> list[Expr]:
    """Return the last value sent of each field, in a struct so that a sent NULL differs."""
    return [
        F.max_by(
            F.struct(F.col(f"v.`{field}`").alias("value")),
            F.when(~F.array_contains("unsent", field), position),
        ).alias(f"_{field}")
        for field in fields
    ]


def row(fields: Sequence[str]) -> Expr:
    """Return the row that `last_sent` has found, as `v`."""
    return F.struct(*(F.col(f"`_{field}`.value").alias(field) for field in fields)).alias("v")


def sent(fields: Sequence[str]) -> Expr:
    """Return the fields of which `last_sent` has found a value, as `sent`."""
    flags = [F.when(F.col(f"`_{field}`").isNotNull(), F.lit(field)) for field in fields]
    return F.array_compact(F.array(*flags)).alias("sent")
