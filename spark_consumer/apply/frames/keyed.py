"""Batches of rows that are identified by a key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from spark_consumer.apply.frames.batch import Batch
from spark_consumer.apply.frames.key_range import NO_BOUNDS, Bounds
from spark_consumer.fold.key_changes import fold_key_changes
from spark_consumer.fold.keyed import fold_keyed
from spark_consumer.formats.changes import KeyedChanges, same_key
from spark_consumer.kafka.layout import KeyLayout
from spark_consumer.names import quoted
from spark_consumer.spark.tuning import FEW, stored

__all__ = ["Keyed"]

_COUNTS: Final = (
    "count_if(action = 'set' OR action = 'delete' AND NOT made) AS need_row",
    "count_if(action = 'put') AS puts",
    "count_if(action = 'set' AND lacking > 0) AS partial",
)
"""Numbers of outcomes that are skipped if the table has no row for them, that insert a row, and
that leave some columns of a row unchanged."""


class Keyed:
    """Rows identified by a key; for the methods see `Rows` in `strategies`."""

    def __init__(self, batch: Batch, key: KeyLayout) -> None:
        self._batch = batch
        self._answered: Row | None = None
        by_field = {column.field: column for column in batch.columns}
        self._lacking = F.expr(f"{len(batch.columns)} - size(sent)").alias("lacking")
        self._keys = [by_field[field] for field in key.fields]
        self._bounds = Bounds(self._keys)
        self._same = same_key(self._keys)

    def only_inserts(self) -> bool:
        """See `Rows`."""
        return not self._batch.epoch.removals

    @cached_property
    def folded(self) -> DataFrame:
        """See `Rows`."""
        batch = self._batch
        fields = [column.field for column in batch.columns]
        if batch.epoch.moves:
            there = None if batch.mode.empties else self._target()
            return fold_key_changes(batch.changed, fields, there)
        if self._key_profile.are_distinct:
            every = ", ".join(f"'{field}'" for field in fields)
            sent = F.expr(f"array_except(array({every}), unsent)").alias("sent")
            made = F.expr("op = 'put'").alias("made")
            return batch.changed.select("k", F.col("op").alias("action"), "v", sent, made)
        return fold_keyed(batch.changed, fields)

    def are_new_as_they_are(self) -> bool:
        """See `Rows`."""
        return self._are_all_new(self._batch.changed.select("k"))

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
        return self._key_profile.are_distinct and (self._batch.mode.empties or self.are_new(keys))

    def appended(self, folded: DataFrame) -> DataFrame:
        """See `Rows`."""
        return folded.where("action = 'put'")

    def are_new(self, folded: DataFrame) -> bool:
        """See `Rows`."""
        table = self._batch.table
        if self._batch.frontiers.is_beyond(table, self._bounds.least(self._answer(folded))):
            return True
        bounds = self._bounds.condition(self._answer(folded))
        if bounds != NO_BOUNDS and table.excludes(bounds):
            return True
        there = table.rows().alias("t").where(bounds)
        return there.join(folded.alias("s"), F.expr(self._same), "left_semi").isEmpty()

    @contextmanager
    def _source(self, folded: DataFrame) -> Iterator[tuple[DataFrame, str, Row]]:
        """Yield the outcome for repeated reads, bounds on the keys, and aggregates over them."""
        batch = self._batch
        # Not by persist: Delta refuses a source that it finds in the cache.
        as_it_is = not batch.epoch.moves and self._key_profile.are_distinct
        with nullcontext(folded) if as_it_is else stored(folded) as source:
            bounds = self._bounds.condition(self._answer(source))
            known = as_it_is or batch.epoch.moves
            yield source, bounds, self._answer(source) if known else self._counts(source)

    def merge_into(self, folded: DataFrame) -> int:
        """See `Rows`."""
        batch = self._batch
        with self._source(folded) as (source, bounds, answer):
            changes = KeyedChanges(
                source,
                batch.columns,
                self._keys,
                bounds,
                needing=answer["need_row"],
                puts=answer["puts"],
                partial=answer["partial"],
                changes=batch.epoch.changes,
            )
            return batch.table.upsert(changes, batch.commit, batch.found)

    def _counts(self, folded: DataFrame, *aggregates: Expr) -> Row:
        row = (
            folded.withColumn("lacking", self._lacking)
            .agg(*aggregates, *map(F.expr, _COUNTS))
            .first()
        )
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
    def _key_profile(self) -> _KeyProfile:
        """Aggregate all keys of the batch."""
        # The counts are right when each key comes once.
        alone = (
            F.count("*").alias("count"),
            F.first("op").alias("action"),
            F.first(F.size("unsent")).alias("lacking"),
            F.expr("false").alias("made"),
        )
        changed = self._batch.changed
        if self._batch.epoch.changes <= FEW:
            # Distributing them takes longer than scanning them.
            changed = changed.coalesce(1)
        counted = changed.groupBy("k").agg(*alone)
        most = F.max("count").alias("most")
        row = counted.agg(most, *self._bounds.aggregates(), *map(F.expr, _COUNTS)).first()
        assert row is not None
        return _KeyProfile(row["most"] == 1, row)

    def _answer(self, folded: DataFrame) -> Row:
        """Return the answer to `Bounds` for the keys of the batch."""
        batch = self._batch
        if self._answered is None and not batch.epoch.moves:
            self._answered = self._key_profile.answer
        if self._answered is None:
            self._answered = self._counts(folded, *self._bounds.aggregates())
        assert self._answered is not None
        return self._answered


@dataclass(frozen=True, slots=True)
class _KeyProfile:
    """Properties of a batch's keys.

    Attributes:
        are_distinct: Whether none comes twice.
        answer: See `Bounds.aggregates`.
    """

    are_distinct: bool
    answer: Row
