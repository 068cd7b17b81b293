"""The ways to bring a table up to date: which one a batch takes follows from batch and table.

    Overwrite   the table is emptied first: it holds what the batch brings, and nothing else
    Append      every row is new
    Rewrite     a small batch meets a small table, which is written anew as a whole
    Merge       everything else

What identifies a row is a second matter, and is a `Rows`: by key, or by value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from spark_consumer.batch import Batch
from spark_consumer.commits import Found
from spark_consumer.expected import Expected, observed
from spark_consumer.keyed import Keyed
from spark_consumer.multiset import fold_multiset
from spark_consumer.names import quoted
from spark_consumer.small import gather
from spark_consumer.survey import Piece

__all__ = ["write", "write_outright"]


REWRITE_BYTES: Final = 1024 * 1024
"""Up to this size a table is written anew: a MERGE would rewrite its file or two as well."""

VECTOR_BYTES: Final = 4 * 1024 * 1024
"""From this size on rows are marked as deleted, where a MERGE would write their files anew."""


class Rows(Protocol):
    """What identifies the rows of a table."""

    def only_inserts(self) -> bool:
        """The batch brings rows and takes none."""

    def append_as_they_are(self) -> bool:
        """Append rows that need neither folding nor looking after; whether it was done."""

    def are_outright(self, written: Callable[[list[str]], DataFrame]) -> bool:
        """As for `append_as_they_are`, of rows that `written` gives some columns of."""

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
    rows = _rows(batch)
    skipped = _write(batch, rows)
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
    rows = _rows(batch)
    named = batch.named(batch.changed)
    draft = batch.table.draft(named, batch.found, empty=batch.empty, anew=batch.anew)
    numbers = observed(batch.table.spark, observation)
    piece = None if numbers is None else expected.fulfilled(numbers)
    if piece is None or piece.removals or not rows.are_outright(draft.rows):
        draft.discard()
        return None, piece
    version = batch.table.commit(draft, batch.commit)
    batch.frontiers.follow(batch.table, before, None if batch.empty else rows.greatest())
    return Found(version, batch.commit), piece


def _rows(batch: Batch) -> Rows:
    return _Multiset(batch) if batch.epoch.key is None else Keyed(batch, batch.epoch.key)


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


class _Multiset:
    """Rows that their values alone tell apart."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._same = " AND ".join(
            ["s.action = 'delete'"]
            + [
                f"{c.canonical('t.' + quoted(c.name))} <=> {c.canonical(f's.v.`{c.field}`')}"
                for c in batch.columns
            ]
        )

    def only_inserts(self) -> bool:
        return not self._batch.epoch.removals

    def append_as_they_are(self) -> bool:
        self._batch.append(self._batch.changed)
        return True

    def are_outright(self, written: Callable[[list[str]], DataFrame]) -> bool:
        return True

    def fold(self) -> DataFrame:
        new, old = (
            F.struct(
                *(
                    F.expr(c.canonical(f"{side}.`{c.field}`")).alias(c.field)
                    for c in self._batch.columns
                )
            )
            for side in ("v", "b")
        )
        with self._batch.kept() as changed:
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
            *(F.expr(c.canonical(quoted(c.name))).alias(c.field) for c in self._batch.columns)
        )
        row = F.struct(*(F.col(quoted(c.name)).alias(c.field) for c in self._batch.columns))
        return self._batch.table.rows().select(key.alias("k"), row.alias("v"))
