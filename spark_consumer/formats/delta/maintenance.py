"""Maintenance of a Delta table: small files, and files that no kept version has."""

from __future__ import annotations

import math
import re
from typing import Final

import delta.tables
from pyspark.sql import SparkSession

from spark_consumer.formats.commit_metadata import Commit
from spark_consumer.formats.delta.columns import Columns
from spark_consumer.formats.delta.log import Log
from spark_consumer.formats.delta.session import ATTEMPTS, METADATA
from spark_consumer.spark.tuning import setting, tuned

__all__ = ["compact_files", "hours_of", "remove_files", "set_retention"]

_ANY_RETENTION: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
_HOURS_IGNORED: Final = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
_VACUUM_COMMITS: Final = "spark.databricks.delta.vacuum.logging.enabled"
_LISTING_TASKS: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_SMALL_FILES: Final = "spark.databricks.delta.optimize.minFileSize"
_LARGEST_FILES: Final = "spark.databricks.delta.optimize.maxFileSize"
_FILES_KEPT: Final = "delta.deletedFileRetentionDuration"
_LOG_KEPT: Final = "delta.logRetentionDuration"
_PART: Final = re.compile(r"([0-9.]+)\s*([a-z]+?)s?\b")
_HOURS: Final = {
    "week": 168.0,
    "day": 24.0,
    "hour": 1.0,
    "minute": 1 / 60,
    "second": 1 / 3600,
    "millisecond": 1 / 3.6e6,
    "microsecond": 1 / 3.6e9,
}
_DEFAULTS: Final = {_FILES_KEPT: "interval 1 week", _LOG_KEPT: "interval 30 days"}


def set_retention(log: Log, columns: Columns, hours: float) -> None:
    """Set how long the table keeps files and log; the user's setting prevails if it is longer.

    By default Delta forgets after a week which files a version had, and VACUUM removes them.
    """
    # The log must go back as far as the files.
    wanted = f"interval {math.ceil(hours)} hours"
    short = {
        name: wanted
        for name, default in _DEFAULTS.items()
        if hours_of(log.property(name) or default) < hours
    }
    if short:
        columns.set(short)


def compact_files(spark: SparkSession, path: str, commit: Commit, small: int) -> None:
    """Merge files of less than `small` bytes; a setting of the session prevails.

    Files that are not small keep their place, and with it the order of keys in which a copy or
    inserts of growing keys have made them. A table that its user has clustered is clustered.
    """
    # Delta's own limit is 1 GB: a table would be rewritten each time, and the keys of distant files
    # would come into one.
    sizes = {_SMALL_FILES: str(small), _LARGEST_FILES: str(4 * small)}
    sizes = {name: size for name, size in sizes.items() if setting(spark, name) is None}
    # Without a second attempt, on top of what was committed meanwhile: that has another position.
    with tuned(spark, {METADATA: commit.text(), ATTEMPTS: "0", **sizes}):
        delta.tables.DeltaTable.forPath(spark, path).optimize().executeCompaction()


def remove_files(spark: SparkSession, path: str, log: Log, hours: float) -> None:
    """Remove the files that no version of the last hours has; the user's setting prevails."""
    if (kept := log.property(_FILES_KEPT)) is not None:
        hours = max(hours, hours_of(kept))
    # By default the folder is listed by 10,000 tasks, and the hours are ignored.
    tasks = 2 * spark.sparkContext.defaultParallelism
    chosen = {
        _ANY_RETENTION: "false",
        _HOURS_IGNORED: "false",
        _VACUUM_COMMITS: "false",
        _LISTING_TASKS: str(tasks),
    }
    with tuned(spark, chosen):
        delta.tables.DeltaTable.forPath(spark, path).vacuum(hours)


def hours_of(interval: str) -> float:
    """Return the hours of an interval in a property of Delta (``interval 1 week 2 days``).

    Raises:
        ValueError: it is not an interval; Delta would not have accepted it.
    """
    parts = _PART.findall(interval.lower())
    known = all(unit in _HOURS for _, unit in parts)
    if not parts or not known or _PART.sub("", interval.lower().removeprefix("interval")).strip():
        raise ValueError(f"{interval!r} is no interval")
    return sum(float(number) * _HOURS[unit] for number, unit in parts)
