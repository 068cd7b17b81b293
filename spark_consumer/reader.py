"""Read subscriber tables together, as they were at one LSN or time."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession

from spark_consumer.errors import TableError
from spark_consumer.formats.choice import format_at
from spark_consumer.names import table_folder
from spark_consumer.states.manifests import Manifest, Manifests, find_state

__all__ = ["read", "state_at"]


def read(
    subscription: str,
    table: str,
    *,
    at: str | datetime | None = None,
    warehouse: str,
    spark: SparkSession,
) -> DataFrame:
    """Return a subscriber table; tables read at the same point show the source at one LSN.

    Args:
        subscription: Name of the subscription.
        table: Name as ``schema.table``, each part as in the names of folders.
        at: LSN (``16/B374D848``), or time, as text in ISO 8601 or as a value; a time without a
            zone is UTC. The newest state at or before it is read; None for the newest of all.
        warehouse: Folder of the tables.
        spark: Session with the jars of the tables' format.

    Raises:
        SettingsError: `at` is neither an LSN nor a time.
        TableError: there is no such state, or the table is not in it.
    """
    manifest = state_at(subscription, at=at, warehouse=warehouse, spark=spark)
    if table not in manifest.tables:
        raise TableError(
            f"subscription {subscription} has no table {table} at that point",
            hint=f"it has {', '.join(sorted(manifest.tables)) or 'none'}",
        )
    path = table_folder(warehouse, subscription, table)
    table_format = format_at(spark, path)
    if table_format is None:
        raise TableError(f"subscription {subscription}: there is no table in the folder of {table}")
    return table_format.rows_at(spark, path, manifest.tables[table].version)


def state_at(
    subscription: str, *, at: str | datetime | None, warehouse: str, spark: SparkSession
) -> Manifest:
    """Return the state of a subscription's tables at a point; see `read`."""
    return find_state(Manifests(spark, warehouse, subscription), subscription, at)
