"""Literal types for values that the gateway sends back to the server.

Reading a text as a value can run code that is not PostgreSQL's: the CHECK of a domain, and the
canonical function of a range type. A type with neither in it is safe, because only a superuser can
make a base type. A literal of a domain is therefore one of the type under it, and one of an array
of a domain is an array of that.

Source: domain_in in domains.c; range_in and make_range in rangetypes.c; "CREATE TYPE" in the
manual.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from gateway.definitions.model import Table
from gateway.source.copy.errors import TableUnreadable

__all__ = ["LiteralType", "UnsafeType", "literal_types"]

# The type under its domains, and that of the elements of an array under theirs.
_BASES: Final = """
    WITH RECURSIVE under (root, oid, modifier, level) AS (
        SELECT w.oid, w.oid, w.modifier, 0
        FROM ROWS FROM (
            pg_catalog.unnest(%(types)s::pg_catalog.oid[]),
            pg_catalog.unnest(%(modifiers)s::pg_catalog.int4[])) AS w (oid, modifier)
      UNION ALL
        SELECT u.root, t.typbasetype, t.typtypmod, u.level + 1
        FROM under AS u JOIN pg_catalog.pg_type AS t ON t.oid = u.oid WHERE t.typtype = 'd'),
    base AS (SELECT DISTINCT ON (root) root, oid, modifier FROM under ORDER BY root, level DESC),
    element (root, oid, level) AS (
        SELECT b.root, t.typelem, 0
        FROM base AS b JOIN pg_catalog.pg_type AS t ON t.oid = b.oid
        WHERE t.typcategory = 'A' AND t.typelem <> 0
      UNION ALL
        SELECT e.root, t.typbasetype, e.level + 1
        FROM element AS e JOIN pg_catalog.pg_type AS t ON t.oid = e.oid WHERE t.typtype = 'd'),
    plain AS (SELECT DISTINCT ON (root) root, oid, level FROM element ORDER BY root, level DESC)
    SELECT b.root,
        CASE WHEN p.level > 0 THEN a.typarray ELSE b.oid END,
        CASE WHEN p.level > 0 THEN -1 ELSE b.modifier END,
        coalesce(p.level, 0) > 0
    FROM base AS b LEFT JOIN plain AS p ON p.root = b.root
    LEFT JOIN pg_catalog.pg_type AS a ON a.oid = p.oid"""

# A type and all its parts; 16384 is the first OID of a user's object.
_UNSAFE: Final = """
    WITH RECURSIVE part (root, oid) AS (
        SELECT w.oid, w.oid FROM pg_catalog.unnest(%(types)s::pg_catalog.oid[]) AS w (oid)
      UNION
        SELECT p.root, m.oid FROM part AS p JOIN pg_catalog.pg_type AS t ON t.oid = p.oid
        CROSS JOIN LATERAL (
            SELECT t.typbasetype UNION ALL SELECT t.typelem
          UNION ALL
            SELECT r.rngsubtype FROM pg_catalog.pg_range AS r
            WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
          UNION ALL
            SELECT a.atttypid FROM pg_catalog.pg_attribute AS a
            WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0
                AND NOT a.attisdropped) AS m (oid)
        WHERE m.oid <> 0)
    SELECT DISTINCT p.root, pg_catalog.format_type(p.oid, NULL)
    FROM part AS p JOIN pg_catalog.pg_type AS t ON t.oid = p.oid
    WHERE t.typtype = 'd' OR EXISTS (
        SELECT FROM pg_catalog.pg_range AS r
        WHERE p.oid IN (r.rngtypid, r.rngmultitypid) AND r.rngcanonical::pg_catalog.oid >= 16384)
    ORDER BY 1, 2"""

_NAMES: Final = """
    SELECT w.oid, w.modifier, pg_catalog.format_type(w.oid, w.modifier)
    FROM ROWS FROM (
        pg_catalog.unnest(%(types)s::pg_catalog.oid[]),
        pg_catalog.unnest(%(modifiers)s::pg_catalog.int4[])) AS w (oid, modifier)"""


class UnsafeType(TableUnreadable):
    """Raised for a type whose values the server cannot read without running code of its owner."""


@dataclass(frozen=True, slots=True)
class LiteralType:
    """Type to which a literal for a column is cast.

    Attributes:
        oid: OID of the type.
        name: Name as SQL, under a search_path of ``pg_catalog``.
        cast: Whether it is not the column's type under its domains: the column has to be cast, too.
        unsafe: The part of the type, as SQL, whose owner's code would run, or None.
    """

    oid: int
    name: str
    cast: bool = False
    unsafe: str | None = None


def literal_types(
    connection: psycopg.Connection[Any],
    table: Table,
    columns: Mapping[str, tuple[int, int]],
    *,
    allow_unsafe: bool = False,
) -> dict[str, LiteralType]:
    """Return the type of literals for each column, given by its type's OID and modifier.

    Raises:
        UnsafeType: a column has none, unless `allow_unsafe`.
        psycopg.Error: the server refuses, or is gone.
    """
    wanted = dict(columns.values())
    parameters = {"types": list(wanted), "modifiers": list(wanted.values())}
    bases = {root: tuple(rest) for root, *rest in connection.execute(_BASES, parameters)}
    found: dict[str, LiteralType] = {}
    named: dict[tuple[int, int], str] = {}
    pairs = []
    for oid, modifier in columns.values():
        base, base_modifier, _ = bases[oid]
        pairs.append((base, modifier if base == oid else base_modifier))
    listed = {"types": [oid for oid, _ in pairs], "modifiers": [m for _, m in pairs]}
    for oid, modifier, name in connection.execute(_NAMES, listed):
        named[oid, modifier] = name
    unsafe: dict[int, str] = {}
    for root, part in connection.execute(_UNSAFE, {"types": sorted({oid for oid, _ in pairs})}):
        unsafe.setdefault(root, part)
    for (column, (oid, _)), (base, modifier) in zip(columns.items(), pairs, strict=True):
        if base in unsafe and not allow_unsafe:
            raise UnsafeType(
                f"table {table}: a key with the type {named[base, modifier]} of column {column} "
                f"cannot be read in ranges: {unsafe[base]}, which is in it, would run code of its "
                "owner in the gateway's session",
                hint="leave the table out, or give it a replica identity without that column",
            )
        found[column] = LiteralType(base, named[base, modifier], bases[oid][2], unsafe.get(base))
    return found
