"""Check of the definitions against the source's catalog, and later queries of it.

The check happens in one transaction that is rolled back; nothing remains on the server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final

import psycopg

from gateway.definitions.model import Catalog, Column, Definitions, Table
from gateway.pgtypes.binary import TypeInfo
from gateway.source.catalog.filter_text import refuse_generated_columns
from gateway.source.catalog.resolver import DefinitionLookup
from gateway.source.catalog.tables import describe_column, describe_table, read_parents
from gateway.source.catalog.types import TypeReader
from gateway.source.session.server_errors import classify_server_error

__all__ = ["ServerCatalog", "read_catalog"]

_Connection = psycopg.Connection[Any]

_LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '5s'"


def read_catalog(
    connection: _Connection,
    definitions: Definitions,
    known: Mapping[tuple[str, str], int] = MappingProxyType({}),
    also: Collection[int] = (),
) -> Catalog:
    """Look up everything that `definitions` names, in the session's search_path.

    The connection may be in autocommit mode or in a transaction of its own. No table stays locked
    for longer than the look at its filter takes. `Catalog.publications` holds every publication
    that is defined, and those of the database that a subscription names; `Catalog.tables` every
    table that one of them publishes, with ancestors and leaves.

    Args:
        connection: Connection to the source.
        definitions: Parsed definitions.
        known: OIDs of the tables that were published already, by schema and name: a table that
            is listed under one of these names may have been dropped or renamed.
        also: OIDs of further tables to describe, if they exist.

    Raises:
        DefinitionError: a named object does not exist or cannot be published.
        FilterError: a filter is not allowed; both in PostgreSQL's words and with the position.
        TransientError: the connection is gone, or a lock could not be had in time.
        AccessError: the role may not even create a temporary view.

    Source: CreatePublication and OpenTableList in publicationcmds.c, is_publishable_class and
    pub_collist_validate in pg_publication.c.
    """
    with _translated("reading the catalog"), connection.transaction(force_rollback=True):
        connection.execute(_LOCK_TIMEOUT)
        reader = DefinitionLookup(connection, definitions, known)
        publications = {p.name: reader.define(p) for p in definitions.publications}
        for subscription in definitions.subscriptions:
            for name in subscription.publications:
                if name not in publications:
                    publications[name] = reader.load(name, subscription)
        catalog = Catalog(
            tables=reader.tables(
                publications.values(), {*also, *(oid for _, oid in reader.broken)}
            ),
            publications=publications,
            publishes_generated=connection.info.server_version >= 180000,
            missing=tuple((*name, why) for name, why in reader.missing.items()),
            broken=reader.broken,
            parents=read_parents(connection) if definitions.masks else {},
        )
        if not catalog.publishes_generated:
            refuse_generated_columns(catalog, definitions)
        return catalog


class ServerCatalog:
    """The present catalog, read table by table: `gateway.routing.ports.CatalogReader`."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._types = TypeReader(connection)

    def table(self, oid: int) -> Table | None:
        """Describe a table or partitioned table, or return None when it is gone.

        Raises:
            TransientError: the connection is gone.
        """
        with _translated(f"describing the table with OID {oid}"):
            return describe_table(self._connection, oid)

    def column(self, name: str, type_oid: int, type_modifier: int) -> Column | None:
        """Describe a column of which only a Relation message is left; None if its type is gone.

        Raises:
            TransientError: the connection is gone.
        """
        with _translated(f"describing the type with OID {type_oid}"):
            return describe_column(self._connection, name, type_oid, type_modifier)

    def type_info(self, oid: int) -> TypeInfo:
        """Describe a type, for reading its binary format; each is read once.

        Raises:
            SchemaError: there is no such type.
            TransientError: the connection is gone.
        """
        with _translated(f"describing the type with OID {oid}"):
            return self._types(oid)


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Convert errors of the server."""
    try:
        yield
    except psycopg.Error as error:
        text = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, text, doing=doing) from None
