"""Publications of the database as in its catalog: relations, filters, and exceptions.

The columns of the catalog are looked up first: PostgreSQL 19 keeps in the same table which
relations FOR ALL TABLES leaves out, and a row that is read without that mark would publish the
table.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from gateway.definitions.model import PublishedRelation
from gateway.source.catalog.locked_tables import (
    NEXT_LOCK_TIMEOUT,
    REMEMBERED_LOCK_TIMEOUT,
    RememberedFilters,
    TableLockedError,
    locked,
)

__all__ = ["Listed", "read_listed", "relations_query"]

_CATALOG: Final = "pg_catalog.pg_publication_rel"
_HAS_COLUMN: Final = """
    SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute
        WHERE attrelid = %s::pg_catalog.regclass AND attname = %s AND NOT attisdropped)"""

_RENDERING: Final = "pg_catalog.pg_get_expr(r.prqual, r.prrelid)"
_STORED: Final = """
    SELECT r.prrelid, r.prqual::pg_catalog.text, ARRAY(
        SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS a
        WHERE a.attrelid = r.prrelid AND a.attnum > 0 ORDER BY a.attnum)
    FROM {catalog} AS r WHERE r.prpubid = %s AND r.prqual IS NOT NULL"""

_remembered: Final = RememberedFilters()


@dataclass(frozen=True, slots=True)
class Listed:
    """Relations that a publication names.

    Attributes:
        relations: Published relations.
        excepted: OIDs of relations that FOR ALL TABLES leaves out, with their partitions.
        locked: Errors of further relations, whose filters cannot be read now.
    """

    relations: tuple[PublishedRelation, ...]
    excepted: frozenset[int]
    locked: tuple[TableLockedError, ...] = ()


def relations_query(*, filters: bool, excepts: bool, catalog: str = _CATALOG) -> str:
    """Write the query for the relations of one publication, given by its OID.

    Args:
        filters: Whether the catalog has row filters and column lists (15 and later).
        excepts: Whether it has ``prexcept`` (19 and later).
        catalog: Name of the catalog.
    """
    columns = ["r.prrelid", "NULL", "NULL"]
    if filters:
        columns[1:] = [
            _RENDERING,
            "CASE WHEN r.prattrs IS NOT NULL THEN ARRAY("
            "SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS a"
            " WHERE a.attrelid = r.prrelid AND a.attnum = ANY(r.prattrs::pg_catalog.int2[])"
            " ORDER BY a.attnum) END",
        ]
    columns.append("r.prexcept" if excepts else "false")
    listed = ", ".join(columns)
    return f"SELECT {listed} FROM {catalog} AS r WHERE r.prpubid = %s ORDER BY r.prrelid"  # noqa: S608


def read_listed(
    connection: psycopg.Connection[Any], publication_oid: int, catalog: str = _CATALOG
) -> Listed:
    """Read the relations of a publication; filters are printed as the session's settings say.

    Raises:
        psycopg.Error: the server refuses, or is gone.
    """
    columns = {
        name: connection.execute(_HAS_COLUMN, (catalog, name)).fetchall()[0][0]
        for name in ("prqual", "prexcept")
    }
    query = relations_query(filters=columns["prqual"], excepts=columns["prexcept"], catalog=catalog)
    errors: list[TableLockedError] = []
    stored = _stored(connection, publication_oid, catalog) if columns["prqual"] else {}
    try:
        with connection.transaction():
            if stored and all(key in _remembered for key in stored.values()):
                connection.execute(REMEMBERED_LOCK_TIMEOUT)
            rows = connection.execute(query.encode(), (publication_oid,)).fetchall()
    except psycopg.errors.LockNotAvailable:
        rows, errors = _one_by_one(connection, publication_oid, catalog, query, stored)
    else:
        new = {
            oid: where
            for oid, where, *_ in rows
            if oid in stored and where is not None and _remembered.get(stored[oid]) != where
        }
        # A column that was renamed in between may have either name in the rendering.
        same = _stored(connection, publication_oid, catalog) if new else {}
        for oid, where in new.items():
            if same.get(oid) == stored[oid]:
                _remembered.remember(stored[oid], where)
    return Listed(
        tuple(
            PublishedRelation(oid, where, None if names is None else tuple(names), None)
            for oid, where, names, excepted in rows
            if not excepted
        ),
        frozenset(oid for oid, _, _, excepted in rows if excepted),
        tuple(errors),
    )


def _stored(
    connection: psycopg.Connection[Any], publication_oid: int, catalog: str
) -> dict[int, Hashable]:
    """Return what decides on the rendering of each filter, by relation: read without a lock."""
    version = connection.info.server_version
    rows = connection.execute(_STORED.format(catalog=catalog).encode(), (publication_oid,))
    return {oid: (version, oid, filter, tuple(names)) for oid, filter, names in rows}


def _one_by_one(
    connection: psycopg.Connection[Any],
    publication_oid: int,
    catalog: str,
    query: str,
    stored: Mapping[int, Hashable],
) -> tuple[list[tuple[Any, ...]], list[TableLockedError]]:
    """Read the relations of which one is locked: each by itself.

    A filter of a locked relation is the one that is remembered; without one, it is an error.
    """
    connection.execute(NEXT_LOCK_TIMEOUT)
    members = f"SELECT prrelid, prrelid::pg_catalog.regclass::pg_catalog.text FROM {catalog}"  # noqa: S608
    one = query.replace("WHERE r.prpubid = %s", "WHERE r.prpubid = %s AND r.prrelid = %s")
    rows: list[tuple[Any, ...]] = []
    errors: list[TableLockedError] = []
    for oid, name in connection.execute(
        f"{members} WHERE prpubid = %s ORDER BY 1".encode(), (publication_oid,)
    ).fetchall():
        remembered = _remembered.get(stored.get(oid))
        try:
            with connection.transaction():
                if remembered is not None:
                    connection.execute(REMEMBERED_LOCK_TIMEOUT)
                rows += connection.execute(one.encode(), (publication_oid, oid)).fetchall()
        except psycopg.errors.LockNotAvailable:
            if remembered is None:
                errors.append(locked(connection, oid, name))
                continue
            without = one.replace(_RENDERING, "NULL").encode()
            found = connection.execute(without, (publication_oid, oid)).fetchall()
            rows += [(oid, remembered, *others) for _, _, *others in found]
    return rows, errors
