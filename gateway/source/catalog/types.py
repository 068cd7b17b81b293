"""Descriptions of types in the source database, for reading their binary formats."""

from __future__ import annotations

from typing import Any, Final

import psycopg

from gateway.core.errors import SchemaError
from gateway.pgtypes.binary import Attribute, TypeInfo

__all__ = ["TypeReader", "read_type_info"]

_Connection = psycopg.Connection[Any]

# The OID of the language "internal" is fixed (INTERNALlanguageId).
_TYPE: Final = """
    SELECT pg_catalog.format_type(t.oid, NULL), t.typtype::pg_catalog.text,
        CASE WHEN o.prolang = 12 THEN o.prosrc ELSE '' END,
        CASE WHEN t.typsend = 0 THEN NULL WHEN s.prolang = 12 THEN s.prosrc ELSE '' END,
        t.typdelim::pg_catalog.text, t.typbasetype, t.typelem,
        coalesce(
            (SELECT r.rngsubtype FROM pg_catalog.pg_range AS r WHERE r.rngtypid = t.oid),
            (SELECT r.rngtypid FROM pg_catalog.pg_range AS r WHERE r.rngmultitypid = t.oid),
            0),
        ARRAY(
            SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY a.attnum),
        ARRAY(
            SELECT a.atttypid FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY a.attnum)
    FROM pg_catalog.pg_type AS t
    LEFT JOIN pg_catalog.pg_proc AS o ON o.oid = t.typoutput
    LEFT JOIN pg_catalog.pg_proc AS s ON s.oid = t.typsend
    WHERE t.oid = %s"""


def read_type_info(connection: _Connection, oid: int) -> TypeInfo:
    """Describe a type as it is now.

    Raises:
        SchemaError: there is no such type.
        psycopg.Error: the server refuses, or is gone.
    """
    row = connection.execute(_TYPE, (oid,)).fetchone()
    if row is None:
        raise SchemaError(
            f"the type with OID {oid} no longer exists in the source database",
            hint="resynchronise the table: its old rows cannot be read in binary format any more",
        )
    name, kind, output, send, delimiter, base, element, range_oid, names, types = row
    return TypeInfo(
        oid=oid,
        name=name,
        kind=kind,
        output=output,
        send=send,
        delimiter=delimiter,
        base_oid=base,
        element_oid=element,
        range_oid=range_oid,
        attributes=tuple(Attribute(n, t) for n, t in zip(names, types, strict=True)),
    )


class TypeReader:
    """Descriptions of types, each of which is read from the server once.

    Changes possible under an OID in use do not matter here: attributes of a composite type are
    named by every value of it.
    """

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._known: dict[int, TypeInfo] = {}

    def __call__(self, oid: int) -> TypeInfo:
        """Describe a type; see `read_type_info`."""
        known = self._known.get(oid)
        if known is None:
            known = self._known[oid] = read_type_info(self._connection, oid)
        return known
