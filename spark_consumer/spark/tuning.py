"""Settings of queries: a query that takes milliseconds should not take seconds to plan and compile.

For a batch of a few thousand records Spark spends nearly all its time on generating and compiling
code, on planning again between stages, and on tasks that have nothing to do. Queries over such a
batch and a table that is not large are therefore evaluated by interpreted expressions, and shuffled
into one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "FEW",
    "INTERPRETED",
    "SMALL_BYTES",
    "SMALL_QUERIES",
    "cached",
    "is_small",
    "query_settings",
    "setting",
    "stored",
    "tuned",
]

_TABLE_BYTES: Final = 32 * 1024 * 1024
"""Size of a table until which interpreted expressions are fast enough."""

FEW: Final = 100_000
"""Number of rows whose scan takes less time than distributing them, or compiling code."""

_MOST_RECORDS: Final = 20_000
"""Number of records of a share until which the driver reads and applies it."""

SMALL_BYTES: Final = 16 * 1024 * 1024
"""Size of the records that the driver reads together; a table that has more is left to Spark."""

INTERPRETED: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SMALL_QUERIES: Final = {**INTERPRETED, "spark.sql.shuffle.partitions": "1"}


def is_small(records: int) -> bool:
    """Whether this number of records may be read and applied by the driver."""
    return records <= _MOST_RECORDS


def query_settings(table: int | None) -> Mapping[str, str]:
    """Return the settings for queries over a small share and its table.

    Args:
        table: Size of the table in bytes; None if that is not known.
    """
    return SMALL_QUERIES if table is not None and table <= _TABLE_BYTES else {}


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Keep the rows of `frame` from its first run on while the block runs."""
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


@contextmanager
def stored(frame: DataFrame) -> Iterator[DataFrame]:
    """Run `frame` once and store its rows on the executors while the block runs.

    Unlike a cached frame, the result does not keep the plan, so MERGE accepts it as a source.
    """
    kept = frame.localCheckpoint()
    try:
        yield kept
    finally:
        plan: Any = kept._jdf.queryExecution().logical()
        plan.rdd().unpersist(False)


def setting(spark: SparkSession, key: str) -> str | None:
    """Return a session's value of a setting; None if it is not set."""
    # pyspark's own types do not say that a default of None may come back.
    get = cast("Callable[[str, None], str | None]", spark.conf.get)
    return get(key, None)


@contextmanager
def tuned(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session; restore its own ones afterwards."""
    before = {key: setting(spark, key) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)
