"""Delta's log through its public interface: slower, and the same on every build of Delta."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import delta.tables
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from spark_consumer.names import quoted
from spark_consumer.spark.failures import TableTransientError
from spark_consumer.spark.tuning import INTERPRETED, tuned

__all__ = ["PublicLog"]

_AT_ONCE: Final = (1, 32, 1024, None)
"""Numbers of newest commits that are read in turn, until they suffice."""


class PublicLog:
    """Log of one table; see `spark_consumer.formats.delta.log`.

    Args:
        spark: Session that reads.
        path: Folder of the table.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def _table(self) -> delta.tables.DeltaTable:
        return delta.tables.DeltaTable.forPath(self._spark, self._path)

    def version(self) -> int:
        """See `Log`."""
        if not delta.tables.DeltaTable.isDeltaTable(self._spark, self._path):
            return -1
        newest = self._history(1)
        return newest[0][0] if newest else -1

    def commits(self, newest: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """See `Log`."""
        if newest < 0:
            return
        oldest = newest + 1
        for most in _AT_ONCE:
            found = self._history(most)
            for version, info in found:
                if version < oldest:
                    oldest = version
                    yield version, info
            if most is None or len(found) < most:
                return

    def _history(self, most: int | None) -> list[tuple[int, Mapping[str, Any]]]:
        """Return the newest commits, at most this many, newest first."""
        try:
            with tuned(self._spark, INTERPRETED):
                rows = (
                    self._table()
                    .history(most)
                    .select("version", "operation", "operationMetrics", "userMetadata")
                    .collect()
                )
        except (Py4JError, PySparkException) as error:
            first = next(iter(str(error).splitlines()), "")
            raise TableTransientError(f"the log of {self._path} cannot be read: {first}") from error
        return sorted(((row.version, row.asDict()) for row in rows), reverse=True)

    def fields(self) -> list[StructField]:
        """See `Log`."""
        return list(self._table().toDF().schema.fields)

    def bytes(self) -> int | None:
        """See `Log`."""
        return self._detail("sizeInBytes")

    def files(self) -> int | None:
        """See `Log`."""
        return self._detail("numFiles")

    def _detail(self, name: str) -> int | None:
        with tuned(self._spark, INTERPRETED):
            row = self._table().detail().select(name).first()
        return None if row is None or row[0] is None else int(row[0])

    def property(self, name: str) -> str | None:
        """See `Log`."""
        with tuned(self._spark, INTERPRETED):
            rows = self._spark.sql(f"SHOW TBLPROPERTIES delta.{quoted(self._path)}").collect()
        return next((str(row.value) for row in rows if row.key == name), None)

    def greatest(self, names: Sequence[str]) -> dict[str, int]:
        """See `Log`: the statistics are not public."""
        return {}
