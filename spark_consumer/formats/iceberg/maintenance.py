"""Maintenance of an Iceberg table: small files, old snapshots, and files that no snapshot has."""

from __future__ import annotations

import time
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_consumer.formats.commit_metadata import Commit
from spark_consumer.formats.iceberg.metadata import State
from spark_consumer.formats.iceberg.workspace import FOLDER, Workspace
from spark_consumer.spark.files import Folder

__all__ = ["AGE", "compact_files", "remove_files", "set_retention"]

AGE: Final = "history.expire.max-snapshot-age-ms"
"""Age until which others who expire snapshots keep them; by default five days."""

_DEFAULT_MS: Final = 5 * 24 * 3_600_000


def set_retention(state: State, hours: float) -> None:
    """Set how long snapshots are kept; the user's setting prevails if it is longer."""
    wanted = _milliseconds(hours)
    if state.base.propertyAsLong(AGE, _DEFAULT_MS) < wanted:
        state.changes.updateProperties().set(AGE, str(wanted)).commit()
        state.replace()


def compact_files(spark: SparkSession, state: State, commit: Commit, small: int) -> None:
    """Merge files of less than `small` bytes, and rewrite those of which many rows are deleted."""
    with Workspace(spark, state, empty=False, properties={}) as workspace:
        (
            _actions(spark)
            .rewriteDataFiles(workspace.table())
            .binPack()
            .option("min-file-size-bytes", str(small))
            .option("target-file-size-bytes", str(4 * small))
            .option("max-file-size-bytes", str(1 << 62))
            .execute()
        )
        if workspace.snapshot() is not None:
            workspace.publish(commit, "same")


def remove_files(spark: SparkSession, state: State, hours: float) -> None:
    """Remove snapshots and files that nothing of the last hours has."""
    hours_ms = max(_milliseconds(hours), state.base.propertyAsLong(AGE, 0))
    until = int(time.time() * 1000) - hours_ms
    table = state.metadata.table()
    assert table is not None
    # The one that was the newest then has been replaced later.
    of_then = state.metadata.jvm.org.apache.iceberg.util.SnapshotUtil
    kept = of_then.nullableSnapshotIdAsOfTime(table, until)
    if kept is not None:
        since = table.snapshot(kept).timestampMillis()
        expiry = table.expireSnapshots().expireOlderThan(since).retainLast(1)
        # Files are removed below, where nothing has them: a file of deletion vectors that one
        # snapshot has done with can have vectors that later ones still need.
        expiry.cleanExpiredMetadata(True).cleanExpiredFiles(False).commit()
    Folder(spark, f"{state.metadata.path}/{FOLDER}").remove_all()
    _actions(spark).deleteOrphanFiles(table).olderThan(until).execute()


def _milliseconds(hours: float) -> int:
    return int(hours * 3_600_000)


def _actions(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)
