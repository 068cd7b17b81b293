"""Folding of changes of a table without a key, whose rows are identified by their values.

How many rows have a value is a sum that never falls below zero: an insert adds one, a delete takes
one away if there is one. An update does both, or neither when there is no old row; which updates
those are is found by taking all for done, counting, and taking out the ones that found nothing,
until all found something. In a table that has what the source has, the first count says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, reduce

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_consumer.apply.frames.batch import Batch
from spark_consumer.formats.changes import ValueChanges
from spark_consumer.names import quoted

__all__ = ["Multiset", "counted", "fold_multiset"]


class Multiset:
    """Rows identified by their values; see `spark_consumer.apply.frames.strategies.Rows`."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def only_inserts(self) -> bool:
        """See `Rows`."""
        return not self._batch.epoch.removals

    def are_new_as_they_are(self) -> bool:
        """See `Rows`."""
        return True

    def are_outright(self, written: Callable[[list[str]], DataFrame]) -> bool:
        """See `Rows`."""
        return True

    @cached_property
    def folded(self) -> DataFrame:
        """See `Rows`."""
        new, old = (
            F.struct(
                *(
                    F.expr(c.canonical(f"{side}.`{c.field}`")).alias(c.field)
                    for c in self._batch.columns
                )
            )
            for side in ("v", "b")
        )
        target = None if self._batch.mode.empties else self._target()
        return fold_multiset(self._batch.changed, new, old, target)

    def appended(self, folded: DataFrame) -> DataFrame:
        """See `Rows`."""
        return folded.where("action = 'insert'")

    def are_new(self, folded: DataFrame) -> bool:
        """See `Rows`."""
        return True

    def merge_into(self, folded: DataFrame) -> int:
        """See `Rows`."""
        batch = self._batch
        changes = ValueChanges(folded, batch.columns)
        batch.table.exchange(changes, batch.commit, batch.found)
        return 0

    def greatest(self) -> dict[str, int] | None:
        """See `Rows`."""
        return None

    def _target(self) -> DataFrame:
        key = F.struct(
            *(F.expr(c.canonical(quoted(c.name))).alias(c.field) for c in self._batch.columns)
        )
        row = F.struct(*(F.col(quoted(c.name)).alias(c.field) for c in self._batch.columns))
        return self._batch.table.rows().select(key.alias("k"), row.alias("v"))


def fold_multiset(
    changes: DataFrame, value: Expr, old_value: Expr, target: DataFrame | None
) -> DataFrame:
    """Fold changes of a multiset.

    A value of which the table has too many rows goes with all its rows, and those that stay are
    inserted again: formats cannot delete one of several equal rows.

    Args:
        changes: Frame of pos, id, op, v, b; read several times, so it should be cached.
        value: Canonical form of `v`, over `changes`.
        old_value: Canonical form of `b`, over `changes`.
        target: Frame of k (canonical form) and v of the table's rows; None for an empty table.

    Returns:
        Frame of action (insert, delete) and v; a delete means all rows with that value.
    """
    halves = (
        changes.where("op <> 'put'")
        .select(old_value.alias("k"), "pos", "op", "id", F.lit(-1).alias("step"))
        .union(changes.where("op <> 'delete'").select(value, "pos", "op", "id", F.lit(1)))
        .withColumn("leaves", F.min("step").over(Window.partitionBy("k")) < 0)
        .localCheckpoint()
    )
    walked = halves.where("leaves").drop("leaves")
    base = _numbered(target, walked).localCheckpoint() if target is not None else None
    while True:
        numbered = counted(walked, base).localCheckpoint()
        lost = numbered.where("step < 0 AND op <> 'delete' AND found = 0").select("id")
        if lost.isEmpty():
            break
        walked = walked.join(lost, "id", "left_anti").localCheckpoint()
        halves = halves.join(lost, "id", "left_anti").localCheckpoint()
    return _actions(changes, halves, numbered, base).localCheckpoint()


def _numbered(target: DataFrame, walked: DataFrame) -> DataFrame:
    """Return the table's rows with values that the batch removes, numbered within the value.

    It is open which of equal rows stay; the number makes it the same for all of the batch.
    """
    values = walked.select(F.col("k").alias("value")).distinct()
    same = target.join(values, target["k"].eqNullSafe(values["value"]), "left_semi")
    return same.withColumn("number", F.row_number().over(Window.partitionBy("k").orderBy(F.lit(1))))


def counted(walked: DataFrame, base: DataFrame | None) -> DataFrame:
    """Add numbers of rows: before each step (found), at the end (final), at the start (there)."""
    if base is None:
        based = walked.withColumn("there", F.lit(0))
    else:
        counts = base.groupBy("k").count().select(F.col("k").alias("value"), "count")
        based = walked.join(counts, walked["k"].eqNullSafe(counts["value"]), "left").select(
            *walked.columns, F.expr("CAST(coalesce(count, 0) AS INT)").alias("there")
        )
    ordered = Window.partitionBy("k").orderBy("pos", "step")
    summed = based.withColumn("sum", F.col("there") + F.sum("step").over(ordered))
    lowest = F.least(F.lit(0), F.min("sum").over(ordered))
    found = summed.withColumn("left", F.col("sum") - lowest)
    whole = (
        Window.partitionBy("k")
        .orderBy("pos", "step")
        .rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    )
    return found.withColumns(
        {
            "found": F.coalesce(F.lag("left").over(ordered), F.col("there")),
            "final": F.last("left").over(whole),
        }
    )


def _actions(
    changes: DataFrame, halves: DataFrame, numbered: DataFrame, base: DataFrame | None
) -> DataFrame:
    # The newest rows of a value stay: the table's own are older than those of the batch.
    newest = Window.partitionBy("k").orderBy(F.col("pos").desc())
    arrived = numbered.where("step > 0").withColumn("age", F.row_number().over(newest))
    plain = halves.where("NOT leaves AND step > 0").select("id")
    inserted = arrived.where("age <= final").select("id").union(plain)
    parts = [
        changes.where("op <> 'delete'")
        .join(inserted, "id", "left_semi")
        .select(F.lit("insert").alias("action"), "v")
    ]
    if base is not None:
        ends = numbered.groupBy("k").agg(
            F.first("final").alias("final"), F.count_if(F.expr("step > 0")).alias("came")
        )
        ends = ends.select(
            F.col("k").alias("value"), F.expr("greatest(final - came, 0)").alias("stay")
        )
        sizes = Window.partitionBy("k")
        touched = (
            base.withColumn("size", F.count("*").over(sizes))
            .join(ends, base["k"].eqNullSafe(ends["value"]))
            .where("stay < size")
        )
        parts.append(
            touched.where("number > size - stay").select(F.lit("insert").alias("action"), "v")
        )
        parts.append(touched.where("number = 1").select(F.lit("delete").alias("action"), "v"))
    return reduce(DataFrame.unionByName, parts)
