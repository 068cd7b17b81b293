"""Conversion of rows from binary to text format before anything reads them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import TypeAlias

from gateway.core.errors import SchemaError, ValueFormatError
from gateway.pgoutput.messages import BinaryValue, ColumnValue
from gateway.pgtypes.binary import FAULTS, Describe, compile_to_text

__all__ = ["RowToText", "compile_row"]

RowToText: TypeAlias = Callable[[list[ColumnValue]], None]
"""Function that replaces a row's binary values by their text, in place."""


def compile_row(
    relation: str,
    columns: Iterable[tuple[str, int]],
    read: Container[str],
    describe: Describe,
) -> RowToText:
    """Return the conversion of a relation's rows to text format.

    Types without a send function arrive as text even in binary mode and stay as they are, and so do
    columns that nobody reads. The function raises ValueFormatError for bytes that are not in their
    type's format.

    Args:
        relation: Name of the relation, for error messages.
        columns: Name and type OID of each column, as sent.
        read: Names of the columns that are published or that a filter reads.
        describe: Function that describes a type.

    Raises:
        SchemaError: a column's type no longer exists, or cannot be converted exactly.
    """
    conversions = []
    for index, (name, type_oid) in enumerate(columns):
        if name not in read:
            continue
        try:
            if describe(type_oid).send is not None:
                conversions.append((index, compile_to_text(type_oid, describe), name))
        except SchemaError as error:
            raise SchemaError(
                f"{relation}: column {name!r}: {error.message}", hint=error.hint
            ) from None

    def to_text(row: list[ColumnValue]) -> None:
        for index, convert, name in conversions:
            value = row[index]
            if type(value) is BinaryValue:
                try:
                    row[index] = convert(value)
                except FAULTS:
                    raise ValueFormatError(
                        f"{relation}: column {name!r}: a value is not in its type's binary format",
                        hint="without binary = true the server sends text; if the type was changed "
                        "by an extension's update, resynchronise the table",
                    ) from None

    return to_text
