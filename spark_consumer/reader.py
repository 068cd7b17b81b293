"""Read subscriber tables together, as they were at one LSN or time."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from spark_consumer.display import shown
from spark_consumer.errors import SettingsError, TableError
from spark_consumer.formats.choice import reading_format
from spark_consumer.names import lsn_text, table_folder
from spark_consumer.states.manifests import Manifest, Manifests

__all__ = ["print_tables", "read", "state_at"]

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


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
        spark: Session with Delta.

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
    return reading_format().rows_at(spark, path, manifest.tables[table].version)


def state_at(
    subscription: str, *, at: str | datetime | None, warehouse: str, spark: SparkSession
) -> Manifest:
    """Return the state of a subscription's tables at a point; see `read`."""
    manifests = Manifests(spark, warehouse, subscription)
    if at is None:
        manifest = manifests.newest()
    elif isinstance(at, str) and (lsn := _LSN.fullmatch(at)):
        manifest = manifests.at(lsn=(int(lsn[1], 16) << 32) + int(lsn[2], 16))
    else:
        manifest = manifests.at(commit_time=_microseconds(at))
    if manifest is None:
        raise TableError(
            f"subscription {subscription} has no state at or before {at or 'now'}",
            hint="keep_hours says for how long states are kept",
        )
    return manifest


def print_tables(subscription: str, *, at: str | None, warehouse: str, spark: SparkSession) -> None:
    """Print the versions of a subscription's tables at a point, ``name: value`` a line."""
    manifest = state_at(subscription, at=at, warehouse=warehouse, spark=spark)
    print(f"subscription: {shown(subscription)}")
    print(f"from: {lsn_text(manifest.since_lsn)}")
    print(f"up to: {lsn_text(manifest.end_lsn)}")
    for name, state in sorted(manifest.tables.items()):
        print(f"table {shown(name)}: version {state.version}")
    for line in manifest.missing():
        print(f"incomplete: {shown(line)}")


def _microseconds(at: str | datetime) -> int:
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise SettingsError(
                f"{at!r} is neither an LSN nor a time", hint="for example 16/B374D848, 2026-03-01"
            ) from None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
