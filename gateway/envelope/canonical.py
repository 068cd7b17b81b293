"""Equal keys, equal bytes: the canonical form of a key, and the partition that follows from it.

Columns of ``[topics.partition_by]`` take the place of those of the key.

A column becomes its length as a signed 32-bit big-endian integer and the bytes of its canonical
text; NULL is the length -1 and nothing else (as in PostgreSQL's binary COPY). Columns follow each
other in the order of the key. Hence ('ab', 'c') differs from ('a', 'bc').
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from gateway.core.errors import SchemaError, ValueFormatError
from gateway.envelope.schema import TableSchema
from gateway.pgoutput.messages import ColumnValue
from gateway.pgtypes.datetimes.iso import parse_timestamptz
from schemas.interval_text import interval_parts

__all__ = [
    "KEY_FORMS",
    "CanonicalKey",
    "compile_canonical_key",
    "partition_of",
]

CanonicalKey = Callable[[Sequence[ColumnValue]], bytes]

_LENGTH: Final = Struct(">i").pack
_NULL: Final = _LENGTH(-1)
_LENGTHS: Final = tuple(_LENGTH(n) for n in range(1024))

_JSONB_NUMBER: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|\.\d+')
_ODD_NUMBER: Final = re.compile(rb"\.\d+|(?<!e)-0(?![\d.])")
"""Fractions, and -0. Both expressions are linear: they begin to match at points, not at digits."""
_USECS_PER_DAY: Final = 86_400_000_000


def partition_of(canonical: bytes, partitions: int) -> int:
    """Choose a key's partition: CRC-32 (ISO-HDLC, as in zlib) of its canonical form, modulo."""
    return crc32(canonical) % partitions


def _numeric(text: bytes) -> bytes:
    """1.00 is 1: zeros after the point say nothing. numeric has no -0."""
    return text.rstrip(b"0").rstrip(b".") if b"." in text else text


def _float(text: bytes) -> bytes:
    return b"0" if text == b"-0" else text


def _bpchar(text: bytes) -> bytes:
    return text.rstrip(b" ")


def _timestamptz(text: bytes) -> bytes:
    return b"%d" % parse_timestamptz(text)


def _jsonb(text: bytes) -> bytes:
    """The text of jsonb is canonical but for the zeros at the end of its numbers."""
    return _JSONB_NUMBER.sub(
        lambda match: match[0] if match[0][:1] == b'"' else _numeric(match[0]), text
    )


def _numbers(text: bytes) -> bytes:
    """Return the text of a value with several numbers, each of which is numeric or a float."""
    return _ODD_NUMBER.sub(lambda match: _numeric(match[0]) if match[0][:1] == b"." else b"0", text)


def _interval(text: bytes) -> bytes:
    """Microseconds with 30 days a month, as PostgreSQL compares intervals.

    Raises:
        ValueFormatError: not in IntervalStyle postgres.

    Source: interval_cmp_value in timestamp.c.
    """
    if text in (b"infinity", b"-infinity"):
        return text
    try:
        months, days, usecs = interval_parts(text)
    except ValueError:
        raise ValueFormatError(
            "a value does not read as interval",
            hint="the session must use IntervalStyle = postgres",
        ) from None
    return b"%d" % ((months * 30 + days) * _USECS_PER_DAY + usecs)


KEY_FORMS: Final[Mapping[str, Callable[[bytes], bytes] | None]] = {
    "text": None,
    "printed": None,
    "float": _float,
    "bpchar": _bpchar,
    "timestamptz": _timestamptz,
    "interval": _interval,
    "numeric": _numeric,
    "numbers": _numbers,
    "jsonb": _jsonb,
}
"""Canonical forms of keys, by name in schemas/types.toml; None: as it is printed."""


def compile_canonical_key(schema: TableSchema, indexes: Sequence[int]) -> CanonicalKey:
    """Prepare the canonical form of the columns of a tuple that choose its partition.

    Args:
        schema: A table with such columns.
        indexes: For each of `schema.fields`, the position of its column in the tuple.

    The result raises ValueFormatError for a value that does not read, and for UNCHANGED.
    """
    if not schema.partition_fields:
        raise SchemaError(f"{schema} has no key")
    position = {field.name: index for field, index in zip(schema.fields, indexes, strict=True)}
    plan = tuple(
        (position[field.name], KEY_FORMS[field.type.key]) for field in schema.partition_fields
    )

    def canonical_key(row: Sequence[ColumnValue]) -> bytes:
        pieces = []
        for index, canonical in plan:
            value = row[index]
            if type(value) is bytes:
                text = value if canonical is None else canonical(value)
                size = len(text)
                pieces.append(_LENGTHS[size] if size < 1024 else _LENGTH(size))
                pieces.append(text)
            elif value is None:
                pieces.append(_NULL)
            else:
                raise ValueFormatError(f"{schema}: a key column is not sent, or in binary format")
        return b"".join(pieces)

    return canonical_key
