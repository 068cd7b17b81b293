"""Changes of rows in an Iceberg table, by Spark's MERGE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import functions as F

from spark_consumer.formats.changes import (
    KeyedChanges,
    ValueChanges,
    assigned,
    same_key,
    same_value,
)
from spark_consumer.formats.iceberg.metadata import State
from spark_consumer.formats.iceberg.workspace import Workspace
from spark_consumer.names import quoted

__all__ = ["exchange_rows", "merge_mode", "upsert_rows"]

VECTOR_BYTES: Final = 1024 * 1024
"""Table size from which rows are marked as deleted instead of rewriting their files."""

_VECTORS: Final = 3
"""Version of Iceberg's format since which tables have deletion vectors."""

_MODE: Final = "write.merge.mode"
_COUNTED: Final = "spark.merge-into.num-target-rows-"


def merge_mode(state: State) -> Mapping[str, str]:
    """Return the properties by which MERGE changes a table; its user's choice prevails."""
    if state.base.properties().get(_MODE) is not None:
        return {}
    # Without deletion vectors there would be files of deleted rows, which some readers lack.
    has_vectors = int(state.base.formatVersion()) >= _VECTORS
    marks = has_vectors and state.total("total-files-size") > VECTOR_BYTES
    return {_MODE: "merge-on-read" if marks else "copy-on-write"}


def upsert_rows(workspace: Workspace, changes: KeyedChanges) -> int:
    """See `spark_consumer.formats.protocol.Table`; the commit is left to the caller."""
    same = f"({changes.bounds}) AND {same_key(changes.keys)}"
    values = {quoted(name): F.expr(sql) for name, sql in assigned(changes.columns).items()}
    merge = (
        changes.source.alias("s")
        .mergeInto(workspace.name, F.expr(same))
        .whenMatched(F.expr("s.action = 'delete'"))
        .delete()
        .whenMatched()
        .update(values)
    )
    # Without inserts Spark need not keep what it finds nothing for.
    if changes.puts:
        merge = merge.whenNotMatched(F.expr("s.action = 'put'")).insert(
            {quoted(c.name): F.expr(f"s.v.`{c.field}`") for c in changes.columns}
        )
    merge.merge()
    snapshot = workspace.snapshot()
    counts = {} if snapshot is None else snapshot.summary()
    inserted, updated, deleted = (
        int(counts.get(_COUNTED + what) or 0) for what in ("inserted", "updated", "deleted")
    )
    replaced = changes.puts - inserted
    return max(0, changes.needing - (updated - replaced + deleted))


def exchange_rows(workspace: Workspace, changes: ValueChanges) -> None:
    """See `spark_consumer.formats.protocol.Table`; the commit is left to the caller."""
    (
        changes.source.alias("s")
        .mergeInto(workspace.name, F.expr(same_value(changes.columns)))
        .whenMatched()
        .delete()
        .whenNotMatched(F.expr("s.action = 'insert'"))
        .insert({quoted(c.name): F.expr(f"s.v.`{c.field}`") for c in changes.columns})
        .merge()
    )
