"""Iceberg as a table format: `spark_consumer.formats.protocol.TableFormat`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from schemas.settings.consumer import Readers, ViewEngine
from spark_consumer.errors import SettingsError, TableError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.commit_metadata import Version
from spark_consumer.formats.iceberg.check import check_catalog, check_iceberg
from spark_consumer.formats.iceberg.metadata import Metadata
from spark_consumer.formats.iceberg.pointers import has_metadata
from spark_consumer.formats.iceberg.session import SESSION_SETTINGS, use_paths
from spark_consumer.formats.iceberg.table import IcebergTable, rows_of
from spark_consumer.formats.view_sql import ViewPlace, text_literal
from spark_consumer.spark.files import Folder

__all__ = ["IcebergFormat"]


@dataclass(frozen=True, slots=True)
class IcebergFormat:
    """Iceberg; see `TableFormat`.

    Attributes:
        readers: Readers that tables are made for.
        catalog: Catalog that has the tables; None if they are found by their folders.
    """

    readers: Readers = "current"
    catalog: Catalog | None = None

    @classmethod
    def checked(
        cls,
        spark: SparkSession,
        warehouse: str,
        readers: Readers = "current",
        catalog: Catalog | None = None,
    ) -> IcebergFormat:
        """Return the format, if the session can have such tables in a warehouse.

        Raises:
            SettingsError: it cannot; says why.
            TransientConsumerError: the catalog does not answer.
        """
        check_iceberg(spark, warehouse)
        if catalog is not None:
            check_catalog(spark, catalog)
        return cls(readers, catalog)

    @property
    def name(self) -> str:
        """See `TableFormat`."""
        return "Iceberg"

    @property
    def reserved(self) -> frozenset[str]:
        """See `TableFormat`."""
        return frozenset()

    def prepare(self, spark: SparkSession) -> None:
        """See `TableFormat`."""
        for key, value in SESSION_SETTINGS.items():
            spark.conf.set(key, value)
        self._use(spark)

    def _use(self, spark: SparkSession) -> None:
        use_paths(spark)
        if self.catalog is not None:
            self.catalog.prepare(spark)

    def has_table(self, spark: SparkSession, path: str) -> bool:
        """See `TableFormat`."""
        if self.catalog is None:
            return has_metadata(spark, path)
        # Readers ask for a table of any format: its catalog may be none of Iceberg's.
        if not Folder(spark, f"{path}/metadata").has():
            return False
        self._use(spark)
        return self._metadata(spark, path).table() is not None

    def _metadata(self, spark: SparkSession, path: str) -> Metadata:
        return Metadata(spark, path, path, self.catalog)

    def table(self, spark: SparkSession, path: str, label: str) -> IcebergTable:
        """See `TableFormat`."""
        self.prepare(spark)
        version: Literal[2, 3] = 2 if self.readers == "widest" else 3
        return IcebergTable(spark, path, label, version, self.catalog)

    def register(self, spark: SparkSession, path: str, label: str) -> bool:
        """See `TableFormat`: a table is made by the catalog that has it."""
        return True

    def rows_at(self, spark: SparkSession, path: str, version: Version) -> DataFrame:
        """See `TableFormat`."""
        self._use(spark)
        state = self._metadata(spark, path).state()
        if state is None:
            raise TableError(f"the folder {path} holds no Iceberg table")
        return rows_of(spark, state, version)

    def view_settings(self, folder: str, engine: ViewEngine) -> Sequence[str]:
        """See `TableFormat`."""
        if engine == "duckdb" and self.catalog is not None:
            raise SettingsError(
                "DuckDB has no views of Iceberg tables that a catalog has",
                hint="leave duckdb out of consumer.views",
            )
        # After it Iceberg expects the name of one of a table's metadata tables.
        if engine == "spark" and "#" in folder:
            raise SettingsError(
                "Spark has no views of Iceberg tables in a warehouse with # in its path",
                hint="use another folder, or leave spark out of consumer.views",
            )
        return ()

    def engine_version(self, spark: SparkSession, path: str, version: Version) -> str:
        """See `TableFormat`."""
        state = self._metadata(spark, path).state()
        snapshot = None if state is None else state.snapshot(version)
        if snapshot is None:
            raise TableError(f"the folder {path} holds no Iceberg table at version {version}")
        return str(snapshot.snapshotId())

    def view(self, place: ViewPlace, engine_version: str) -> str:
        """See `TableFormat`."""
        if self.catalog is not None:
            named = self.catalog.sql_name(place.path)
            return f"AS SELECT * FROM {named} VERSION AS OF {engine_version}"  # noqa: S608 - quoted
        folder = text_literal(place.path, place.engine)
        if place.engine == "spark":
            return f"USING iceberg OPTIONS (path {folder}, versionAsOf '{engine_version}')"
        return f"AS FROM iceberg_scan({folder}, snapshot_from_id={engine_version})"
