"""Strategies that write a batch to a table; `choose` orders them by batch and table.

Whether all rows of a batch are new is known only after a check. A strategy can therefore find
that a batch is not for it: it has written nothing then, and the next one is tried.

How rows are identified is a second matter, and is a `Rows`: by key, or by value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeAlias

from pyspark.sql import DataFrame, Observation

from spark_consumer.apply.frames.batch import Batch
from spark_consumer.apply.frames.keyed import Keyed
from spark_consumer.apply.frames.speculative import Expected, observed
from spark_consumer.apply.frames.unkeyed import Multiset
from spark_consumer.formats.commit_metadata import Found
from spark_consumer.kafka.batch_profile import Piece

__all__ = ["choose", "write", "write_outright"]


class Rows(Protocol):
    """How the rows of a table are identified."""

    @property
    def folded(self) -> DataFrame:
        """The outcome of the batch: action, v, and what the methods need; computed once."""

    def only_inserts(self) -> bool:
        """Whether the batch only inserts rows."""

    def are_new_as_they_are(self) -> bool:
        """Whether an append of the batch's rows, unfolded, is equal to `merge_into`."""

    def are_outright(self, written: Callable[[list[str]], DataFrame]) -> bool:
        """Whether rows are new, given some of their columns in `written`."""

    def appended(self, folded: DataFrame) -> DataFrame:
        """Return the outcomes that are rows of a table without rows."""

    def are_new(self, folded: DataFrame) -> bool:
        """Whether an append of `folded` is equal to `merge_into`."""

    def merge_into(self, folded: DataFrame) -> int:
        """Let the table's format apply `folded`; see `Strategy`."""

    def greatest(self) -> dict[str, int] | None:
        """Return the batch's greatest value by integer column of the key, where known."""


Strategy: TypeAlias = Callable[[Batch, Rows], int | None]
"""Applies a batch by one commit; returns the number of updates and deletes that matched no row,
where counted. None: the strategy does not fit the batch, and nothing was written."""


def choose(*, only_inserts: bool, empty: bool) -> tuple[Strategy, ...]:
    """Return the strategies for a batch in the order in which they are tried; the last fits any.

    Args:
        only_inserts: Whether the batch only inserts rows.
        empty: Whether the table's rows are removed first.
    """
    tried: tuple[Strategy, ...] = (append_as_it_is,) if only_inserts else ()
    if empty:
        return (*tried, overwrite)
    if only_inserts:
        tried = (*tried, append)
    return (*tried, merge)


def append_as_it_is(batch: Batch, rows: Rows) -> int | None:
    """Append the batch unfolded if every row is new."""
    if not rows.are_new_as_they_are():
        return None
    batch.append(batch.changed)
    return 0


def overwrite(batch: Batch, rows: Rows) -> int:
    """Replace the table's rows by those of the batch."""
    batch.append(rows.appended(rows.folded))
    return 0


def append(batch: Batch, rows: Rows) -> int | None:
    """Append the folded batch if every row is new then."""
    if not rows.are_new(rows.folded):
        return None
    batch.append(rows.folded)
    return 0


def merge(batch: Batch, rows: Rows) -> int:
    """Let the table's format insert, update and delete rows."""
    return rows.merge_into(rows.folded)


def write(batch: Batch) -> int:
    """Apply a batch by one commit.

    Returns:
        Number of keys whose update or delete matched no row, where counted: in batches that are
        upserted, and for keys that do not change.
    """
    before = batch.table.version()
    rows = _rows(batch)
    tried = choose(only_inserts=rows.only_inserts(), empty=batch.mode.empties)
    done = (strategy(batch, rows) for strategy in tried)
    skipped = next(number for number in done if number is not None)
    batch.frontiers.follow(batch.table, before, None if batch.mode.empties else rows.greatest())
    return skipped


def write_outright(
    batch: Batch, expected: Expected, observation: Observation
) -> tuple[Found | None, Piece | None]:
    """Write the rows of a batch as they are read; check them before the commit.

    Args:
        batch: Batch whose changes are not stored, but decoded as they are written.
        expected: Expectation of the batch's records.
        observation: Observation that evaluates `Expected.counts` while the batch is written.

    Returns:
        The table; None if the batch has anything but new rows, and nothing was committed. And the
        result of `Expected.fulfilled`.
    """
    before = batch.table.version()
    named = batch.named(batch.changed)
    draft = batch.table.stage(named, batch.found, batch.mode)
    if draft is None:
        return None, None
    numbers = observed(batch.table.spark, observation)
    piece = None if numbers is None else expected.fulfilled(numbers)
    if piece is None:
        draft.discard()
        return None, None
    rows = _rows(replace(batch, epoch=replace(batch.epoch, pieces=(piece,))))
    if piece.removals or not rows.are_outright(draft.rows):
        draft.discard()
        return None, piece
    version = draft.commit(batch.commit)
    batch.frontiers.follow(batch.table, before, None if batch.mode.empties else rows.greatest())
    return Found(version, batch.commit), piece


def _rows(batch: Batch) -> Rows:
    return Multiset(batch) if batch.epoch.key is None else Keyed(batch, batch.epoch.key)
