"""The strategies by which a table is brought up to date; `choose` has them by batch and table.

Whether all rows of a batch are new is known only when somebody has looked. So a strategy can find
that a batch is not for it: it has written nothing then, and the next one is tried.

What identifies a row is a second matter, and is a `Rows`: by key, or by value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from pyspark.sql import DataFrame, Observation

from spark_consumer.apply.batch import Batch
from spark_consumer.apply.keyed import Keyed
from spark_consumer.apply.speculative import Expected, observed
from spark_consumer.apply.unkeyed import Multiset
from spark_consumer.formats.commit_metadata import Found
from spark_consumer.kafka.batch_profile import Piece

__all__ = ["choose", "write", "write_outright"]

REWRITE_BYTES: Final = 1024 * 1024
"""Up to this size a table is written anew: an upsert would rewrite its file or two as well."""


class Rows(Protocol):
    """What identifies the rows of a table."""

    @property
    def folded(self) -> DataFrame:
        """The outcome of the batch: action, v, and what the methods need; worked out once."""

    def only_inserts(self) -> bool:
        """The batch brings rows and takes none."""

    def are_new_as_they_are(self) -> bool:
        """An append of the rows that the batch brings, unfolded, does what `merge_into` would."""

    def are_outright(self, written: Callable[[list[str]], DataFrame]) -> bool:
        """As for `are_new_as_they_are`, of rows that `written` gives some columns of."""

    def appended(self, folded: DataFrame) -> DataFrame:
        """Those of the outcomes that are rows of a table without rows."""

    def are_new(self, folded: DataFrame) -> bool:
        """An append of `folded` does what `merge_into` would."""

    def write_anew(self, folded: DataFrame) -> int:
        """Write the table anew as `merge_into` would leave it; see `Strategy`."""

    def merge_into(self, folded: DataFrame) -> int:
        """Let the table's format apply `folded`; see `Strategy`."""

    def greatest(self) -> dict[str, int] | None:
        """By integer column of the key, the batch's greatest value, where that was looked at."""


Strategy: TypeAlias = Callable[[Batch, Rows], int | None]
"""Applies a batch by one commit, and says for how many keys an update or a delete has found no row,
as far as that is counted. None: the batch is not for it, and nothing was written."""


def choose(
    *, only_inserts: bool, small: bool, empty: bool, size: int | None, by_row: bool
) -> tuple[Strategy, ...]:
    """The strategies for a batch in the order in which they are tried; the last is for any batch.

    Args:
        only_inserts: the batch brings rows and takes none.
        small: it is on the driver.
        empty: the table's rows go first.
        size: the table's in bytes; None when it is not known.
        by_row: the table tells its readers which rows change.
    """
    tried: tuple[Strategy, ...] = (append_as_it_is,) if only_inserts else ()
    if empty:
        return (*tried, overwrite)
    if small and size is not None and size <= REWRITE_BYTES and not by_row:
        return (*tried, rewrite)
    if only_inserts:
        tried = (*tried, append)
    return (*tried, merge)


def append_as_it_is(batch: Batch, rows: Rows) -> int | None:
    """Every row is new, and needs no folding."""
    if not rows.are_new_as_they_are():
        return None
    batch.append(batch.changed)
    return 0


def overwrite(batch: Batch, rows: Rows) -> int:
    """The table is emptied first: it holds what the batch brings, and nothing else."""
    batch.append(rows.appended(rows.folded))
    return 0


def rewrite(batch: Batch, rows: Rows) -> int:
    """A small batch meets a small table, which is written anew as a whole."""
    return rows.write_anew(rows.folded)


def append(batch: Batch, rows: Rows) -> int | None:
    """Every row is new once those that replace one another are folded."""
    if not rows.are_new(rows.folded):
        return None
    batch.append(rows.folded)
    return 0


def merge(batch: Batch, rows: Rows) -> int:
    """Rows come, change and go, as the table's format does it."""
    return rows.merge_into(rows.folded)


def write(batch: Batch) -> int:
    """Apply a batch by one commit.

    Returns:
        For how many keys an update or a delete has found no row, as far as that is counted: of
        batches that are upserted, and of keys that are not changed.
    """
    before = batch.table.version()
    rows = _rows(batch)
    tried = choose(
        only_inserts=rows.only_inserts(),
        small=batch.small,
        empty=batch.empty,
        size=None if batch.empty else batch.size,
        by_row=not batch.empty and batch.table.tracks_rows(),
    )
    done = (strategy(batch, rows) for strategy in tried)
    skipped = next(number for number in done if number is not None)
    batch.frontiers.follow(batch.table, before, None if batch.empty else rows.greatest())
    return skipped


def write_outright(
    batch: Batch, expected: Expected, observation: Observation
) -> tuple[Found | None, Piece | None]:
    """Write the rows of a batch while they are read, and look afterwards whether that was right.

    Args:
        batch: its changes are not kept anywhere, and are decoded when they are written.
        expected: what they should be.
        observation: runs with them, and has counted what `expected` asks for then.

    Returns:
        The table; None when they were not rows only, all of them new, and nothing was done. And
        what the batch has; None when it is not what was expected.
    """
    before = batch.table.version()
    named = batch.named(batch.changed)
    draft = batch.table.stage(named, batch.found, empty=batch.empty, anew=batch.anew)
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
    batch.frontiers.follow(batch.table, before, None if batch.empty else rows.greatest())
    return Found(version, batch.commit), piece


def _rows(batch: Batch) -> Rows:
    return Multiset(batch) if batch.epoch.key is None else Keyed(batch, batch.epoch.key)
