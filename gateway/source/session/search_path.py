"""Schemas of the role's own search_path, in which names of definitions are looked up.

`gateway.source.session.connection.SESSION_SETTINGS` hides that path from the gateway's sessions;
it is read through a second connection without these settings, which is closed at once.
"""

from __future__ import annotations

from typing import Final, LiteralString

import psycopg

from gateway.source.session.server_errors import classify_server_error
from gateway.source.session.session import Session, open_session

__all__ = ["forget_schemas", "role_schemas", "withheld_schemas"]

_SCHEMAS: Final[LiteralString] = "SELECT pg_catalog.current_schemas(false)::pg_catalog.text[]"
_WITHHELD: Final[LiteralString] = r"""
    SELECT ARRAY(
        SELECT n.nspname::pg_catalog.text
        FROM pg_catalog.regexp_matches(
            pg_catalog.current_setting('search_path'), '"(?:[^"]|"")*"|[^",\s]+', 'g') AS m(part),
        LATERAL (SELECT CASE
            WHEN m.part[1] OPERATOR(pg_catalog.=) '"$user"' THEN current_user::pg_catalog.text
            WHEN pg_catalog.starts_with(m.part[1], '"') THEN pg_catalog.replace(
                pg_catalog.substr(
                    m.part[1], 2, pg_catalog.length(m.part[1]) OPERATOR(pg_catalog.-) 2),
                '""', '"')
            ELSE pg_catalog.lower(m.part[1]) END) AS w(name)
        JOIN pg_catalog.pg_namespace AS n
            ON n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) w.name
        WHERE NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
    )"""
"""The names in a search_path are read as SplitIdentifierString() in varlena.c reads them."""


def role_schemas(connection: psycopg.Connection) -> tuple[str, ...]:
    """Return the schemas in which the role finds a name that is written without one.

    These are the existing schemas of its search_path, in order; ``pg_catalog`` only if it is
    listed. A `Session` keeps the answer until `forget_schemas`.

    Raises:
        TransientError, FatalError: as `gateway.source.session.connection.connect`.
    """
    if not isinstance(connection, Session):
        return _query(connection, _SCHEMAS)
    if connection.schemas is None:
        connection.schemas = _query(connection, _SCHEMAS)
    return connection.schemas


def forget_schemas(connection: psycopg.Connection) -> None:
    """Let `role_schemas` ask again: schemas may be new, or the right to use them."""
    if isinstance(connection, Session):
        connection.schemas = None


def withheld_schemas(connection: psycopg.Connection) -> tuple[str, ...]:
    """Return the schemas of the role's search_path that exist and that it may not use.

    PostgreSQL leaves them out of the path, and so does `role_schemas`.

    Raises:
        TransientError, FatalError: as `gateway.source.session.connection.connect`.
    """
    return _query(connection, _WITHHELD)


def _query(connection: psycopg.Connection, query: LiteralString) -> tuple[str, ...]:
    """Return the schemas of `query` under the role's own settings.

    A connection that is no `Session` has them already.
    """
    try:
        if isinstance(connection, Session):
            with open_session(connection.plain, on_wait=connection.on_wait) as other:
                row = other.execute(query).fetchone()
        else:
            row = connection.execute(query).fetchone()
    except psycopg.Error as error:
        doing = "reading the search_path"
        raise classify_server_error(error.sqlstate, str(error), doing=doing) from None
    return () if row is None else tuple(row[0])
