"""Partitions as in the catalog."""

from __future__ import annotations

from collections.abc import Collection

import psycopg

__all__ = ["partition_conditions"]


def partition_conditions(
    connection: psycopg.Connection, partitions: Collection[int]
) -> dict[int, str]:
    """Return the partition constraint of each partition, by OID, in its tree's columns.

    Names in it are qualified, except those of ``pg_catalog``. Relations that are no longer
    partitions are left out.
    """
    if not partitions:
        return {}
    with connection.transaction():
        connection.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        found = connection.execute(
            "SELECT oid, pg_catalog.pg_get_partition_constraintdef(oid)"
            " FROM pg_catalog.pg_class WHERE oid = ANY (%s)",
            [sorted(partitions)],
        ).fetchall()
    return {oid: condition for oid, condition in found if condition is not None}
