"""Texts of row filters that did not come from the catalog, checked before they are used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import psycopg

from gateway.core.errors import FilterError
from gateway.definitions.ddl.authentication import UntrustedMessageError
from gateway.rowfilter.permitted import functions_of
from gateway.source.session.server_errors import classify_server_error

__all__ = ["check_filters"]

_REFUSED: Final = """
SELECT f.name FROM pg_catalog.unnest(%s::pg_catalog.text[]) AS f (name)
WHERE NOT EXISTS (
    SELECT FROM pg_catalog.pg_proc AS p
    JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname = 'pg_catalog' AND p.proname = f.name
    AND p.prokind = 'f' AND NOT p.proretset AND p.provolatile = 'i' AND p.oid < 16384)
OR EXISTS (
    SELECT FROM pg_catalog.pg_proc AS p
    JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
    WHERE n.nspname = 'pg_catalog' AND p.proname = f.name
    AND (p.prokind <> 'f' OR p.proretset OR p.provolatile = 'v' OR p.oid >= 16384))
LIMIT 1
"""


def check_filters(connection: psycopg.Connection[Any], texts: Iterable[str]) -> None:
    """Check filters that a publication of this server could have.

    Raises:
        UntrustedMessageError: no publication can have one of them.
        TransientError: the connection is gone.
    """
    functions: set[str] = set()
    for text in set(texts):
        try:
            functions |= functions_of(text)
        except FilterError as error:
            raise UntrustedMessageError("filter", error.message) from None
    if not functions:
        return
    try:
        row = connection.execute(_REFUSED, (sorted(functions),)).fetchone()
    except psycopg.Error as error:
        shown = error.diag.message_primary or str(error)
        raise classify_server_error(error.sqlstate, shown, doing="checking a filter") from None
    if row is not None:
        raise UntrustedMessageError("filter", f"function {row[0]} is not a built-in immutable one")
