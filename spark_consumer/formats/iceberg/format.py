"""Iceberg as a table format: `spark_consumer.formats.protocol.TableFormat`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from schemas.settings.consumer import Readers, ViewEngine
from spark_consumer.errors import SettingsError, TableError
from spark_consumer.formats.commit_metadata import Version
from spark_consumer.formats.iceberg.check import check_iceberg
from spark_consumer.formats.iceberg.metadata import Metadata
from spark_consumer.formats.iceberg.session import SESSION_SETTINGS, use_paths
from spark_consumer.formats.iceberg.table import IcebergTable, rows_of
from spark_consumer.formats.view_sql import ViewPlace, text_literal
from spark_consumer.spark.files import Folder

__all__ = ["IcebergFormat"]

_METADATA: Final = re.compile(r"v\d+(\.gz)?\.metadata\.json(\.gz)?")


@dataclass(frozen=True, slots=True)
class IcebergFormat:
    """Iceberg; see `TableFormat`.

    Attributes:
        readers: Readers that tables are made for.
    """

    readers: Readers = "current"

    @classmethod
    def checked(
        cls, spark: SparkSession, warehouse: str, readers: Readers = "current"
    ) -> IcebergFormat:
        """Return the format, if the session can have such tables in a warehouse.

        Raises:
            SettingsError: it cannot; says why.
        """
        check_iceberg(spark, warehouse)
        return cls(readers)

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
        use_paths(spark)

    def has_table(self, spark: SparkSession, path: str) -> bool:
        """See `TableFormat`."""
        folder = Folder(spark, f"{path}/metadata")
        if folder.has("version-hint.text"):
            return True
        # A commit removes the hint for a moment. The jar may be missing where this is asked.
        return folder.has() and any(map(_METADATA.fullmatch, folder.names()))

    def table(self, spark: SparkSession, path: str, label: str) -> IcebergTable:
        """See `TableFormat`."""
        self.prepare(spark)
        return IcebergTable(spark, path, label, 2 if self.readers == "widest" else 3)

    def rows_at(self, spark: SparkSession, path: str, version: Version) -> DataFrame:
        """See `TableFormat`."""
        use_paths(spark)
        state = Metadata(spark, path, path).state()
        if state is None:
            raise TableError(f"the folder {path} holds no Iceberg table")
        return rows_of(spark, state, version)

    def view_settings(self, folder: str, engine: ViewEngine) -> Sequence[str]:
        """See `TableFormat`."""
        # Behind it Iceberg expects the name of one of a table's metadata tables.
        if engine == "spark" and "#" in folder:
            raise SettingsError(
                "Spark has no views of Iceberg tables in a warehouse with # in its path",
                hint="use another folder, or leave spark out of consumer.views",
            )
        return ()

    def engine_version(self, spark: SparkSession, path: str, version: Version) -> str:
        """See `TableFormat`."""
        state = Metadata(spark, path, path).state()
        snapshot = None if state is None else state.snapshot(version)
        if snapshot is None:
            raise TableError(f"the folder {path} holds no Iceberg table at version {version}")
        return str(snapshot.snapshotId())

    def view(self, place: ViewPlace, engine_version: str) -> str:
        """See `TableFormat`."""
        folder = text_literal(place.path, place.engine)
        if place.engine == "spark":
            return f"USING iceberg OPTIONS (path {folder}, versionAsOf '{engine_version}')"
        return f"AS FROM iceberg_scan({folder}, snapshot_from_id={engine_version})"
