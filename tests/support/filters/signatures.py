"""Signatures that a server has for filters: built-in immutable functions, operators and casts.

Read from the server that judges, not from the tables of the gateway, so that a gap in those shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

__all__ = ["Signature", "Type", "Types", "read_signatures", "read_types"]

_TYPES: Final = """
    SELECT t.oid::int8, t.typname::text, format_type(t.oid, -1), t.typtype::text,
           coalesce((SELECT e.oid FROM pg_type AS e WHERE e.typarray = t.oid), 0)::int8,
           t.typarray::int8,
           coalesce(r.rngsubtype, 0)::int8, coalesce(r.rngmultitypid, 0)::int8
    FROM pg_type AS t LEFT JOIN pg_range AS r ON r.rngtypid = t.oid
    WHERE t.oid < 10000 AND t.typnamespace = 'pg_catalog'::regnamespace
    AND (t.typtype IN ('b', 'r', 'm', 'p'))"""

_KEY: Final = """CASE l.lanname WHEN 'internal' THEN p.prosrc ELSE p.proname || '(' ||
    (SELECT coalesce(string_agg(t.typname, ',' ORDER BY a.n), '')
     FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a(oid, n)
     JOIN pg_type AS t ON t.oid = a.oid) || ')' END"""

_BUILT_IN: Final = """
    p.oid < 16384 AND p.provolatile = 'i' AND p.prokind = 'f' AND NOT p.proretset
    AND p.pronamespace = 'pg_catalog'::regnamespace
    AND NOT p.proargtypes::oid[] && ARRAY['internal', 'cstring', 'trigger']::regtype[]::oid[]
    AND p.prorettype <> ALL (
        ARRAY['internal', 'cstring', 'trigger', 'void', 'record']::regtype[])"""

_FUNCTIONS: Final = f"""
    SELECT {_KEY}, 'function', p.proname::text, p.proargtypes::oid[]::int8[], p.prorettype::int8,
           p.provariadic::int8, p.pronargdefaults::int
    FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang WHERE {_BUILT_IN}"""

_OPERATORS: Final = f"""
    SELECT {_KEY}, 'operator', o.oprname::text,
           CASE WHEN o.oprleft = 0 THEN ARRAY[o.oprright::int8]
                ELSE ARRAY[o.oprleft::int8, o.oprright::int8] END,
           o.oprresult::int8, 0, 0
    FROM pg_operator AS o JOIN pg_proc AS p ON p.oid = o.oprcode
    JOIN pg_language AS l ON l.oid = p.prolang WHERE o.oid < 16384 AND {_BUILT_IN}"""

_CASTS: Final = f"""
    SELECT coalesce({_KEY}, ''), 'cast', '', ARRAY[c.castsource::int8], c.casttarget::int8,
           0, 0
    FROM pg_cast AS c LEFT JOIN pg_proc AS p ON p.oid = c.castfunc
    LEFT JOIN pg_language AS l ON l.oid = p.prolang
    WHERE c.oid < 16384 AND c.castmethod IN ('f', 'b') AND coalesce(p.provolatile, 'i') = 'i'
    AND c.castsource <> c.casttarget"""


@dataclass(frozen=True, slots=True)
class Type:
    """A built-in type.

    Attributes:
        sql: How SQL writes it without a modifier.
        kind: ``typtype``: base, range, multirange, pseudo.
        element: OID of the items of an array type, else 0.
        array: The type of its arrays, else 0.
        subtype: OID of the bounds of a range type, else 0.
        multirange: OID of the multirange of a range type, else 0.
    """

    oid: int
    name: str
    sql: str
    kind: str
    element: int
    array: int
    subtype: int
    multirange: int


Types = Mapping[int, Type]


@dataclass(frozen=True, slots=True)
class Signature:
    """One way to call a function: by its name, by an operator, by a cast.

    Attributes:
        key: ``prosrc``, or ``proname(typname,typname)`` of a function in SQL; '' for a cast that
            changes no bytes.
        form: ``function``, ``operator`` or ``cast``.
        arguments: OIDs of types; some may be polymorphic.
        variadic: The element type of the last argument when that is VARIADIC, else 0.
        defaults: How many of the last arguments may be left out.
    """

    key: str
    form: str
    name: str
    arguments: tuple[int, ...]
    result: int
    variadic: int
    defaults: int

    def __str__(self) -> str:
        return f"{self.form} {self.name}{self.arguments} -> {self.result}, key {self.key}"


def read_types(connection: psycopg.Connection[Any]) -> Types:
    """The server's built-in types by OID."""
    return {row[0]: Type(*row) for row in connection.execute(_TYPES).fetchall()}


def read_signatures(connection: psycopg.Connection[Any]) -> Sequence[Signature]:
    """Every built-in immutable function, by each of its names, in an order that does not change."""
    rows = [
        row
        for query in (_FUNCTIONS, _OPERATORS, _CASTS)
        for row in connection.execute(query.encode()).fetchall()
    ]
    found = [
        Signature(key, form, name, tuple(arguments), result, variadic, defaults)
        for key, form, name, arguments, result, variadic, defaults in rows
    ]
    return sorted(found, key=str)
