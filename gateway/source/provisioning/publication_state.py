"""Current state of the gateway's own publications on the source server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from gateway.definitions.model import IDENTIFYING, Operation
from gateway.source.session.server_errors import classify_server_error

__all__ = ["Existing", "read_existing", "read_member_oids", "read_with_updates"]


@dataclass(frozen=True, slots=True)
class Existing:
    """A publication as it is on the server.

    Attributes:
        plain: Whether it has nothing but FOR TABLE, without column lists.
        filters: Filters by OID, as the server prints them; none if they were not read.
        rows: OID of the row of the catalog that makes a table a member, by the table's OID.
        listed: OIDs of the tables with a column list.
        version: Transaction that has altered it last, beside its members.
        owner: OID of its owner.
    """

    table_oids: frozenset[int]
    operations: frozenset[Operation]
    via_root: bool
    generated: bool
    plain: bool
    filters: Mapping[int, str]
    rows: Mapping[int, int]
    listed: frozenset[int]
    version: str
    owner: int

    def is_like(self, other: Existing) -> bool:
        """Whether two publications have the same owner and publish their members in one way."""
        return (self.owner, self.operations, self.via_root, self.generated) == (
            other.owner,
            other.operations,
            other.via_root,
            other.generated,
        )


def read_existing(
    connection: psycopg.Connection[Any], names: Sequence[str], *, filters: bool = True
) -> dict[str, Existing]:
    """Return those of `names` that exist; filters as the session's settings have them printed.

    Args:
        connection: Connection to the source.
        names: Names of publications.
        filters: Whether to print the filters, for which the server locks their tables. Another
            filter is another row of the catalog in any case.

    Raises:
        psycopg.Error: the server refuses, or is gone.
    """
    version = connection.info.server_version
    generated = "p.pubgencols = 's'" if version >= 180000 else "false"
    plain, printed, listed = "NOT p.puballtables", "NULL", "NULL"
    if version >= 150000:
        plain += (
            " AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_namespace AS n"
            " WHERE n.pnpubid = p.oid)"
            " AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel AS r"
            " WHERE r.prpubid = p.oid AND r.prattrs IS NOT NULL)"
        )
        listed = (
            "ARRAY(SELECT r.prrelid FROM pg_catalog.pg_publication_rel AS r"
            " WHERE r.prpubid = p.oid AND r.prattrs IS NOT NULL)"
        )
    if filters and version >= 150000:
        printed = (
            "(SELECT pg_catalog.json_object_agg(r.prrelid,"
            " pg_catalog.pg_get_expr(r.prqual, r.prrelid))"
            " FROM pg_catalog.pg_publication_rel AS r"
            " WHERE r.prpubid = p.oid AND r.prqual IS NOT NULL)"
        )
    rows = connection.execute(
        "SELECT p.pubname, ARRAY("  # noqa: S608
        "SELECT r.prrelid FROM pg_catalog.pg_publication_rel AS r WHERE r.prpubid = p.oid"
        " ORDER BY r.oid),"
        " p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate,"
        f" p.pubviaroot, {generated}, {plain}, {printed},"
        " ARRAY(SELECT r.oid FROM pg_catalog.pg_publication_rel AS r WHERE r.prpubid = p.oid"
        f" ORDER BY r.oid), {listed}, p.xmin::text, p.pubowner"
        " FROM pg_catalog.pg_publication AS p"
        " WHERE p.pubname = ANY(%s) ORDER BY p.pubname".encode(),
        (list(names),),
    )
    order = (Operation.INSERT, Operation.UPDATE, Operation.DELETE, Operation.TRUNCATE)
    return {
        row[0]: Existing(
            table_oids=frozenset(row[1]),
            operations=frozenset(o for o, on in zip(order, row[2:6], strict=True) if on),
            via_root=row[6],
            generated=row[7],
            plain=row[8],
            filters={int(oid): text for oid, text in (row[9] or {}).items()},
            rows=dict(zip(row[1], row[10], strict=True)),
            listed=frozenset(row[11] or ()),
            version=row[12],
            owner=row[13],
        )
        for row in rows
    }


def read_member_oids(
    connection: psycopg.Connection[Any], names: Sequence[str]
) -> dict[str, frozenset[int]]:
    """Return the OIDs of the tables in those of `names` that exist; waits for no lock.

    Raises:
        FatalError, TransientError: the catalog cannot be read.
    """
    return {name: found.table_oids for name, found in _read_members(connection, names).items()}


def read_with_updates(connection: psycopg.Connection[Any], names: Sequence[str]) -> frozenset[int]:
    """Return the OIDs of the tables of which the publications have updates or deletes.

    Raises:
        FatalError, TransientError: the catalog cannot be read.
    """
    return frozenset(
        oid
        for found in _read_members(connection, names).values()
        if not found.operations.isdisjoint(IDENTIFYING)
        for oid in found.table_oids
    )


def _read_members(connection: psycopg.Connection[Any], names: Sequence[str]) -> dict[str, Existing]:
    try:
        return read_existing(connection, names, filters=False)
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        doing = "reading the gateway's publications"
        raise classify_server_error(error.sqlstate, text, doing=doing) from None
