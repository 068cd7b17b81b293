"""Agreement of the demo and its Spark process: settings, an LSN one way, tables the other.

Apart from `devkit.demo.consumer`, so that the demo itself need not import Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from devkit.demo.verdict import TableKey, TableRows
from gateway.core.lsn import Lsn, format_lsn

__all__ = ["Order", "await_order", "read_result", "spark_settings", "write_result"]

_ORDER: Final = "endpos"
_RESULT: Final = "rebuilt.json"


def spark_settings(folder: Path) -> dict[str, str]:
    """Spark's properties for a session that lives a minute and sees a few hundred rows.

    Compiling (Java's second compiler, Spark's generated code) and planning again while a query
    runs cost more here than they can ever bring: without them the job takes two thirds of the CPU.
    """
    return {
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "spark" / "warehouse"),
        # With the first compiler alone Java reserves 48 MB for code, which Spark fills.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        " -XX:ReservedCodeCacheSize=240m",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
    }


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


def await_order(folder: Path) -> str:
    """Wait for the LSN; as text, as the command line takes it."""
    with (folder / _ORDER).open() as order:
        return order.readline().strip()


def write_result(folder: Path, tables: Sequence[dict[str, Any]]) -> None:
    """Write tables: ``key`` (subscription, schema, table), ``columns`` and ``rows`` as text."""
    (folder / _RESULT).write_text(json.dumps(tables))


def read_result(folder: Path) -> dict[TableKey, TableRows]:
    """Read what the process has found in the warehouse."""
    tables: dict[TableKey, TableRows] = {}
    for entry in json.loads((folder / _RESULT).read_text()):
        subscription, schema, table = entry["key"]
        rows = tuple(tuple(row) for row in entry["rows"])
        tables[(subscription, schema, table)] = TableRows(tuple(entry["columns"]), rows)
    return tables
