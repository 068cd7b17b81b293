"""The ways to bring a table up to date: which one a batch takes follows from batch and table.

    Overwrite   the table is emptied first: it holds what the batch brings, and nothing else
    Append      every row is new
    Rewrite     a small batch meets a small table, which is written anew as a whole
    Merge       everything else

What identifies a row is a second matter, and is a `Rows`: by key, or by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from pyspark.sql import DataFrame, Observation, Row
from pyspark.sql import functions as F

from spark_consumer.batch import Batch
from spark_consumer.bounds import NO_BOUNDS, Bounds
from spark_consumer.collapse import fold_keyed
from spark_consumer.layout import ColumnPlan, KeyLayout, canonical
from spark_consumer.moves import fold_moves
from spark_consumer.multiset import fold_multiset
from spark_consumer.names import quoted
from spark_consumer.small import INTERPRETED, gather, stored, tuned

__all__ = ["write"]

REWRITE_BYTES: Final = 1024 * 1024
"""Up to this size a table is written anew: a MERGE would rewrite its file or two as well."""

VECTOR_BYTES: Final = 32 * 1024 * 1024
"""From this size on a MERGE marks rows as deleted rather than write their files anew."""

_COUNTS: Final = (
    "count_if(action = 'set' OR action = 'delete' AND NOT made) AS need_row",
    "count_if(action = 'put') AS puts",
)
"""Outcomes that are skipped when the table has no row for them, and those that make one."""


class Rows(Protocol):
    """What identifies the rows of a table."""

    def only_inserts(self) -> bool:
        """The batch brings rows and takes none."""

    def append_as_they_are(self) -> bool:
        """Append rows that need neither folding nor looking after; whether it was done."""

    def fold(self) -> DataFrame:
        """The outcome of the batch: action, v, and what `same` needs."""

    def appended(self, folded: DataFrame) -> DataFrame:
        """Those of the outcomes that are rows of a table without rows."""

    def are_new(self, folded: DataFrame) -> bool:
        """An append of `folded` does what a MERGE would."""

    def rewritten(self, folded: DataFrame) -> DataFrame:
        """What the table's rows are after a MERGE of `folded`, in the table's columns."""

    def merge(self, folded: DataFrame) -> None:
        """MERGE `folded` into the table."""

    def skipped(self) -> int:
        """How many found no row, after the table was written as `rewritten`, or `merge`."""

    def greatest(self) -> dict[str, int] | None:
        """By integer column of the key, the batch's greatest value, where that was looked at."""


def write(batch: Batch) -> int:
    """Apply a batch by one commit.

    Returns:
        For how many keys an update or a delete has found no row, as far as that is counted: of
        batches that are merged, and of keys that are not changed.
    """
    before = batch.table.version()
    rows: Rows = _Multiset(batch) if batch.epoch.key is None else _Keyed(batch, batch.epoch.key)
    skipped = _write(batch, rows)
    batch.frontiers.follow(batch.table, before, None if batch.empty else rows.greatest())
    return skipped


def _write(batch: Batch, rows: Rows) -> int:
    if rows.only_inserts() and rows.append_as_they_are():
        return 0
    folded = rows.fold()
    if batch.empty:
        batch.append(rows.appended(folded))
        return 0
    if batch.small:
        folded = gather(folded, batch.table.spark)
        if batch.size is not None and batch.size <= REWRITE_BYTES:
            written = rows.rewritten(folded)
            batch.table.write(written, batch.commit, batch.found, empty=True, anew=False)
            return rows.skipped()
    if rows.only_inserts() and rows.are_new(folded):
        batch.append(folded)
        return 0
    if batch.size is not None and batch.size > VECTOR_BYTES:
        batch.table.require({"delta.enableDeletionVectors": "true"})
    rows.merge(folded)
    return rows.skipped()


class _Keyed:
    """Rows that a key tells apart."""

    def __init__(self, batch: Batch, key: KeyLayout) -> None:
        self._batch = batch
        self._answered: Row | None = None
        self._unfound: Observation | None = None
        self._counted = (0, 0)
        by_field = {column.field: column for column in batch.columns}
        self._keys = [by_field[field] for field in key.fields]
        self._bounds = Bounds(self._keys)
        self._same = " AND ".join(
            f"{_canonical(c, 't.' + quoted(c.name), key=True)} = s.k.`{c.field}`"
            for c in self._keys
        )
        self._assigned = {
            c.name: f"CASE WHEN s.action = 'put' OR array_contains(s.sent, '{c.field}')"
            f" THEN s.v.`{c.field}` ELSE t.{quoted(c.name)} END"
            for c in batch.columns
        }

    def only_inserts(self) -> bool:
        return not self._batch.epoch.removals

    def fold(self) -> DataFrame:
        batch = self._batch
        fields = [column.field for column in batch.columns]
        if batch.epoch.moves:
            with _persisted(batch) as changed:
                return fold_moves(changed, fields, None if batch.empty else self._target())
        if not batch.small and self._look.are_distinct:
            every = ", ".join(f"'{field}'" for field in fields)
            sent = F.expr(f"array_except(array({every}), unsent)").alias("sent")
            made = F.expr("op = 'put'").alias("made")
            return batch.changed.select("k", F.col("op").alias("action"), "v", sent, made)
        return fold_keyed(batch.changed, fields)

    def append_as_they_are(self) -> bool:
        """Rows with keys of which none comes twice and none is in the table."""
        batch = self._batch
        if batch.small:
            return False
        if not self._look.are_distinct:
            return False
        if not batch.empty and not self.are_new(batch.changed.select("k")):
            return False
        batch.append(batch.changed)
        return True

    def appended(self, folded: DataFrame) -> DataFrame:
        return folded.where("action = 'put'")

    def are_new(self, folded: DataFrame) -> bool:
        least = self._bounds.least(self._answer(folded))
        if self._batch.frontiers.is_beyond(self._batch.table, least):
            return True
        bounds = self._bounds.condition(self._answer(folded))
        there = self._batch.table.rows().alias("t").where(bounds)
        if bounds != NO_BOUNDS:
            # Compiling the question for the files takes longer than answering it.
            with tuned(self._batch.table.spark, INTERPRETED):
                if len(there._jdf.inputFiles()) == 0:
                    return True
            there = self._batch.table.rows().alias("t").where(bounds)
        return there.join(folded.alias("s"), F.expr(self._same), "left_semi").isEmpty()

    def rewritten(self, folded: DataFrame) -> DataFrame:
        there = self._batch.table.rows().withColumn("~there", F.lit(True)).alias("t")
        self._unfound = Observation()
        needs_row = "s.action = 'set' OR s.action = 'delete' AND NOT s.made"
        unfound = F.expr(f"t.`~there` IS NULL AND ({needs_row})")
        return (
            there.join(folded.alias("s"), F.expr(self._same), "full_outer")
            .observe(self._unfound, F.count_if(unfound).alias("unfound"))
            .where("s.action IS NULL OR s.action = 'put' OR (s.action = 'set' AND t.`~there`)")
            .select(*(F.expr(sql).alias(name) for name, sql in self._assigned.items()))
        )

    def merge(self, folded: DataFrame) -> None:
        batch = self._batch
        # Not by persist: Delta refuses a source that it finds in the cache.
        as_it_is = batch.small or batch.epoch.moves or self._look.are_distinct
        kept = nullcontext(folded) if as_it_is else stored(folded)
        bounds = self._bounds.condition(self._answer(folded))
        with kept as source, batch.table.merging(batch.commit):
            answer = self._answer(folded) if as_it_is else source.agg(*map(F.expr, _COUNTS)).first()
            assert answer is not None
            self._counted = (answer["need_row"], answer["puts"])
            (
                batch.table.delta()
                .alias("t")
                .merge(source.alias("s"), f"({bounds}) AND {self._same}")
                .whenMatchedDelete("s.action = 'delete'")
                .whenMatchedUpdate(set={quoted(name): sql for name, sql in self._assigned.items()})
                .whenNotMatchedInsert(
                    "s.action = 'put'",
                    values={quoted(c.name): f"s.v.`{c.field}`" for c in batch.columns},
                )
                .execute()
            )

    def _target(self) -> DataFrame:
        key = F.struct(
            *(F.expr(_canonical(c, quoted(c.name), key=True)).alias(c.field) for c in self._keys)
        )
        row = F.struct(*(F.col(quoted(c.name)).alias(c.field) for c in self._batch.columns))
        return self._batch.table.rows().select(key.alias("k"), row.alias("v"))

    def skipped(self) -> int:
        if self._unfound is not None:
            # Spark tells it a moment after the write.
            found = self._unfound._jo.getOrEmpty().get("unfound")  # type: ignore[union-attr]
            return int(found.get()) if found.isDefined() else 0
        need_row, puts = self._counted
        done = self._batch.table.counts()
        replaced = puts - done["numTargetRowsInserted"]
        found = done["numTargetRowsUpdated"] - replaced + done["numTargetRowsDeleted"]
        return max(0, need_row - found)

    def greatest(self) -> dict[str, int] | None:
        return None if self._answered is None else self._bounds.greatest(self._answered)

    @cached_property
    def _look(self) -> _Look:
        """One look at all keys of a batch that is not small."""
        # The counts are right when each key comes once.
        action, made = F.first("op").alias("action"), F.expr("false").alias("made")
        counted = self._batch.changed.groupBy("k").agg(F.count("*").alias("count"), action, made)
        most = F.max("count").alias("most")
        row = counted.agg(most, *self._bounds.asked(), *map(F.expr, _COUNTS)).first()
        assert row is not None
        return _Look(row["most"] == 1, row)

    def _answer(self, folded: DataFrame) -> Row:
        """What `Bounds` asks, of the keys of the batch, which are those of its outcome."""
        batch = self._batch
        if self._answered is None and not batch.small and not batch.epoch.moves:
            self._answered = self._look.answer
        if self._answered is None:
            with tuned(folded.sparkSession, INTERPRETED) if batch.small else nullcontext():
                self._answered = folded.agg(*self._bounds.asked(), *map(F.expr, _COUNTS)).first()
        assert self._answered is not None
        return self._answered


@dataclass(frozen=True, slots=True)
class _Look:
    """What a batch's keys are like.

    Attributes:
        are_distinct: None comes twice.
        answer: See `Bounds.asked`.
    """

    are_distinct: bool
    answer: Row


class _Multiset:
    """Rows that their values alone tell apart."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._same = " AND ".join(
            ["s.action = 'delete'"]
            + [
                f"{_canonical(c, 't.' + quoted(c.name))} <=> {_canonical(c, f's.v.`{c.field}`')}"
                for c in batch.columns
            ]
        )

    def only_inserts(self) -> bool:
        return not self._batch.epoch.removals

    def append_as_they_are(self) -> bool:
        self._batch.append(self._batch.changed)
        return True

    def fold(self) -> DataFrame:
        new, old = (
            F.struct(
                *(
                    F.expr(_canonical(c, f"{side}.`{c.field}`")).alias(c.field)
                    for c in self._batch.columns
                )
            )
            for side in ("v", "b")
        )
        with _persisted(self._batch) as changed:
            return fold_multiset(changed, new, old, None if self._batch.empty else self._target())

    def appended(self, folded: DataFrame) -> DataFrame:
        return folded.where("action = 'insert'")

    def are_new(self, folded: DataFrame) -> bool:
        return True

    def rewritten(self, folded: DataFrame) -> DataFrame:
        there = self._batch.table.rows().alias("t")
        stays = there.join(folded.alias("s"), F.expr(self._same), "left_anti")
        return stays.unionByName(self._batch.named(self.appended(folded)))

    def merge(self, folded: DataFrame) -> None:
        batch = self._batch
        with batch.table.merging(batch.commit):
            (
                batch.table.delta()
                .alias("t")
                .merge(folded.alias("s"), self._same)
                .whenMatchedDelete()
                .whenNotMatchedInsert(
                    "s.action = 'insert'",
                    values={quoted(c.name): f"s.v.`{c.field}`" for c in batch.columns},
                )
                .execute()
            )

    def skipped(self) -> int:
        return 0

    def greatest(self) -> dict[str, int] | None:
        return None

    def _target(self) -> DataFrame:
        key = F.struct(
            *(F.expr(_canonical(c, quoted(c.name))).alias(c.field) for c in self._batch.columns)
        )
        row = F.struct(*(F.col(quoted(c.name)).alias(c.field) for c in self._batch.columns))
        return self._batch.table.rows().select(key.alias("k"), row.alias("v"))


def _canonical(column: ColumnPlan, sql: str, *, key: bool = False) -> str:
    return canonical(sql, column.spark_type, column.pg_type, key=key)


@contextmanager
def _persisted(batch: Batch) -> Iterator[DataFrame]:
    """The changes, for many looks at them; those of a large batch are stored already."""
    if not batch.small:
        yield batch.changed
        return
    changed = batch.changed.persist()
    try:
        yield changed
    finally:
        changed.unpersist()
