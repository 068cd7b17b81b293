"""A Spark session with Delta and the Kafka connector, tuned for many small commits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from spark_consumer.config import ConsumerSettings

__all__ = ["TUNED", "build_session", "open_session"]

TUNED: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # One task rebuilds a table's log: a MERGE on a small table takes a quarter of the time.
    "spark.databricks.delta.snapshotPartitions": "1",
    # A cut asks a hundred different questions; what was compiled for them is kept for the next one.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""What the job needs and what makes it fast; for spark-submit the same as ``--conf``."""


@contextmanager
def open_session(settings: ConsumerSettings) -> Iterator[SparkSession]:
    """See `build_session`; a session that is made here ends with the block."""
    made = SparkSession.getActiveSession() is None
    spark = build_session(settings)
    try:
        yield spark
    finally:
        if made:
            spark.stop()


def build_session(settings: ConsumerSettings, jars: Iterable[str] = ()) -> SparkSession:
    """Take the session that is there, as under spark-submit, or make one on this machine.

    Args:
        settings: `ConsumerSettings.spark` prevails over what is set here.
        jars: paths of the connector jars, beside `ConsumerSettings.jars`.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName("pgsluice consume")
    conf.setAll(list((_local(jars, settings) | dict(settings.spark)).items()))
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._gateway is None:
        # A signal to the whole process group must not end the JVM before the job has stopped.
        gateway = launch_gateway(  # type: ignore[no-untyped-call]
            conf, popen_kwargs={"start_new_session": True}
        )
        SparkContext._ensure_initialized(gateway=gateway)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _local(jars: Iterable[str], settings: ConsumerSettings) -> dict[str, str]:
    # spark-submit has set these; a setting of the builder would win over them.
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return {}
    cores = os.cpu_count() or 2
    made = {
        **TUNED,
        "spark.master": "local[*]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(min(cores, 4)),
    }
    if paths := [*settings.jars, *jars]:
        made["spark.jars"] = ",".join(dict.fromkeys(paths))
    return made
