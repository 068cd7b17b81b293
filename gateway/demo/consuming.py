"""The Spark job of the demo: ``pgsluice consume --endpos LSN``, once for each LSN it is given.

Starting a JVM takes longer than all statements of the demo together. So this process starts one
early and runs the command in itself, as often as it is told to; each run goes on from the
checkpoint of the one before. At the end it writes what the Delta tables hold to a file, because it
still has the JVM that can read them.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from gateway.demo.order import read_orders, spark_settings, write_result
from gateway.embedded.jars import jars
from spark_consumer.config import ConsumerSettings
from spark_consumer.session import build_session


def main(folder: Path) -> int:
    """Run the command as the shell would, then write the result; return the exit code."""
    # The session that the first run of the command will find, made as it would make it.
    build_session(
        ConsumerSettings(
            kafka={},
            registry_url="",
            warehouse="",
            checkpoint="",
            subscriptions=(),
            jars=tuple(str(jar) for jar in jars("spark")),
            spark=spark_settings(folder),
        )
    )
    for endpos in read_orders(folder):
        if code := _consume(folder, endpos):
            return code
    write_result(folder, _read_warehouse(folder / "warehouse"))
    return 0


def _consume(folder: Path, endpos: str) -> int:
    """The command itself, in this process; its exit code."""
    config = str(folder / "pgsluice.toml")
    sys.argv = ["pgsluice", "consume", "--config", config, "--endpos", endpos]
    try:
        runpy.run_module("gateway", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _read_warehouse(warehouse: Path) -> list[dict[str, Any]]:
    """Every Delta table below the folder, by its path; values as text."""
    spark = SparkSession.builder.getOrCreate()
    found = []
    for log in sorted(warehouse.glob("*/*/*/_delta_log")):
        frame = spark.read.format("delta").load(str(log.parent))
        texts = frame.select([F.col(f"`{name}`").cast("string") for name in frame.columns])
        found.append(
            {
                "key": log.parent.relative_to(warehouse).parts,
                "columns": frame.columns,
                "rows": [list(row) for row in texts.collect()],
            }
        )
    spark.stop()
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
