"""What the demo and its Spark process agree on: settings, LSNs one way, tables the other.

Apart from `gateway.demo.consuming`, so that the demo itself need not import Spark.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gateway.demo.verdict import TableKey, TableRows
from gateway.lsn import Lsn, format_lsn

__all__ = ["Orders", "read_orders", "read_result", "spark_settings", "write_result"]

_ORDERS: Final = "endpos"
_END: Final = "end"
_RESULT: Final = "rebuilt.json"


def spark_settings(folder: Path) -> dict[str, str]:
    """Spark's properties for a session that lives a minute and sees a few hundred rows.

    Compiling (Java's second compiler, Spark's generated code) and planning anew while a query
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


class Orders:
    """The demo's end of the pipe by which the process learns LSNs, one a line."""

    def __init__(self, folder: Path) -> None:
        os.mkfifo(folder / _ORDERS)
        # Open for both directions: then it neither waits for a reader nor fails without one.
        self._pipe = os.open(folder / _ORDERS, os.O_RDWR)

    def give(self, lsn: Lsn, *, last: bool = False) -> None:
        """Have the process consume up to `lsn`; after the last one it writes its result."""
        os.write(self._pipe, f"{format_lsn(lsn)}\n".encode())
        if last:
            os.write(self._pipe, f"{_END}\n".encode())

    def close(self) -> None:
        """Close our end."""
        os.close(self._pipe)


def read_orders(folder: Path) -> Iterator[str]:
    """Wait for each LSN until there are no more; as text, as the command line takes it."""
    with (folder / _ORDERS).open() as orders:
        for line in orders:
            if line.strip() == _END:
                return
            yield line.strip()


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
