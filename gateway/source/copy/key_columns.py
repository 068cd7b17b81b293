"""Key columns of a table as in its index: order, collation, type, operators.

A value of a key goes back to the server as a literal. Its type is never one whose input would run
code of the type's owner (`gateway.source.copy.literals`), and its operators are those by which the
server sorts, by name: under a search_path without the schema of an extension ``citext > citext``
would be ``text > text``, which sorts otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql

from gateway.copy import Key
from gateway.definitions.model import Table
from gateway.source.catalog.tables import FIRST_NORMAL_OID
from gateway.source.copy.errors import TableChanged
from gateway.source.copy.literals import LiteralType, literal_types

__all__ = [
    "KeyColumn",
    "KnownTypes",
    "among",
    "compared",
    "key_columns",
    "listed",
    "sorted_columns",
]

_KEY_INDEXES: Final = """
    SELECT i.indexrelid, a.attname, CASE WHEN k.collation_oid <> a.attcollation
            THEN pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname) END,
        a.atttypid, a.atttypmod
    FROM pg_catalog.pg_index AS i
    CROSS JOIN LATERAL ROWS FROM (
        pg_catalog.unnest(i.indkey::pg_catalog.int2[]),
        pg_catalog.unnest(i.indcollation::pg_catalog.oid[])) WITH ORDINALITY
        AS k (attnum, collation_oid, nr)
    JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    LEFT JOIN pg_catalog.pg_collation AS c ON c.oid = k.collation_oid
    LEFT JOIN pg_catalog.pg_namespace AS n ON n.oid = c.collnamespace
    WHERE i.indrelid = %s AND k.nr <= i.indnkeyatts AND (i.indisprimary OR i.indisreplident)
        AND i.indisvalid AND i.indisunique AND i.indimmediate AND i.indpred IS NULL
    ORDER BY i.indisprimary, i.indexrelid, k.nr"""

_TYPES: Final = """
    SELECT a.attname, a.atttypid, a.atttypmod FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = %s AND a.attname = ANY (%s) AND NOT a.attisdropped"""

# Those of the default operator class, by which ORDER BY sorts; 403 is btree. Only a superuser can
# make such a class. Types that have none of their own sort by operators of pg_catalog.
_OPERATORS: Final = """
    SELECT c.opcintype, pg_catalog.max(n.nspname::text)
    FROM pg_catalog.pg_opclass AS c
    JOIN pg_catalog.pg_amop AS m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype
        AND m.amoprighttype = c.opcintype AND m.amopstrategy = ANY ('{2,3,5}')
    JOIN pg_catalog.pg_operator AS o ON o.oid = m.amopopr
    JOIN pg_catalog.pg_namespace AS n ON n.oid = o.oprnamespace
    WHERE c.opcmethod = 403 AND c.opcdefault AND c.opcintype = ANY (%s)
    GROUP BY c.opcintype"""

_CATALOG: Final = "pg_catalog"

KnownTypes: TypeAlias = dict[tuple[int, int], tuple[LiteralType, str]]
"""Literal type and schema of the operators of PostgreSQL's own types, by OID and modifier.

They are the same for all tables, and asking for them takes longer than reading an empty table.
"""


@dataclass(frozen=True, slots=True)
class _IndexColumn:
    """A column of an index, or of a table: its collation as SQL, if it is not the column's."""

    name: str
    collation: str | None
    type: tuple[int, int]


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the key's index.

    Attributes:
        at: Position in the key.
        name: Name of the column.
        collation: Collation as SQL, if it is not the column's.
        type_name: Type of literals.
        cast: Whether the column has to be cast to that type to be compared with them.
        operators: Schema of the operators by which it is sorted.
    """

    at: int
    name: str
    collation: str | None
    type_name: str
    cast: bool = False
    operators: str = _CATALOG

    @property
    def sorting(self) -> sql.Composable:
        """Expression by which the table is sorted."""
        collation = "" if self.collation is None else f" COLLATE {self.collation}"
        return sql.SQL("{}{}").format(sql.Identifier(self.name), sql.SQL(collation))

    @property
    def operand(self) -> sql.Composable:
        """Expression with which literals are compared."""
        if not self.cast:
            return self.sorting
        collation = "" if self.collation is None else f" COLLATE {self.collation}"
        return sql.SQL("{}::{}{}").format(
            sql.Identifier(self.name), sql.SQL(self.type_name), sql.SQL(collation)
        )

    def literal(self, key: Key) -> sql.Composable:
        """Return the value of this column in `key`."""
        return sql.SQL("{}::{}").format(
            sql.Literal(key[self.at].decode()),
            sql.SQL(self.type_name),
        )


def key_columns(
    connection: psycopg.Connection[Any],
    table: Table,
    key: Sequence[str],
    known: KnownTypes | None = None,
) -> list[KeyColumn]:
    """Look up the index of a key; `known` are types of this connection, and is added to.

    Raises:
        TableChanged: it no longer exists.
        UnsafeType: see `gateway.source.copy.literals.literal_types`.
    """
    found = _index(connection, table, key)
    if found is None:
        raise TableChanged(f"copying {table}: its key's index is not there any more")
    return _typed(connection, table, key, found, {} if known is None else known)


def sorted_columns(
    connection: psycopg.Connection[Any], table: Table, key: Sequence[str]
) -> list[KeyColumn]:
    """Return the columns of a key in the order of its index; in the given order without one.

    Raises:
        TableChanged: one no longer exists.
    """
    found = _index(connection, table, key) or _columns(connection, table, key)
    return _typed(connection, table, key, found, {})


def _index(
    connection: psycopg.Connection[Any], table: Table, key: Sequence[str]
) -> list[_IndexColumn] | None:
    indexes: dict[int, list[_IndexColumn]] = {}
    for index, name, collation, *column_type in connection.execute(_KEY_INDEXES, [table.oid]):
        column = _IndexColumn(name, collation, (column_type[0], column_type[1]))
        indexes.setdefault(index, []).append(column)
    return next(
        (c for c in indexes.values() if sorted(each.name for each in c) == sorted(key)),
        None,
    )


def _columns(
    connection: psycopg.Connection[Any], table: Table, key: Sequence[str]
) -> list[_IndexColumn]:
    rows = connection.execute(_TYPES, [table.oid, list(key)]).fetchall()
    types = {name: (oid, modifier) for name, oid, modifier in rows}
    if types.keys() != set(key):
        raise TableChanged(f"copying {table}: a column of its key is not there any more")
    return [_IndexColumn(name, None, types[name]) for name in key]


def _typed(
    connection: psycopg.Connection[Any],
    table: Table,
    key: Sequence[str],
    columns: Sequence[_IndexColumn],
    known: KnownTypes,
) -> list[KeyColumn]:
    unknown = {column.name: column.type for column in columns if column.type not in known}
    found = {**known, **_types(connection, table, unknown)} if unknown else known
    # An owner can alter a type, and what its values would run with it; nobody alters these.
    known |= {of: found[of] for of in unknown.values() if of[0] < FIRST_NORMAL_OID}
    typed = []
    for column in columns:
        literal, operators = found[column.type]
        at = key.index(column.name)
        typed.append(
            KeyColumn(at, column.name, column.collation, literal.name, literal.cast, operators)
        )
    return typed


def _types(
    connection: psycopg.Connection[Any], table: Table, columns: Mapping[str, tuple[int, int]]
) -> KnownTypes:
    """Ask for the types of columns, given by their OID and modifier."""
    literals = literal_types(connection, table, columns)
    wanted = sorted({found.oid for found in literals.values()})
    schemas = dict(connection.execute(_OPERATORS, [wanted]).fetchall())
    return {
        columns[name]: (literal, schemas.get(literal.oid, _CATALOG))
        for name, literal in literals.items()
    }


def listed(columns: Sequence[KeyColumn]) -> sql.Composed:
    """Return the columns, as the table is sorted by them."""
    return sql.SQL(", ").join(column.sorting for column in columns)


def compared(columns: Sequence[KeyColumn], operator: str, key: Key) -> sql.Composed:
    """Return the condition that the columns are ``>`` or ``<=`` the values of a key, in order."""
    if {column.operators for column in columns} == {_CATALOG}:
        operands = sql.SQL(", ").join(column.operand for column in columns)
        values = sql.SQL(", ").join(column.literal(key) for column in columns)
        return sql.SQL("({}) {} ({})").format(operands, sql.SQL(operator), values)
    # Operators of several schemas cannot be named in one comparison of rows.
    first, *rest = columns
    last = _compare(first, operator, key)
    if not rest:
        return last
    strict = operator.rstrip("=")
    return sql.SQL("({} OR ({} AND {}))").format(
        _compare(first, strict, key), _compare(first, "=", key), compared(rest, operator, key)
    )


def among(columns: Sequence[KeyColumn], keys: Sequence[Key]) -> sql.Composed:
    """Return the condition that the columns have the values of one of `keys`."""
    if {column.operators for column in columns} == {_CATALOG}:
        operands = sql.SQL(", ").join(column.operand for column in columns)
        values = sql.SQL(", ").join(
            sql.SQL("({})").format(sql.SQL(", ").join(c.literal(key) for c in columns))
            for key in keys
        )
        return sql.SQL("({}) IN ({})").format(operands, values)
    return sql.SQL("({})").format(
        sql.SQL(" OR ").join(
            sql.SQL("({})").format(sql.SQL(" AND ").join(_compare(c, "=", key) for c in columns))
            for key in keys
        )
    )


def _compare(column: KeyColumn, operator: str, key: Key) -> sql.Composed:
    return sql.SQL("{} OPERATOR({}.{}) {}").format(
        column.operand, sql.Identifier(column.operators), sql.SQL(operator), column.literal(key)
    )
