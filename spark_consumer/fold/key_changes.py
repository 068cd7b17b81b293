"""Folding of changes with changed keys: the row under a new key is made of the old one.

Every change of a key is a row of `halves`; a key change is two of them, `leave` at the old key and
`arrive` at the new one. A *segment* is the lifetime of one row under one key: it starts with a put,
with an arrival, or before the batch, and ends with a delete or a departure. A row moves, it is
never copied, so segments form chains, and a chain's changes, in order, make up the row under the
chain's last key. Chains are resolved by pointer doubling, in O(log n) rounds for the longest chain,
and nothing but counts leaves Spark.

A key change of a row that does not exist is skipped, as PostgreSQL's apply worker does. Whether one
is skipped depends on those before it, so they are removed from the front, round by round; a table
that matches the source has none.

Source: apply_handle_update, apply_handle_delete in PostgreSQL's worker.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_consumer.fold.keyed import fold_keyed, last_sent, row, sent

__all__ = ["fold_key_changes", "roots", "segments", "without_lost"]

_BEFORE_ALL: Final = "named_struct('lsn', '', 'seq', -1L, 'offset', -1L)"
_NONE: Final = "CAST(array() AS ARRAY<STRING>)"


def fold_key_changes(
    changes: DataFrame, fields: Sequence[str], target: DataFrame | None
) -> DataFrame:
    """Fold changes of a keyed table, key changes included.

    Args:
        changes: Frame of pos, id, op, k, f, v, unsent; read several times, so it should be cached.
        fields: Fields of `v`.
        target: Frame of k and v of the table's rows; None for an empty table.

    Returns:
        Frame as from `fold_keyed`; keys that take part in a key change are put or deleted.
    """
    moves = changes.where("op = 'move'")
    moved = moves.select("k").union(moves.select(F.col("f").alias("k"))).distinct()
    halves = _halves(changes, moved).localCheckpoint()
    base = None
    if target is not None:
        base = target.join(moved, "k", "left_semi").select("k", "v").localCheckpoint()
    known = without_lost(halves, base)
    resolved = _rows(changes, fields, known, base)
    plain = changes.where("op <> 'move'").join(moved, "k", "left_anti")
    return fold_keyed(plain, fields).unionByName(resolved).localCheckpoint()


def without_lost(halves: DataFrame, base: DataFrame | None) -> DataFrame:
    """Take out the key changes of rows that do not exist.

    Args:
        halves: Frame of k, pos, op, id and half; see the module's docstring.
        base: Frame of k of the table's rows; None for an empty table.

    Returns:
        The remaining halves with their segments, as from `segments`.
    """
    while True:
        known = segments(halves, base).localCheckpoint()
        lost = known.where("op = 'leave' AND (ended OR (start < 0 AND NOT in_table))").select("id")
        if lost.isEmpty():
            return known
        halves = halves.join(lost, "id", "left_anti").localCheckpoint()


def _halves(changes: DataFrame, moved: DataFrame) -> DataFrame:
    moves = changes.where("op = 'move'")
    return (
        changes.where("op <> 'move'")
        .join(moved, "k", "left_semi")
        .select("k", "pos", "op", "id", F.expr("id * 2").alias("half"))
        .union(moves.select("f", "pos", F.lit("leave"), "id", F.expr("id * 2")))
        .union(moves.select("k", "pos", F.lit("arrive"), "id", F.expr("id * 2 + 1")))
    )


def segments(halves: DataFrame, base: DataFrame | None) -> DataFrame:
    """Add to each half its segment.

    Returns:
        `halves` with start (the half that the segment starts with; negative if the row existed
        before), ended (whether the segment ended before this half), and in_table (whether the
        table has a row under the key).
    """
    key = Window.partitionBy("k")
    ordered = key.orderBy("pos", "half")
    started = F.expr("CASE WHEN op IN ('put', 'arrive') THEN half END")
    made = halves.withColumns(
        {
            "first": F.min("half").over(key),
            "start": F.last(started, ignorenulls=True).over(ordered),
        }
    ).withColumn("start", F.expr("coalesce(start, -1 - first)"))
    within = Window.partitionBy("k", "start").orderBy("pos", "half")
    ends = F.sum(F.expr("IF(op IN ('delete', 'leave'), 1, 0)"))
    made = made.withColumn(
        "ended",
        F.coalesce(ends.over(within.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0)) > 0,
    )
    if base is None:
        return made.withColumn("in_table", F.lit(False))
    known = base.select("k", F.lit(True).alias("in_table"))
    return made.join(known, "k", "left").withColumn("in_table", F.expr("coalesce(in_table, false)"))


def roots(known: DataFrame) -> DataFrame:
    """Map each segment that starts with an arrival to the first one of its chain."""
    came = known.where("op = 'arrive'").select("id", F.col("half").alias("start"))
    left = known.where("op = 'leave'").select("id", F.col("start").alias("up"))
    chains = came.join(left, "id").select("start", "up").localCheckpoint()
    while True:
        above = chains.select(F.col("start").alias("up"), F.col("up").alias("further"))
        longer = chains.join(above, "up", "left").localCheckpoint()
        if longer.where("further IS NOT NULL").isEmpty():
            return chains
        chains = longer.select("start", F.expr("coalesce(further, up)").alias("up"))


def _rows(
    changes: DataFrame, fields: Sequence[str], known: DataFrame, base: DataFrame | None
) -> DataFrame:
    """Return the outcomes of the keys that take part in a key change."""
    chains = roots(known).select("start", F.col("up").alias("root"))
    rooted = (
        known.join(chains, "start", "left")
        .withColumn("root", F.expr("coalesce(root, start)"))
        .localCheckpoint()
    )
    made = rooted.where("op IN ('put', 'set', 'arrive') AND NOT ended").select("id", "root")
    parts = (
        changes.where("op <> 'delete'")
        .join(made, "id")
        .select(
            "root",
            "pos",
            "v",
            F.expr(f"IF(op = 'put', {_NONE}, unsent)").alias("unsent"),
        )
    )
    if base is not None:
        first = rooted.groupBy("k").agg(F.min("first").alias("first"))
        parts = parts.unionByName(
            base.join(first, "k").select(
                F.expr("-1 - first").alias("root"),
                F.expr(_BEFORE_ALL).alias("pos"),
                "v",
                F.expr(_NONE).alias("unsent"),
            )
        )
    rows = parts.groupBy("root").agg(*last_sent(fields, F.col("pos")))
    # The last segment of a key, if its row still exists; otherwise the key has no row.
    last = F.max_by(F.struct("start", "root", "op", "ended"), F.struct("pos", "half"))
    final = (
        rooted.groupBy("k")
        .agg(last.alias("last"), F.max("in_table").alias("in_table"), F.max("first").alias("first"))
        .withColumn(
            "present",
            F.expr("last.op NOT IN ('delete', 'leave') AND NOT last.ended"),
        )
        .withColumn("present", F.expr("present AND (last.start >= 0 OR in_table)"))
        .where("present OR in_table")
        .select("k", F.expr("IF(present, 'put', 'delete')").alias("action"), "last.root")
        .withColumn("root", F.expr("IF(action = 'put', root, NULL)"))
    )
    outcomes = final.join(rows, "root", "left")
    # Skipped ones are not counted.
    return outcomes.select("k", "action", row(fields), sent(fields), F.lit(True).alias("made"))
