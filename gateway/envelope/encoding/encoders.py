"""Tuples to Avro bytes, by functions that are generated for one relation.

The generated source holds nothing but positions and the names of the tables and functions below:
no identifier and no value of the user's gets into it. It is unrolled, column by column, because a
loop over prepared steps costs twice as much (bench/encode.py). `reference` says the same slowly.

A tuple's values are ``bytes`` in PostgreSQL's text format, None or UNCHANGED; both of the latter
are Avro's null in a row, and UNCHANGED is refused in a key.
"""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from struct import Struct
from types import CodeType
from typing import Any, Final, NoReturn, TypeAlias

from gateway.core.errors import SchemaError, ValueFormatError
from gateway.envelope.canonical import compile_canonical_key, partition_of
from gateway.envelope.encoding.conversions import (
    CONVERSIONS,
    EPOCH_SHIFT_US,
    ValueEncoder,
    array_encoder,
    unscaled_decimal,
    value_encoder,
    zoned_timestamp,
)
from gateway.envelope.encoding.generate import Step, encoder_source, items_source
from gateway.envelope.encoding.varint import (
    LENGTHS,
    PIECES,
    TAILS,
    UNION_LENGTHS,
    encode_long,
    encode_text,
)
from gateway.envelope.schema import Field, KeyKind, TableSchema
from gateway.pgoutput.messages import UNCHANGED, BinaryValue, ColumnValue
from gateway.pgtypes.datetimes.iso import parse_timestamp, parse_timestamptz

__all__ = [
    "EMPTY_ARRAY",
    "RowEncoder",
    "compile_canonical_key",
    "compile_key_encoder",
    "compile_old_encoder",
    "compile_row_encoder",
    "compile_unchanged_encoder",
    "partition_of",
]

RowEncoder: TypeAlias = Callable[[Sequence[ColumnValue]], bytes]

EMPTY_ARRAY: Final = b"\x00"
"""An Avro array without items."""

_NULL: Final = b"\x00"
_VALUE: Final = b"\x02"
"""Index of the second branch of ``["null", T]``."""


def compile_row_encoder(schema: TableSchema, indexes: Sequence[int]) -> RowEncoder:
    """Prepare tuple -> record ``Value``.

    Args:
        schema: The table as published.
        indexes: For each of `schema.fields`, the position of its column in the tuple.

    The result raises ValueFormatError, with relation and column, for a value that does not read or
    that its Avro type cannot carry, and for binary format.
    """
    return _compile(schema, list(zip(schema.fields, indexes, strict=True)))


def compile_old_encoder(
    schema: TableSchema, indexes: Sequence[int], identity: Collection[str]
) -> RowEncoder:
    """Prepare tuple -> record ``Value`` with the columns of `identity`; the others are null.

    For key tuples, where the other columns are sent as NULL and mean "not logged", and for new
    tuples that say the same as an old one that was not sent.
    """
    steps: list[Step] = [
        (field, index if field.column in identity else None)
        for field, index in zip(schema.fields, indexes, strict=True)
    ]
    return _compile(schema, steps)


def compile_key_encoder(schema: TableSchema, indexes: Sequence[int]) -> RowEncoder:
    """Prepare tuple -> record ``Key``.

    Raises:
        SchemaError: the table has no key.
    """
    if schema.key_kind is KeyKind.NONE:
        raise SchemaError(f"{schema} has no key")
    position = {field.name: index for field, index in zip(schema.fields, indexes, strict=True)}
    steps: list[Step] = [(field, position[field.name]) for field in schema.key_fields]
    if schema.has_nullable_key:
        return _compile(schema, steps, absent="null_only")
    return _compile(schema, steps, union=False, absent="refused")


def compile_place_encoder(schema: TableSchema, indexes: Sequence[int]) -> RowEncoder:
    """Prepare tuple -> `schema.place_fields` as Avro: equal where an UPDATE moves no row."""
    position = {field.name: index for field, index in zip(schema.fields, indexes, strict=True)}
    steps: list[Step] = [(field, position[field.name]) for field in schema.place_fields]
    return _compile(schema, steps, absent="null_only")


def compile_unchanged_encoder(schema: TableSchema, indexes: Sequence[int]) -> RowEncoder:
    """Prepare tuple -> Avro array of the names of the fields whose columns are UNCHANGED."""
    names = [
        (index, encode_text(field.name))
        for field, index in zip(schema.fields, indexes, strict=True)
    ]

    def encode_unchanged(row: Sequence[ColumnValue]) -> bytes:
        items = [name for index, name in names if row[index] is UNCHANGED]
        if not items:
            return EMPTY_ARRAY
        return encode_long(len(items)) + b"".join(items) + EMPTY_ARRAY

    return encode_unchanged


def _absent(value: ColumnValue) -> bytes:
    if value is None or value is UNCHANGED:
        return _NULL
    raise ValueError("a value is in binary format, which is not supported")


def _null_only(value: ColumnValue) -> bytes:
    if value is None:
        return _NULL
    raise ValueError("a key column is in binary format, or was not sent")


def _refused(value: ColumnValue) -> NoReturn:
    raise ValueError(
        "a key column is in binary format"
        if isinstance(value, BinaryValue)
        else "a key column is NULL, or was not sent"
    )


def _far_zigzag(n: int) -> bytes:
    """Encode a value that is zigzag already, of 2**14 or more."""
    pieces = []
    while n >= 0x4000:
        pieces.append(PIECES[n & 0x3FFF])
        n >>= 14
    pieces.append(TAILS[n])
    return b"".join(pieces)


def _union_far_zigzag(n: int) -> bytes:
    return _VALUE + _far_zigzag(n)


def _union_far_length(n: int) -> bytes:
    return _VALUE + encode_long(n)


class _Seconds(dict[bytes, int]):
    """``YYYY-MM-DD HH:MM:SS`` -> its microseconds since 1970, doubled."""

    __slots__ = ()

    def __missing__(self, text: bytes) -> int:
        if len(self) >= _SECONDS_LIMIT:
            self.clear()
        self[text] = doubled = parse_timestamp(text) + EPOCH_SHIFT_US << 1
        return doubled


_SECONDS_LIMIT: Final = 1 << 14

# Names for generated source. Every "U_" is its namesake after a union's branch index.
_SIZES: Final = tuple(encode_long(n) for n in range(32))
_NAMESPACE: Final[dict[str, Any]] = {
    "join": b"".join,
    "U": _VALUE,
    "NULL": _NULL,
    "EMPTY": b"",
    "BOOLEANS": {b"t": b"\x01", b"f": b"\x00"},
    "U_BOOLEANS": {b"t": b"\x02\x01", b"f": b"\x02\x00", None: _NULL, UNCHANGED: _NULL},
    "LENGTHS": LENGTHS,
    "U_LENGTHS": UNION_LENGTHS,
    "far_length": encode_long,
    "U_far_length": _union_far_length,
    "TAILS": TAILS,
    "U_TAILS": tuple(_VALUE + tail for tail in TAILS),
    "PIECES": PIECES,
    "U_PIECES": tuple(_VALUE + piece for piece in PIECES),
    "far": _far_zigzag,
    "U_far": _union_far_zigzag,
    "SIZES": _SIZES,
    "U_SIZES": tuple(_VALUE + size for size in _SIZES),
    "float4": Struct("<f").pack,
    "U_float4": Struct("<cf").pack,
    "float8": Struct("<d").pack,
    "U_float8": Struct("<cd").pack,
    "unscaled_decimal": unscaled_decimal,
    "zoned_timestamp": zoned_timestamp,
    "unhexlify": unhexlify,
    "SECONDS": _Seconds(),
    "parse_timestamp": parse_timestamp,
    "parse_timestamptz": parse_timestamptz,
    "ValueFormatError": ValueFormatError,
    "absent": _absent,
    "null_only": _null_only,
    "refused": _refused,
    **{f"read_{name}": read for name, read in CONVERSIONS.items()},
}


def _compile(
    schema: TableSchema, steps: Sequence[Step], *, union: bool = True, absent: str = "absent"
) -> RowEncoder:
    present = [(field, index) for field, index in steps if index is not None]

    def explain(row: Sequence[ColumnValue], error: Exception) -> ValueFormatError:
        """Find the column at fault, by converting one after the other."""
        for field, index in present:
            value = row[index]
            try:
                if type(value) is bytes:
                    value_encoder(field)(value)
                else:
                    _NAMESPACE[absent](value)
            except (ValueError, OverflowError, ValueFormatError) as fault:
                hint = fault.hint if isinstance(fault, ValueFormatError) else None
                if hint is None and field.type.choice and type(value) is bytes:
                    hint = (
                        f'carry the column as text ([types.columns] "{schema}.{field.column}" ='
                        ' "text"): see docs/types.md; or leave it out with a column list'
                    )
                reason = fault.message if isinstance(fault, ValueFormatError) else None
                return ValueFormatError(
                    f"{schema}, column {field.column}: "
                    f"{reason or _reason(value, field.type.logical or field.type.avro)}",
                    hint=hint,
                )
        raise error

    nested = {
        f"nested_p{number}": _nested_encoder(field)
        for number, (field, _) in enumerate(steps)
        if field.type.nested
    }
    namespace = {**_NAMESPACE, **nested, "explain": explain}
    source = encoder_source(steps, union=union, absent=absent)
    exec(_code(source), namespace)  # noqa: S102 - see module
    encode: RowEncoder = namespace["encode"]
    return encode


@lru_cache(1024)
def _code(source: str) -> CodeType:
    """Compile a function, once for all tables whose columns have the same types in one order."""
    return compile(source, "<encoder>", "exec")


def _nested_encoder(field: Field) -> ValueEncoder:
    """Return the function for a column with parts, by `_NAMESPACE` for the items of an array."""
    item = field.item
    if item is None or not field.type.array:
        return value_encoder(field)
    namespace = {**_NAMESPACE, "nested_p": value_encoder(item)}
    exec(_code(items_source(item)), namespace)  # noqa: S102
    return array_encoder(item, namespace["encode_items"])


def _reason(value: ColumnValue, kind: str) -> str:
    """Say what is wrong without showing the value."""
    if isinstance(value, BinaryValue):
        return "a value is in binary format, which is not supported"
    if value is None:
        return "NULL in a key"
    if value is UNCHANGED:
        return "a key value was not sent (unchanged TOAST)"
    return f"a value cannot be read as {kind}"
