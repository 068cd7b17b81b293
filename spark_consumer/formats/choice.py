"""Choice of the table format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.log_files import LOG, last_commit, rows_at
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.local_folder import ReadableFolder

__all__ = ["TableDetails", "open_format", "reading_format", "table_details"]


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


def open_format(spark: SparkSession, settings: ConsumerSettings) -> TableFormat:
    """Return the format of the job's tables: Delta Lake, until there is another one to choose.

    Raises:
        SettingsError: the session cannot use it; says what is missing.
    """
    return DeltaFormat.checked(spark, settings.delta_private)


def reading_format() -> TableFormat:
    """Return the format for readers of states, who use its public interface only."""
    return DeltaFormat(private=False)
