"""Readers of tables through the files of views, with nothing of the job's code."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import duckdb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DuckDbReader", "Reader", "SparkReader"]

_LSN = re.compile(r"^-- ([0-9A-F]+)/([0-9A-F]+)\. ", re.MULTILINE)


class Reader(Protocol):
    """Reads the file again, and asks one question."""

    def ask(self, file: Path, question: str) -> tuple[int, list[tuple[Any, ...]]]:
        """Return the LSN that the file names, and the rows of the answer."""


class SparkReader:
    """Spark SQL: a session that runs the file statement by statement, by default a new one."""

    def __init__(self, spark: SparkSession, session: SparkSession | None = None) -> None:
        self._session = session or spark.newSession()

    def ask(self, file: Path, question: str) -> tuple[int, list[tuple[Any, ...]]]:
        text = file.read_text()
        for line in text.splitlines():
            if not line.startswith("--"):
                self._session.sql(line.removesuffix(";"))
        answer = [tuple(row) for row in self._session.sql(question).collect()]
        return _lsn(text), answer


class DuckDbReader:
    """DuckDB: a connection that runs the file as it is, with extensions from the package index."""

    def __init__(self) -> None:
        self.repeated = 0
        self._connection = duckdb.connect(config={"autoinstall_known_extensions": False})
        for name in ("avro", "delta", "iceberg"):
            folder = Path(str(import_module(f"duckdb_extension_{name}").__file__)).parent
            file = folder / "extensions" / f"v{metadata.version('duckdb')}"
            self._connection.load_extension(str(file / f"{name}.duckdb_extension"))

    def ask(self, file: Path, question: str) -> tuple[int, list[tuple[Any, ...]]]:
        while True:
            text = file.read_text()
            try:
                self._connection.execute(text)
                return _lsn(text), self._connection.sql(question).fetchall()
            except duckdb.Error as error:
                # Iceberg's commit has removed its hint for a moment.
                if "version-hint" not in str(error):
                    raise
                self.repeated += 1
                with suppress(duckdb.TransactionException):
                    self._connection.rollback()


def _lsn(text: str) -> int:
    found = _LSN.search(text)
    assert found is not None, text
    return (int(found[1], 16) << 32) + int(found[2], 16)
