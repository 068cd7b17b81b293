"""Read subscriber tables together, as they were at one LSN or time."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_consumer.errors import SettingsError, TableError
from spark_consumer.formats.catalog import read_catalog
from spark_consumer.formats.choice import format_at
from spark_consumer.history.columns import OWN
from spark_consumer.names import lsn_number, table_folder
from spark_consumer.spark.files import Folder
from spark_consumer.states.manifests import Manifest, Manifests, manifest_folder
from spark_consumer.states.points import find_state

__all__ = ["as_of", "read", "state_at"]


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
        table: Name as ``schema.table``, each part as in the names of folders; of a history
            ``schema.table__history``.
        at: LSN (``16/B374D848``), or time, as text in ISO 8601 or as a value; a time without a
            zone is UTC. The newest state at or before it is read; None for the newest of all.
        warehouse: Folder of the tables.
        spark: Session with the jars of the tables' format, and with the catalog if Iceberg tables
            have one.

    Raises:
        SettingsError: `at` is neither an LSN nor a time.
        TableError: there is no such state, or the table is not in it.
    """
    manifest = state_at(subscription, at=at, warehouse=warehouse, spark=spark)
    known = {name: state.version for name, state in manifest.every_table().items()}
    if table not in known:
        raise TableError(
            f"subscription {subscription} has no table {table} at that point",
            hint=f"it has {', '.join(sorted(known)) or 'none'}",
        )
    path = table_folder(warehouse, subscription, table)
    catalog = read_catalog(Folder(spark, manifest_folder(warehouse, subscription)))
    table_format = format_at(spark, path, catalog)
    if table_format is None:
        raise TableError(f"subscription {subscription}: there is no table in the folder of {table}")
    return table_format.rows_at(spark, path, known[table])


def as_of(history: DataFrame, lsn: str | int) -> DataFrame:
    """Return the rows that a table had at an LSN, of its history.

    Args:
        history: Rows of the history: `read` with `<schema>.<table>__history`, or any other way.
        lsn: LSN, as PostgreSQL prints it (``16/B374D848``), or as a number.

    Raises:
        SettingsError: `lsn` is none.
    """
    number = lsn if isinstance(lsn, int) else lsn_number(lsn)
    if number is None:
        raise SettingsError(f"{lsn!r} is not an LSN", hint="for example 16/B374D848")
    there = (F.col("_from_lsn") <= number) & (
        F.col("_to_lsn").isNull() | (F.col("_to_lsn") > number)
    )
    return history.where(there).drop(*(field.name for field in OWN))


def state_at(
    subscription: str, *, at: str | datetime | None, warehouse: str, spark: SparkSession
) -> Manifest:
    """Return the state of a subscription's tables at a point; see `read`."""
    return find_state(Manifests(spark, warehouse, subscription), subscription, at)
