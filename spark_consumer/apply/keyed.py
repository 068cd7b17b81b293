"""Rows that a key tells apart: what a batch does to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Observation, Row
from pyspark.sql import functions as F

from spark_consumer.apply.batch import Batch
from spark_consumer.apply.key_range import NO_BOUNDS, Bounds
from spark_consumer.apply.speculative import observed
from spark_consumer.fold.key_changes import fold_moves
from spark_consumer.fold.keyed import fold_keyed
from spark_consumer.formats.delta.internals import Gone
from spark_consumer.kafka.layout import KeyLayout
from spark_consumer.names import free_name, quoted
from spark_consumer.spark.tuning import FEW, INTERPRETED, stored, tuned

__all__ = ["Keyed"]

_COUNTS: Final = (
    "count_if(action = 'set' OR action = 'delete' AND NOT made) AS need_row",
    "count_if(action = 'put') AS puts",
    "count_if(action = 'set' AND lacking > 0) AS partial",
)
"""Outcomes that are skipped when the table has no row for them, those that make one, and those
that leave some of a row's columns as they are."""

_MET: Final = "met"
_NEEDS_ROW: Final = "s.action = 'set' OR s.action = 'delete' AND NOT s.made"
_BROADCAST_KEYS: Final = 500_000
"""So many keys can be with every executor, and in the driver's memory meanwhile."""


class Keyed:
    """Rows that a key tells apart; see `spark_consumer.apply.strategies.Rows` for the methods."""

    def __init__(self, batch: Batch, key: KeyLayout) -> None:
        self._batch = batch
        self._answered: Row | None = None
        by_field = {column.field: column for column in batch.columns}
        self._lacking = F.expr(f"{len(batch.columns)} - size(sent)").alias("lacking")
        self._keys = [by_field[field] for field in key.fields]
        self._bounds = Bounds(self._keys)
        self._same = " AND ".join(
            f"{c.canonical('t.' + quoted(c.name), key=True)} = s.k.`{c.field}`" for c in self._keys
        )
        self._assigned = {
            c.name: f"CASE WHEN s.action = 'put' OR array_contains(s.sent, '{c.field}')"
            f" THEN s.v.`{c.field}` ELSE t.{quoted(c.name)} END"
            for c in batch.columns
        }

    def only_inserts(self) -> bool:
        """See `Rows`."""
        return not self._batch.epoch.removals

    @cached_property
    def folded(self) -> DataFrame:
        """See `Rows`."""
        return self._batch.at_hand(self._fold())

    def _fold(self) -> DataFrame:
        batch = self._batch
        fields = [column.field for column in batch.columns]
        if batch.epoch.moves:
            with batch.kept() as changed:
                return fold_moves(changed, fields, None if batch.empty else self._target())
        if not batch.small and self._look.are_distinct:
            every = ", ".join(f"'{field}'" for field in fields)
            sent = F.expr(f"array_except(array({every}), unsent)").alias("sent")
            made = F.expr("op = 'put'").alias("made")
            return batch.changed.select("k", F.col("op").alias("action"), "v", sent, made)
        return fold_keyed(batch.changed, fields)

    def are_new_as_they_are(self) -> bool:
        """No key comes twice, and none is in the table. A small batch is sooner folded."""
        return not self._batch.small and self._are_all_new(self._batch.changed.select("k"))

    def are_outright(self, written: Callable[[list[str]], DataFrame]) -> bool:
        """See `Rows`."""
        keys = [column.name for column in self._keys]
        named = (
            F.expr(column.canonical(quoted(column.name), key=True)).alias(column.field)
            for column in self._keys
        )
        none = F.expr("CAST(array() AS ARRAY<STRING>)")
        made = written(keys).select(
            F.struct(*named).alias("k"), F.lit("put").alias("op"), none.alias("unsent")
        )
        self._batch = replace(self._batch, changed=made)
        return self._are_all_new(made.select("k"))

    def _are_all_new(self, keys: DataFrame) -> bool:
        return self._look.are_distinct and (self._batch.empty or self.are_new(keys))

    def appended(self, folded: DataFrame) -> DataFrame:
        """See `Rows`."""
        return folded.where("action = 'put'")

    def are_new(self, folded: DataFrame) -> bool:
        """See `Rows`."""
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

    def write_anew(self, folded: DataFrame) -> int:
        """See `Rows`."""
        batch = self._batch
        rows = batch.table.rows()
        # A struct, so that no name of ours is beside a user's column.
        row = F.struct(*(F.col(quoted(name)) for name in rows.columns)).alias("t")
        there = rows.select(row, F.lit(True).alias("there"))
        observation = Observation()
        unfound = F.expr(f"there IS NULL AND ({_NEEDS_ROW})")
        batch.rewrite(
            there.join(folded.alias("s"), F.expr(self._same), "full_outer")
            .observe(observation, F.count_if(unfound).alias("unfound"))
            .where("s.action IS NULL OR s.action = 'put' OR (s.action = 'set' AND there)")
            .select(*(F.expr(sql).alias(name) for name, sql in self._assigned.items()))
        )
        (missed,) = observed(batch.table.spark, observation) or [0]
        return missed or 0

    @contextmanager
    def _source(self, folded: DataFrame) -> Iterator[tuple[DataFrame, str, Row]]:
        """The outcome for several looks, bounds on the table's keys, and what is known of it."""
        batch = self._batch
        # Not by persist: Delta refuses a source that it finds in the cache.
        as_it_is = batch.small or (not batch.epoch.moves and self._look.are_distinct)
        with nullcontext(folded) if as_it_is else stored(folded) as source:
            bounds = self._bounds.condition(self._answer(source))
            known = as_it_is or batch.epoch.moves
            yield source, bounds, self._answer(source) if known else self._counts(source)

    def mark(self, folded: DataFrame) -> int:
        """Mark the rows that change or go as deleted, and append what they are then."""
        with self._source(folded) as (source, bounds, answer):
            return self._mark(source, bounds, answer)

    def _mark(self, source: DataFrame, bounds: str, answer: Row) -> int:
        batch = self._batch
        source = source.alias("s")
        keys = source.select("k", F.expr(_NEEDS_ROW).alias("need"))
        if batch.small or batch.epoch.changes <= _BROADCAST_KEYS:
            keys = F.broadcast(keys)
        # The row itself is read only where the batch does not have all of it.
        columns = [f"t.{quoted(c.name)}" for c in batch.columns] if answer["partial"] else []
        candidates = batch.table.candidates(bounds)
        place = free_name("place", candidates.rows.columns)
        met = (
            # Not `t._metadata`: that may be a column of the user's.
            candidates.rows.withColumn(place, candidates.rows.metadataColumn("_metadata"))
            .alias("t")
            .where(bounds)
            .join(keys.alias("s"), F.expr(self._same))
            .select(
                F.col("s.k").alias("met"),
                F.col("s.need"),
                F.col(f"t.{place}.file_path").alias("file"),
                F.col(f"t.{place}.row_index").alias("place"),
                *([F.struct(*columns).alias("t")] if columns else []),
            )
        )
        met = met.observe(_MET, F.count_if("need"), F.collect_set("file"))
        with stored(met) as found:
            seen: Any = met._jdf.queryExecution().observedMetrics().apply(_MET)
            skipped: int = answer["need_row"] - int(seen.getLong(0))
            # Without `columns` a row that is there becomes what the batch says of it.
            if columns or skipped:
                source = source.join(found, F.expr("s.k = met"), "left")
                wanted = "s.action = 'put' OR (s.action = 'set' AND file IS NOT NULL)"
            else:
                wanted = "s.action <> 'delete'"
            rows = source.where(wanted).select(*self._outcome(whole=not columns))
            few = batch.epoch.changes <= FEW
            places, files = found.select("file", "place"), list(seen.getList(1))
            gone = Gone(places, files, candidates.version, few)
            draft = batch.table.draft(rows, batch.found, gone=gone)
            batch.table.commit(draft, batch.commit)
            return skipped

    def merge(self, folded: DataFrame) -> int:
        """See `Rows`."""
        with self._source(folded) as (source, bounds, answer):
            return self._merge(source, bounds, answer)

    def _merge(self, source: DataFrame, bounds: str, answer: Row) -> int:
        batch = self._batch
        merge = (
            batch.table.delta()
            .alias("t")
            .merge(source.alias("s"), f"({bounds}) AND {self._same}")
            .whenMatchedDelete("s.action = 'delete'")
            .whenMatchedUpdate(set={quoted(name): sql for name, sql in self._assigned.items()})
        )
        # Without inserts Delta need not keep what it finds nothing for.
        if answer["puts"]:
            merge = merge.whenNotMatchedInsert(
                "s.action = 'put'",
                values={quoted(c.name): f"s.v.`{c.field}`" for c in batch.columns},
            )
        with batch.table.merging(batch.commit):
            merge.execute()
        done = batch.table.counts()
        replaced = answer["puts"] - done["numTargetRowsInserted"]
        found = done["numTargetRowsUpdated"] - replaced + done["numTargetRowsDeleted"]
        return max(0, int(answer["need_row"] - found))

    def _outcome(self, *, whole: bool) -> Iterator[Expr]:
        for column in self._batch.columns:
            sql = f"s.v.`{column.field}`" if whole else self._assigned[column.name]
            yield F.expr(sql).alias(column.name, metadata={"comment": column.pg_type})

    def _counts(self, folded: DataFrame, *asked: Expr) -> Row:
        row = folded.withColumn("lacking", self._lacking).agg(*asked, *map(F.expr, _COUNTS)).first()
        assert row is not None
        return row

    def _target(self) -> DataFrame:
        key = F.struct(
            *(F.expr(c.canonical(quoted(c.name), key=True)).alias(c.field) for c in self._keys)
        )
        row = F.struct(*(F.col(quoted(c.name)).alias(c.field) for c in self._batch.columns))
        return self._batch.table.rows().select(key.alias("k"), row.alias("v"))

    def greatest(self) -> dict[str, int] | None:
        """See `Rows`."""
        return None if self._answered is None else self._bounds.greatest(self._answered)

    @cached_property
    def _look(self) -> _Look:
        """One look at all keys of a batch that is not small."""
        # The counts are right when each key comes once.
        alone = (
            F.count("*").alias("count"),
            F.first("op").alias("action"),
            F.first(F.size("unsent")).alias("lacking"),
            F.expr("false").alias("made"),
        )
        changed = self._batch.changed
        if self._batch.epoch.changes <= FEW:
            # Handing them around takes longer than going through them.
            changed = changed.coalesce(1)
        counted = changed.groupBy("k").agg(*alone)
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
                self._answered = self._counts(folded, *self._bounds.asked())
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
