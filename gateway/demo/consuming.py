"""The Spark job of the demo: ``pgsluice consume --endpos LSN``, in a process that is already warm.

Starting a JVM takes longer than all statements of the demo together. So this process starts one
early, waits until the demo knows the LSN, runs the command itself, and then writes what the Delta
tables hold to a file, because it still has the JVM that can read them.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any, Final

from gateway.demo.verdict import TableKey, TableRows
from gateway.lsn import Lsn, format_lsn

__all__ = ["Order", "read_result"]

_ORDER: Final = "endpos"
_RESULT: Final = "rebuilt.json"


class Order:
    """The demo's end of the pipe by which the process learns the LSN."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / _ORDER)
        # Open for both directions: then it neither waits for a reader nor fails without one.
        self._pipe = os.open(folder / _ORDER, os.O_RDWR)

    def give(self, lsn: Lsn) -> None:
        """Tell the process to consume up to `lsn`."""
        os.write(self._pipe, f"{format_lsn(lsn)}\n".encode())

    def close(self) -> None:
        """Close our end."""
        os.close(self._pipe)


def read_result(folder: Path) -> dict[TableKey, TableRows]:
    """Read what the process has found in the warehouse."""
    tables: dict[TableKey, TableRows] = {}
    for entry in json.loads((folder / _RESULT).read_text()):
        subscription, schema, table = entry["key"]
        rows = tuple(tuple(row) for row in entry["rows"])
        tables[(subscription, schema, table)] = TableRows(tuple(entry["columns"]), rows)
    return tables


def main(folder: Path) -> int:
    """Run the command as the shell would, then write the result; return the exit code."""
    with (folder / _ORDER).open() as order:
        endpos = order.readline().strip()
    config = folder / "pgsluice.toml"
    sys.argv = ["pgsluice", "consume", "--config", str(config), "--endpos", endpos]
    try:
        runpy.run_module("gateway", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            return int(end.code)
    result = _read_warehouse(folder / "warehouse")
    scratch = folder / f"{_RESULT}.new"
    scratch.write_text(json.dumps(result))
    scratch.rename(folder / _RESULT)
    return 0


def _read_warehouse(warehouse: Path) -> list[dict[str, Any]]:
    """Every Delta table below the folder, by its path; values as text."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

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
