"""SQL of the gateway's own publications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

import psycopg
from psycopg import sql

from gateway.core.identifiers import one_line
from gateway.definitions.model import Operation, ServerPublication

__all__ = [
    "LOCK_TIMEOUT",
    "add_tables",
    "drop_tables",
    "publication_options",
    "shown",
    "table_list",
    "table_names",
]

_Connection = psycopg.Connection[Any]

LOCK_TIMEOUT: Final = "SET LOCAL lock_timeout = '5s'"
"""Statement that bounds the wait for a table that is to be added."""


def shown(connection: _Connection, statements: Iterable[sql.Composed]) -> list[str]:
    """Return statements as they are shown to people, one line each."""
    return [one_line(statement.as_string(connection)) + ";" for statement in statements]


def add_tables(
    publication: str,
    names: Mapping[int, tuple[str, str]],
    filters: Mapping[int, tuple[str, ...]] = MappingProxyType({}),
) -> sql.Composed:
    """Return the statement that adds tables to a publication, given as for `table_list`."""
    return sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(
        sql.Identifier(publication), table_list(names, filters)
    )


def drop_tables(publication: str, names: Mapping[int, tuple[str, str]]) -> sql.Composed:
    """Return the statement that drops tables from a publication, given as for `table_list`."""
    return sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(
        sql.Identifier(publication), table_list(names)
    )


def table_names(connection: _Connection, oids: Iterable[int]) -> dict[int, tuple[str, str]]:
    """Return present schema and name of those tables that exist, by OID; some may be renamed."""
    rows = connection.execute(
        "SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class AS c"
        " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = ANY(%s)",
        (list(oids),),
    )
    return {oid: (schema, name) for oid, schema, name in rows}


def table_list(
    names: Mapping[int, tuple[str, str]],
    filters: Mapping[int, tuple[str, ...]] = MappingProxyType({}),
) -> sql.Composed:
    """Return a list of tables, given by OID with schema and name, in the order of their names."""
    # ONLY: heirs by inheritance are tables of their own in the plan.
    return sql.SQL(", ").join(
        sql.SQL("ONLY {}{}").format(sql.Identifier(*name), _where(filters.get(oid, ())))
        for oid, name in sorted(names.items(), key=itemgetter(1))
    )


def _where(filters: Sequence[str]) -> sql.Composable:
    if not filters:
        return sql.SQL("")
    union = sql.SQL(" OR ").join(sql.SQL("({})").format(sql.SQL(text)) for text in filters)
    return sql.SQL(" WHERE ({})").format(union)


def publication_options(connection: _Connection, publication: ServerPublication) -> sql.Composed:
    """Return the parameters of a publication, without WITH and brackets."""
    operations = [o.value for o in Operation if o in publication.operations]
    options = [
        sql.SQL("publish = {}").format(sql.Literal(", ".join(operations))),
        sql.SQL("publish_via_partition_root = {}").format(sql.Literal(publication.via_root)),
    ]
    if connection.info.server_version >= 180000:
        stored = "stored" if publication.generated else "none"
        options.append(sql.SQL("publish_generated_columns = {}").format(sql.SQL(stored)))
    return sql.SQL(", ").join(options)
