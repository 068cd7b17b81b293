"""Folding of changes to versions: every change of a row ends one and begins another.

A TRUNCATE ends the versions of all rows that are there. Changes before and after one never meet, so
the number of truncates before a change (`era`) is part of its key, and no row lives on from one
era to the next.

A frame of versions has these columns, NULL where a side is not known or the version goes on:

    row         string: ID of the row; the versions of one row have the same
    old         struct<row, lsn, seq>: identity of a version that the history has; NULL of a new one
    v           struct: the row's values, a field per column; NULL of one that the history has
    f           struct<lsn string, seq bigint, op string>: the change that began it
    t           struct<lsn string, seq bigint, op string>: the change that ended it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_consumer.apply.frames.unkeyed import counted
from spark_consumer.fold.key_changes import roots, segments, without_lost

__all__ = ["Truncate", "fold_keyed_versions", "fold_unkeyed_versions"]

_NO_CHANGE = "CAST(NULL AS STRUCT<lsn: STRING, seq: BIGINT, op: STRING>)"
_NO_VERSION = "CAST(NULL AS STRUCT<row: STRING, lsn: BIGINT, seq: BIGINT>)"
_BEFORE_ALL = "named_struct('lsn', '', 'seq', -1L, 'offset', -1L)"
_CODE = "CASE op WHEN 'put' THEN code WHEN 'delete' THEN 'd' ELSE 'u' END"
"""Operation of a change; an update that changes the key is one, too."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """The end of all rows: LSN as in the header `commit_lsn`, seq, and `t`, or `r` of a copy."""

    lsn: str
    seq: int
    op: str = "t"


def _era(truncates: Sequence[Truncate]) -> str:
    if not truncates:
        return "0"
    every = ", ".join(_place(one) for one in truncates)
    place = "named_struct('lsn', pos.lsn, 'seq', pos.seq)"
    return f"size(filter(array({every}), one -> one < {place}))"


def _place(truncate: Truncate) -> str:
    return f"named_struct('lsn', '{truncate.lsn}', 'seq', {truncate.seq}L)"


def _emptied(truncates: Sequence[Truncate], era: str) -> str:
    """Return the SQL of the change that ends an era; NULL of the last one."""
    if not truncates:
        return _NO_CHANGE
    every = ", ".join(
        f"named_struct('lsn', '{one.lsn}', 'seq', {one.seq}L, 'op', '{one.op}')"
        for one in truncates
    )
    return f"get(array({every}), {era})"


def fold_keyed_versions(
    changes: DataFrame,
    fields: Sequence[str],
    base: DataFrame,
    truncates: Sequence[Truncate],
    *,
    moves: bool,
) -> DataFrame:
    """Fold changes of a keyed table.

    Args:
        changes: Frame of pos, id, op, k, f, v, unsent, code (`c`, `u`, ... of the record) and row
            (the ID of a row that the change makes); read several times, so it should be cached.
        fields: Fields of `v`.
        base: Frame of k, v, row, lsn and seq of the versions that go on; at least those with the
            key of a change, all if there are truncates.
        truncates: Truncates between the changes, in order.
        moves: Whether rows change their keys.

    Returns:
        Frame of versions.
    """
    era = _era(truncates)
    dated = changes.withColumns({
        "k": F.expr(f"named_struct('era', {era}, 'key', k)"),
        "f": F.expr(f"IF(op = 'move', named_struct('era', {era}, 'key', f), NULL)"),
    })  # fmt: skip
    there = base.withColumn("k", F.expr("named_struct('era', 0, 'key', k)"))
    plain = dated.where("op <> 'move'").select(
        "k", "pos", "op", "id", F.expr("id * 2").alias("half"), "code"
    )
    halves = plain
    if moves:
        moved = dated.where("op = 'move'")
        halves = plain.union(
            moved.select("f", "pos", F.lit("leave"), "id", F.expr("id * 2"), "code")
        ).union(moved.select("k", "pos", F.lit("arrive"), "id", F.expr("id * 2 + 1"), "code"))
        known = without_lost(halves.localCheckpoint(), there)
        chains = roots(known).select("start", F.col("up").alias("root"))
        known = known.join(chains, "start", "left").withColumn(
            "root", F.expr("coalesce(root, start)")
        )
    else:
        known = segments(halves, there).withColumn("root", F.col("start"))
    effective = known.where(
        "op IN ('put', 'arrive') OR NOT ended AND (start >= 0 OR in_table)"
    ).localCheckpoint()
    first = known.groupBy("k").agg(F.min("first").alias("first"))
    met = there.join(first, "k", "left")
    old = met.where("first IS NOT NULL").select(
        "k",
        F.expr(f"{_BEFORE_ALL} AS pos"),
        F.lit("base").alias("op"),
        F.lit(-1).cast("bigint").alias("half"),
        F.expr("-1 - first").alias("root"),
        "v",
        F.expr("CAST(array() AS ARRAY<STRING>)").alias("unsent"),
        "row",
        F.expr("named_struct('row', row, 'lsn', lsn, 'seq', seq)").alias("old"),
        F.expr(f"{_NO_CHANGE} AS from"),
    )
    new = effective.join(changes.select("id", "v", "unsent", "row"), "id").select(
        "k",
        "pos",
        "op",
        "half",
        "root",
        "v",
        F.expr("IF(op = 'put', CAST(array() AS ARRAY<STRING>), unsent)").alias("unsent"),
        F.expr("IF(op = 'put', row, NULL)").alias("row"),
        F.expr(f"{_NO_VERSION} AS old"),
        F.expr(f"named_struct('lsn', pos.lsn, 'seq', pos.seq, 'op', {_CODE}) AS from"),
    )
    following = F.lead("from").over(Window.partitionBy("k").orderBy("pos", "half"))
    ended = new.unionByName(old).withColumn("to", following)
    made = ended.where("op IN ('put', 'set', 'arrive', 'base')")
    chain = Window.partitionBy("root").orderBy("pos", "half")
    latest = chain.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def last_sent(field: str) -> Expr:
        sent = F.when(
            ~F.array_contains("unsent", field), F.struct(F.col(f"v.`{field}`").alias("value"))
        )
        return F.last(sent, ignorenulls=True).over(latest).getField("value").alias(field)

    versions = made.select(
        F.last("row", ignorenulls=True).over(latest).alias("row"),
        "old",
        F.struct(*(last_sent(field) for field in fields)).alias("v"),
        F.col("from").alias("f"),
        F.expr(f"coalesce(to, {_emptied(truncates, 'k.era')}) AS t"),
    )
    return _with_untouched(versions, met.where("first IS NULL"), truncates)


def fold_unkeyed_versions(
    changes: DataFrame,
    value: Expr,
    old_value: Expr,
    base: DataFrame,
    truncates: Sequence[Truncate],
) -> DataFrame:
    """Fold changes of a multiset; of equal rows, the oldest one is updated or deleted.

    Args:
        changes: Frame of pos, id, op, v, b, code and row; read several times, so it should be
            cached.
        value: Canonical form of `v`, over `changes`.
        old_value: Canonical form of `b`, over `changes`.
        base: Frame of k (canonical form), v, row, lsn and seq of all versions that go on.
        truncates: Truncates between the changes, in order.

    Returns:
        Frame of versions. An update ends a version of one row and begins that of another one.
    """
    era = F.expr(_era(truncates)).alias("era")
    halves = (
        changes.where("op <> 'put'")
        .select(
            F.struct(era, old_value.alias("key")).alias("k"),
            "pos", "op", "id", F.lit(-1).alias("step"), "code",
        )
        .union(
            changes.where("op <> 'delete'").select(
                F.struct(era, value.alias("key")), "pos", "op", "id", F.lit(1), "code"
            )
        )
        .localCheckpoint()
    )  # fmt: skip
    there = base.withColumn("k", F.expr("named_struct('era', 0, 'key', k)"))
    if not truncates:
        values = halves.where("step < 0").select(F.col("k").alias("value")).distinct()
        there = there.join(values, there["k"].eqNullSafe(values["value"]), "left_semi")
    while True:
        known = counted(halves, there).localCheckpoint()
        lost = known.where("step < 0 AND op <> 'delete' AND found = 0").select("id")
        if lost.isEmpty():
            break
        halves = halves.join(lost, "id", "left_anti").localCheckpoint()
    came = Window.partitionBy("k").orderBy("pos", "step")
    left = known.where("step < 0 AND found > 0").select(
        "k",
        F.row_number().over(came).alias("number"),
        F.expr(f"named_struct('lsn', pos.lsn, 'seq', pos.seq, 'op', {_CODE}) AS to"),
    )
    aged = Window.partitionBy("k").orderBy("lsn", "seq", "row")
    old = there.select(
        "k",
        F.row_number().over(aged).alias("number"),
        "row",
        F.expr("named_struct('row', row, 'lsn', lsn, 'seq', seq)").alias("old"),
        "v",
        F.expr(f"{_NO_CHANGE} AS from"),
    )
    new = (
        known.where("step > 0")
        .withColumn("number", F.row_number().over(came) + F.col("there"))
        .join(changes.select("id", "v", "row"), "id")
        .select(
            "k",
            "number",
            "row",
            F.expr(f"{_NO_VERSION} AS old"),
            "v",
            F.expr(f"named_struct('lsn', pos.lsn, 'seq', pos.seq, 'op', {_CODE}) AS from"),
        )
    )
    every = new.unionByName(old)
    gone = left.select(F.col("k").alias("gone"), F.col("number").alias("nth"), "to")
    same = every["k"].eqNullSafe(gone["gone"]) & (every["number"] == gone["nth"])
    return every.join(gone, same, "left").select(
        "row",
        "old",
        "v",
        F.col("from").alias("f"),
        F.expr(f"coalesce(to, {_emptied(truncates, 'k.era')}) AS t"),
    )


def _with_untouched(
    versions: DataFrame, untouched: DataFrame, truncates: Sequence[Truncate]
) -> DataFrame:
    """Add the versions that no change meets, where a TRUNCATE ends them."""
    if not truncates:
        return versions
    return versions.unionByName(
        untouched.select(
            "row",
            F.expr("named_struct('row', row, 'lsn', lsn, 'seq', seq)").alias("old"),
            "v",
            F.expr(f"{_NO_CHANGE} AS f"),
            F.expr(f"{_emptied(truncates, '0')} AS t"),
        )
    )
