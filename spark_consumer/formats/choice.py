"""Choice of the table format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from schemas.settings.tables import TableFormatName
from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.log_files import LOG, last_commit, rows_at
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.local_folder import ReadableFolder

__all__ = ["TableDetails", "format_at", "open_format", "open_formats", "table_details"]

_READERS: Final[tuple[TableFormat, ...]] = (DeltaFormat(private=False), IcebergFormat())
"""Each format, for those who use its public interface only."""


@dataclass(frozen=True, slots=True)
class TableDetails:
    """Facts that a table's own files have, without a session; None where they lack them.

    Attributes:
        rows: Number of rows.
        commit: Metadata of the job's last commit.
    """

    rows: int | None
    commit: Commit | None


def table_details(
    open_folder: Callable[[str], ReadableFolder], path: str, version: Version
) -> TableDetails:
    """Return what is known of the table in a folder at a version."""
    log = open_folder(f"{path}/{LOG}")
    return TableDetails(rows_at(log, version), last_commit(log, version))


def open_formats(
    spark: SparkSession, settings: ConsumerSettings, subscriptions: Iterable[str]
) -> dict[str, TableFormat]:
    """Return the format of each subscription's tables.

    Raises:
        SettingsError: the session cannot use one of them; says what is missing.
    """
    kinds = {name: settings.format_of(name) for name in subscriptions}
    opened = {kind: open_format(spark, settings, kind) for kind in sorted(set(kinds.values()))}
    return {name: opened[kind] for name, kind in kinds.items()}


def open_format(
    spark: SparkSession, settings: ConsumerSettings, kind: TableFormatName
) -> TableFormat:
    """Return a format for the job's tables.

    Raises:
        SettingsError: the session cannot use it; says what is missing.
    """
    if kind == "iceberg":
        return IcebergFormat.checked(spark, settings.warehouse, settings.readers)
    return DeltaFormat.checked(spark, settings.delta_private, settings.readers)


def format_at(spark: SparkSession, path: str) -> TableFormat | None:
    """Return the format of the table in a folder, for its readers; None if there is no table."""
    return next((one for one in _READERS if one.has_table(spark, path)), None)
