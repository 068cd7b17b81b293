"""The Spark job of the demo: ``pgsluice consume --endpos LSN``, in a process that is already warm.

Starting a JVM takes longer than all statements of the demo together. Therefore this process starts
one early, waits until the demo knows the LSN, runs the command itself, and then writes the rows of
the Delta tables to a file, because it still has the JVM that can read them.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from devkit.demo.order import await_order, spark_settings, write_result
from gateway.jars.ivy import jars
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.session import build_session


def main(folder: Path) -> int:
    """Run the command as the shell would, then write the result; return the exit code."""
    _warm_up(folder)
    endpos = await_order(folder)
    config = folder / "pgsluice.toml"
    sys.argv = ["pgsluice", "consume", "--config", str(config), "--endpos", endpos]
    try:
        runpy.run_module("gateway", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            return int(end.code)
    write_result(folder, _read_warehouse(folder / "warehouse"))
    return 0


def _warm_up(folder: Path) -> None:
    """Make the session that the command will find, as it would make it; write a Delta table."""
    settings = ConsumerSettings(
        kafka={},
        registry_url="",
        warehouse="",
        checkpoint="",
        subscriptions=(),
        jars=tuple(str(jar) for jar in jars("spark")),
        spark=spark_settings(folder),
    )
    spark = build_session(settings)
    rows = spark.range(3).selectExpr("id", "CAST(id AS string) AS value")
    table = str(folder / "spark" / "warm")
    rows.write.format("delta").save(table)
    DeltaTable.forPath(spark, table).alias("old").merge(
        rows.alias("new"), "old.id = new.id"
    ).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


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
