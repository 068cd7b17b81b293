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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol

from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_consumer.collapse import fold_keyed
from spark_consumer.epochs import Epoch
from spark_consumer.layout import ColumnPlan, KeyLayout, canonical
from spark_consumer.moves import fold_moves
from spark_consumer.multiset import fold_multiset
from spark_consumer.names import quoted
from spark_consumer.small import INTERPRETED, gather, stored, tuned
from spark_consumer.tables import Commit, Table

__all__ = ["Batch", "write"]

REWRITE_BYTES: Final = 1024 * 1024
"""Up to this size a table is written anew: a MERGE would rewrite its file or two as well."""

VECTOR_BYTES: Final = 32 * 1024 * 1024
"""From this size on a MERGE marks rows as deleted rather than write their files anew."""

_BOUNDED: Final = ("int", "bigint", "date", "timestamp", "timestamp_ntz", "string")
"""Types of key columns by whose least and greatest value Delta can leave out files."""
_NO_BOUNDS: Final = "TRUE"


@dataclass(frozen=True)
class Batch:
    """Changes of one table with one set of columns, and where they go.

    Attributes:
        table: The table.
        columns: Its published columns.
        epoch: What the changes are.
        changed: The changes; see `spark_consumer.decode`.
        commit: What the write says of itself.
        empty: The table's rows go first.
        anew: With `empty`: its columns go, too.
        small: `changed` is on the driver, and the table's session tuned for that.
    """

    table: Table
    columns: tuple[ColumnPlan, ...]
    epoch: Epoch
    changed: DataFrame
    commit: Commit
    empty: bool
    anew: bool
    small: bool

    @cached_property
    def size(self) -> int | None:
        """The table's size in bytes; None when it is not known."""
        return self.table.bytes()

    def named(self, rows: DataFrame) -> DataFrame:
        """The rows in `v` as rows of the table, with its columns' comments."""
        return rows.select(
            *(
                F.col(f"v.`{c.field}`").alias(c.name, metadata={"comment": c.pg_type})
                for c in self.columns
            )
        )

    def append(self, rows: DataFrame) -> None:
        """Append rows, given in `v`; or let the table hold nothing else when it is emptied."""
        self.table.write(self.named(rows), self.commit, overwrite=self.empty, anew=self.anew)


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


def write(batch: Batch) -> None:
    """Apply a batch by one commit."""
    if batch.small:
        _write(batch)
        return
    # Decoding costs most, and the changes are looked at several times.
    with stored(batch.changed) as changed:
        _write(replace(batch, changed=changed))


def _write(batch: Batch) -> None:
    rows: Rows = _Multiset(batch) if batch.epoch.key is None else _Keyed(batch, batch.epoch.key)
    if rows.only_inserts() and rows.append_as_they_are():
        return
    folded = rows.fold()
    if batch.empty:
        batch.append(rows.appended(folded))
        return
    if batch.small:
        folded = gather(folded, batch.table.spark)
        if batch.size is not None and batch.size <= REWRITE_BYTES:
            batch.table.write(rows.rewritten(folded), batch.commit, overwrite=True)
            return
    if rows.only_inserts() and rows.are_new(folded):
        batch.append(folded)
        return
    if batch.size is not None and batch.size > VECTOR_BYTES:
        batch.table.require({"delta.enableDeletionVectors": "true"})
    rows.merge(folded)


class _Keyed:
    """Rows that a key tells apart."""

    def __init__(self, batch: Batch, key: KeyLayout) -> None:
        self._batch = batch
        by_field = {column.field: column for column in batch.columns}
        self._keys = [by_field[field] for field in key.fields]
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
        if not batch.small and _are_distinct(batch.changed.select("k")):
            every = ", ".join(f"'{field}'" for field in fields)
            sent = F.expr(f"array_except(array({every}), unsent)").alias("sent")
            return batch.changed.select("k", F.col("op").alias("action"), "v", sent)
        return fold_keyed(batch.changed, fields)

    def append_as_they_are(self) -> bool:
        """Rows with keys of which none comes twice and none is in the table."""
        batch = self._batch
        if batch.small:
            return False
        keys = batch.changed.select("k")
        if not _are_distinct(keys) or not (batch.empty or self.are_new(keys)):
            return False
        batch.append(batch.changed)
        return True

    def appended(self, folded: DataFrame) -> DataFrame:
        return folded.where("action = 'put'")

    def are_new(self, folded: DataFrame) -> bool:
        bounds = self._bounds(folded)
        there = self._batch.table.rows().alias("t").where(bounds)
        if bounds != _NO_BOUNDS:
            # Compiling the question for the files takes longer than answering it.
            with tuned(self._batch.table.spark, INTERPRETED):
                if len(there._jdf.inputFiles()) == 0:
                    return True
            there = self._batch.table.rows().alias("t").where(bounds)
        return there.join(folded.alias("s"), F.expr(self._same), "left_semi").isEmpty()

    def rewritten(self, folded: DataFrame) -> DataFrame:
        there = self._batch.table.rows().withColumn("~there", F.lit(True)).alias("t")
        return (
            there.join(folded.alias("s"), F.expr(self._same), "full_outer")
            .where("s.action IS NULL OR s.action = 'put' OR (s.action = 'set' AND t.`~there`)")
            .select(*(F.expr(sql).alias(name) for name, sql in self._assigned.items()))
        )

    def merge(self, folded: DataFrame) -> None:
        batch = self._batch
        # Not by persist: Delta refuses a source that it finds in the cache.
        kept = nullcontext(folded) if batch.small else stored(folded)
        with kept as source, batch.table.merging(batch.commit):
            (
                batch.table.delta()
                .alias("t")
                .merge(source.alias("s"), f"({self._bounds(source)}) AND {self._same}")
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

    def _bounds(self, folded: DataFrame) -> str:
        """A condition on the table's keys that all keys of the batch meet, by which it is read."""
        plain = [
            column
            for column in self._keys
            if column.spark_type in _BOUNDED or column.spark_type.startswith("decimal")
            if _canonical(column, "x", key=True) == "x"
        ]
        if not plain:
            return _NO_BOUNDS
        ends: list[Expr] = []
        for number, column in enumerate(plain):
            value = F.col(f"k.`{column.field}`")
            ends += [F.min(value).alias(f"low{number}"), F.max(value).alias(f"high{number}")]
        literals = (
            F.expr(_literal(name, plain[number].spark_type)).alias(name)
            for number in range(len(plain))
            for name in (f"low{number}", f"high{number}")
        )
        found = folded.agg(*ends).select(*literals)
        with tuned(folded.sparkSession, INTERPRETED) if self._batch.small else nullcontext():
            row = found.first()
        if row is None or row[0] is None:
            return _NO_BOUNDS
        return " AND ".join(
            f"t.{quoted(column.name)} BETWEEN {row[f'low{number}']} AND {row[f'high{number}']}"
            for number, column in enumerate(plain)
        )


def _are_distinct(keys: DataFrame) -> bool:
    return keys.groupBy("k").count().where("count > 1").isEmpty()


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

    def _target(self) -> DataFrame:
        key = F.struct(
            *(F.expr(_canonical(c, quoted(c.name))).alias(c.field) for c in self._batch.columns)
        )
        row = F.struct(*(F.col(quoted(c.name)).alias(c.field) for c in self._batch.columns))
        return self._batch.table.rows().select(key.alias("k"), row.alias("v"))


def _canonical(column: ColumnPlan, sql: str, *, key: bool = False) -> str:
    return canonical(sql, column.spark_type, column.pg_type, key=key)


def _literal(sql: str, spark_type: str) -> str:
    """SQL that writes a value as a literal."""
    if spark_type == "string":
        return f"concat('decode(X''', hex({sql}), ''', ''UTF-8'')')"
    if spark_type == "date":
        return f"concat('date_from_unix_date(', unix_date({sql}), ')')"
    if spark_type == "timestamp":
        return f"concat('timestamp_micros(', unix_micros({sql}), 'L)')"
    if spark_type == "timestamp_ntz":
        return f"concat('TIMESTAMP_NTZ ''', CAST({sql} AS STRING), '''')"
    return f"concat('CAST(', {sql}, ' AS {spark_type})')"


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
