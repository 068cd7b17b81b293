"""Changes of rows in a Delta table: by marks in its files, or by MERGE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column as Expr
from pyspark.sql import functions as F

from spark_consumer.formats.changes import (
    NEEDS_ROW,
    KeyedChanges,
    ValueChanges,
    assigned,
    same_key,
    same_value,
)
from spark_consumer.formats.commit_metadata import Commit, Found
from spark_consumer.formats.delta.internals import Candidates, DeletedRows
from spark_consumer.names import free_name, quoted
from spark_consumer.spark.tuning import FEW, stored

if TYPE_CHECKING:
    from spark_consumer.formats.delta.table import DeltaTable

__all__ = ["exchange_rows", "upsert_rows"]

VECTOR_BYTES: Final = 1024 * 1024
"""Table size from which rows are marked as deleted instead of rewriting their files by MERGE."""

_MET: Final = "met"
_BROADCAST_KEYS: Final = 500_000
"""Number of keys that fits into the memory of every executor and of the driver."""


def upsert_rows(
    table: DeltaTable, changes: KeyedChanges, commit: Commit, found: Found | None
) -> int:
    """See `spark_consumer.formats.protocol.Table`."""
    _prefer_marks(table)
    if table.can_mark():
        return _mark(table, changes, commit, found)
    return _merge(table, changes, commit, found)


def exchange_rows(
    table: DeltaTable, changes: ValueChanges, commit: Commit, found: Found | None
) -> None:
    """See `spark_consumer.formats.protocol.Table`."""
    _prefer_marks(table)
    with table.merging(commit, found):
        (
            table.delta()
            .alias("t")
            .merge(changes.source.alias("s"), same_value(changes.columns))
            .whenMatchedDelete()
            .whenNotMatchedInsert(
                "s.action = 'insert'",
                values={quoted(c.name): f"s.v.`{c.field}`" for c in changes.columns},
            )
            .execute()
        )


def _prefer_marks(table: DeltaTable) -> None:
    """Enable deletion vectors for a large table, unless the user has disabled them."""
    if table.widest:
        return
    size = table.bytes()
    if size is not None and size > VECTOR_BYTES:
        table.require({"delta.enableDeletionVectors": "true"})


def _mark(table: DeltaTable, changes: KeyedChanges, commit: Commit, found: Found | None) -> int:
    """Mark changed and deleted rows as deleted, and append the new versions of the changed ones."""
    assert table.private is not None
    source = changes.source.alias("s")
    keys = source.select("k", F.expr(NEEDS_ROW).alias("need"))
    if changes.changes <= _BROADCAST_KEYS:
        keys = F.broadcast(keys)
    # The row itself is read only where the batch does not have all of it.
    columns = [f"t.{quoted(c.name)}" for c in changes.columns] if changes.partial else []
    candidates = Candidates(table.private.log(), table.rows().alias("t").where(changes.bounds))
    place = free_name("place", candidates.rows.columns)
    met = (
        # Not `t._metadata`: that may be a column of the user's.
        candidates.rows.withColumn(place, candidates.rows.metadataColumn("_metadata"))
        .alias("t")
        .where(changes.bounds)
        .join(keys.alias("s"), F.expr(same_key(changes.keys)))
        .select(
            F.col("s.k").alias("met"),
            F.col("s.need"),
            F.col(f"t.{place}.file_path").alias("file"),
            F.col(f"t.{place}.row_index").alias("place"),
            *([F.struct(*columns).alias("t")] if columns else []),
        )
    )
    met = met.observe(_MET, F.count_if("need"), F.collect_set("file"))
    with stored(met) as marked:
        seen: Any = met._jdf.queryExecution().observedMetrics().apply(_MET)
        skipped = changes.needing - int(seen.getLong(0))
        # Without `columns` a row that is there becomes what the batch says of it.
        if columns or skipped:
            source = source.join(marked, F.expr("s.k = met"), "left")
            wanted = "s.action = 'put' OR (s.action = 'set' AND file IS NOT NULL)"
        else:
            wanted = "s.action <> 'delete'"
        rows = source.where(wanted).select(*_outcome(changes, whole=not columns))
        few = changes.changes <= FEW
        places, files = marked.select("file", "place"), list(seen.getList(1))
        table.mark(rows, DeletedRows(places, files, candidates.version, few), commit, found)
        return skipped


def _outcome(changes: KeyedChanges, *, whole: bool) -> Iterator[Expr]:
    values = assigned(changes.columns)
    for column in changes.columns:
        sql = f"s.v.`{column.field}`" if whole else values[column.name]
        yield F.expr(sql).alias(column.name, metadata={"comment": column.pg_type})


def _merge(table: DeltaTable, changes: KeyedChanges, commit: Commit, found: Found | None) -> int:
    merge = (
        table.delta()
        .alias("t")
        .merge(changes.source.alias("s"), f"({changes.bounds}) AND {same_key(changes.keys)}")
        .whenMatchedDelete("s.action = 'delete'")
        .whenMatchedUpdate(
            set={quoted(name): sql for name, sql in assigned(changes.columns).items()}
        )
    )
    # Without inserts Delta need not keep what it finds nothing for.
    if changes.puts:
        merge = merge.whenNotMatchedInsert(
            "s.action = 'put'",
            values={quoted(c.name): f"s.v.`{c.field}`" for c in changes.columns},
        )
    with table.merging(commit, found):
        merge.execute()
    done = table.counts(commit)
    replaced = changes.puts - done["numTargetRowsInserted"]
    met = done["numTargetRowsUpdated"] - replaced + done["numTargetRowsDeleted"]
    return max(0, changes.needing - met)
