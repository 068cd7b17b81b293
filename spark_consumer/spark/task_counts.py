"""Number of Spark's tasks that are done, of the stages that run now."""

from __future__ import annotations

from contextlib import suppress

from pyspark.sql import SparkSession

__all__ = ["running_tasks"]


def running_tasks(spark: SparkSession) -> str:
    """Return `` tasks=done/all`` for a log line; empty if no stage runs, or Spark is gone.

    The stages are those of the application, which may be of other subscriptions, too.
    """
    done = number = 0
    # Whatever it is: a report about a subscription must not hold it.
    with suppress(Exception):
        tracker = spark.sparkContext.statusTracker()
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                done += info.numCompletedTasks
                number += info.numTasks
    return f" tasks={done}/{number}" if number else ""
