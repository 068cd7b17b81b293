"""Delta Lake as a table format: `spark_consumer.formats.protocol.TableFormat`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from schemas.settings.consumer import Readers, ViewEngine
from spark_consumer.display import logger
from spark_consumer.errors import SettingsError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.commit_metadata import Version
from spark_consumer.formats.delta.check import check_delta, difference
from spark_consumer.formats.delta.checkpoints import Checkpoints
from spark_consumer.formats.delta.files import FileCache
from spark_consumer.formats.delta.registration import check_catalog, register
from spark_consumer.formats.delta.session import SESSION_SETTINGS
from spark_consumer.formats.delta.table import DeltaTable
from spark_consumer.formats.view_sql import ViewPlace, text_literal
from spark_consumer.spark.files import Folder
from spark_consumer.spark.tuning import tuned

__all__ = ["DeltaFormat"]

_log: Final = logger(__name__)
_ANY_AGE: Final = {
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false"
}
"""Delta goes by the age of a version. A version that is old has been the newest until lately where
the table changes rarely, and then its files are there."""


@dataclass(frozen=True, slots=True)
class DeltaFormat:
    """Delta Lake; see `TableFormat`.

    Attributes:
        private: Whether classes of Delta that are not public are used; see `check`.
        readers: Readers that tables are made for.
        catalog: Session catalog, with the names of the tables; None if they have none.
        files: Files of tables, as far as known.
        checkpoints: Checkpoints of their logs.
    """

    private: bool = True
    readers: Readers = "current"
    catalog: Catalog | None = None
    files: FileCache = field(default_factory=FileCache, compare=False)
    checkpoints: Checkpoints = field(default_factory=Checkpoints, compare=False)

    @classmethod
    def checked(
        cls,
        spark: SparkSession,
        private: str,
        readers: Readers = "current",
        catalog: Catalog | None = None,
    ) -> DeltaFormat:
        """Return the format, with private classes if the session's Delta has them as tested.

        Args:
            spark: Session to check.
            private: `auto`, or `never` for the public interface only.
            readers: Readers that tables are made for.
            catalog: Catalog in which they get names; None for none.

        Raises:
            SettingsError: the session has no Delta, and the message says what is missing; or the
                catalog is not the session's.
        """
        check_delta(spark)
        if catalog is not None:
            check_catalog(catalog)
        why = "delta_private is never" if private == "never" else difference(spark)
        if why is not None:
            _log.warning("Delta is used by its public interface, which is slower: %s", why)
        return cls(why is None, readers, catalog)

    @property
    def name(self) -> str:
        """See `TableFormat`."""
        return "Delta"

    @property
    def reserved(self) -> frozenset[str]:
        """See `TableFormat`."""
        return frozenset({"_delta_log"})

    def prepare(self, spark: SparkSession) -> None:
        """See `TableFormat`."""
        for key, value in SESSION_SETTINGS.items():
            spark.conf.set(key, value)

    def has_table(self, spark: SparkSession, path: str) -> bool:
        """See `TableFormat`."""
        return Folder(spark, path).has("_delta_log")

    def table(self, spark: SparkSession, path: str, label: str) -> DeltaTable:
        """See `TableFormat`."""
        self.prepare(spark)
        widest = self.readers == "widest"
        kept = (self.files, self.checkpoints)
        return DeltaTable(spark, path, label, *kept, private=self.private, widest=widest)

    def register(self, spark: SparkSession, path: str, label: str) -> bool:
        """See `TableFormat`."""
        if self.catalog is None:
            return True
        return register(spark, self.catalog, path, label, exists=self.has_table(spark, path))

    def rows_at(self, spark: SparkSession, path: str, version: Version) -> DataFrame:
        """See `TableFormat`."""
        with tuned(spark, _ANY_AGE):
            return spark.read.format("delta").option("versionAsOf", version).load(path)

    def view_settings(self, folder: str, engine: ViewEngine) -> Sequence[str]:
        """See `TableFormat`."""
        if engine == "spark":
            return [f"SET {key}={value}" for key, value in _ANY_AGE.items()]
        if "%" in folder or "\\" in folder:
            raise SettingsError(
                "DuckDB reads no Delta tables in a warehouse with % or a backslash in its path",
                hint="use another folder, or leave duckdb out of consumer.views",
            )
        return ()

    def engine_version(self, spark: SparkSession, path: str, version: Version) -> str:
        """See `TableFormat`."""
        return str(version)

    def view(self, place: ViewPlace, engine_version: str) -> str:
        """See `TableFormat`."""
        folder = text_literal(place.path, place.engine)
        if place.engine == "spark":
            return f"USING delta OPTIONS (path {folder}, versionAsOf '{engine_version}')"
        return f"AS FROM delta_scan({folder}, version={engine_version})"
