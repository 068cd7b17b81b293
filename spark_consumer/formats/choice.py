"""Choice of the table format."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from schemas.settings.tables import TableFormatName
from spark_consumer.errors import SettingsError
from spark_consumer.formats.catalog import Catalog
from spark_consumer.formats.commit_metadata import Commit, Version
from spark_consumer.formats.delta.format import DeltaFormat
from spark_consumer.formats.delta.log_files import LOG, last_commit, rows_at
from spark_consumer.formats.iceberg.format import IcebergFormat
from spark_consumer.formats.protocol import TableFormat
from spark_consumer.settings import ConsumerSettings
from spark_consumer.spark.local_folder import ReadableFolder

__all__ = ["TableDetails", "format_at", "open_format", "open_formats", "table_details"]


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
    """Return the format of each subscription's tables; those that are alike share what they know.

    Raises:
        SettingsError: the session cannot use one of them; says what is missing.
        TransientConsumerError: a catalog does not answer.
    """
    opened: dict[tuple[TableFormatName, str | None], TableFormat] = {}
    formats = {}
    for name in subscriptions:
        kind = settings.format_of(name), settings.catalog_of(name)
        if kind not in opened:
            opened[kind] = open_format(spark, settings, name)
        formats[name] = opened[kind]
    return formats


def open_format(spark: SparkSession, settings: ConsumerSettings, subscription: str) -> TableFormat:
    """Return the format of a subscription's tables.

    Raises:
        SettingsError: the session cannot use it, and the message says what is missing; or two
            settings exclude each other.
        TransientConsumerError: the catalog does not answer.
    """
    if settings.json == "variant" and settings.readers == "widest":
        raise SettingsError(
            'consumer.json = "variant" makes tables that few readers have, and consumer.readers ='
            ' "widest" asks for the opposite',
            hint='set json = "text", or readers = "current"',
        )
    catalog = Catalog.of(settings, subscription)
    if settings.format_of(subscription) == "iceberg":
        return IcebergFormat.checked(spark, settings.warehouse, settings.readers, catalog)
    return DeltaFormat.checked(spark, settings.delta_private, settings.readers, catalog)


def format_at(spark: SparkSession, path: str, catalog: Catalog | None = None) -> TableFormat | None:
    """Return the format of a table, for its readers; None if there is no table.

    Args:
        spark: Any session; with a catalog, one that has it.
        path: Folder of the table.
        catalog: Catalog of the table; None to look in the folder alone.
    """
    for one in (DeltaFormat(private=False), IcebergFormat(catalog=catalog)):
        if one.has_table(spark, path):
            return one
    return None
