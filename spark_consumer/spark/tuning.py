"""Small micro-batches: a job that takes milliseconds should not take seconds to plan and compile.

For a batch of a few thousand records Spark spends nearly all its time on generating and compiling
code, on planning again between stages, and on tasks that have nothing to do. The records of a
small batch are therefore brought to the driver once, as they are, and everything after that is
planned over those rows, in one partition, by interpreted expressions. The result is the same.

Nothing here touches what a crash may lose: rows on the driver belong to one try of one batch. They
do not pass through Python, which holds no more than a reference to them.
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
    "TABLE_BYTES",
    "gather",
    "is_small",
    "setting",
    "stored",
    "tuned",
]

TABLE_BYTES: Final = 32 * 1024 * 1024
"""Table size until which interpreted expressions are fast enough."""

FEW: Final = 100_000
"""Number of rows whose scan takes less time than distributing them, or compiling code."""

_RECORDS: Final = 20_000
SMALL_BYTES: Final = 16 * 1024 * 1024
"""Size of the records that the driver may hold."""

INTERPRETED: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_SMALL: Final = {
    **INTERPRETED,
    "spark.sql.shuffle.partitions": "1",
    # java.sql's types cannot carry every value there and back, java.time's can.
    "spark.sql.datetime.java8API.enabled": "true",
}


def is_small(records: int, size: int = 0) -> bool:
    """Whether a number of records with this size may be kept on the driver."""
    return records <= _RECORDS and size <= SMALL_BYTES


def gather(frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Run `frame` and return its rows, then on the driver, as a frame of `spark`.

    Both sessions must be of the same application, and `spark` be `tuned`: see above.
    """
    rows: Any = frame._jdf.collectAsList()
    made = spark._jsparkSession.createDataFrame(rows, frame._jdf.schema())
    return DataFrame(made, spark)


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
def tuned(spark: SparkSession, settings: Mapping[str, str] = _SMALL) -> Iterator[None]:
    """Tune a session for small queries; restore its own settings afterwards."""
    before = {key: setting(spark, key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)
