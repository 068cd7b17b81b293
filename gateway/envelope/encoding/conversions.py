"""One value: PostgreSQL's text format to Avro's binary form, without a union's branch index.

Each function takes the bytes of a value that is not NULL. What Avro can hold as it is (text) is
never decoded. A fault raises ValueError, or ValueFormatError where a hint helps; the row encoder
adds relation and column.

Source: PostgreSQL's output functions, with DateStyle ISO, bytea_output hex and
extra_float_digits 1 or more, as the gateway's sessions set them.
"""

from __future__ import annotations

from binascii import unhexlify
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from struct import Struct
from typing import Final

from gateway.core.errors import ValueFormatError
from gateway.envelope.encoding.varint import encode_bytes, encode_long
from gateway.envelope.schema import AvroKind, Field
from gateway.pgtypes.datetimes.iso import parse_date, parse_timestamp, parse_timestamptz

__all__ = [
    "AVRO_DATE_INFINITY",
    "AVRO_TIMESTAMP_INFINITY",
    "EPOCH_SHIFT_DAYS",
    "EPOCH_SHIFT_US",
    "avro_date",
    "avro_timestamp",
    "avro_timestamptz",
    "unscaled_decimal",
    "value_encoder",
]

EPOCH_SHIFT_DAYS: Final = 10_957
"""2000-01-01 in days since 1970-01-01."""
EPOCH_SHIFT_US: Final = EPOCH_SHIFT_DAYS * 86_400_000_000
"""The same in microseconds."""

AVRO_DATE_INFINITY: Final = 2**31 - 1
"""``infinity``; ``-infinity`` is -2**31. No finite date of PostgreSQL's comes near."""
AVRO_TIMESTAMP_INFINITY: Final = 2**63 - 1
"""``infinity``; ``-infinity`` is -2**63. The last finite value that fits is one less."""

_MINUS_DATE: Final = -(2**31)
_MINUS_TIMESTAMP: Final = -(2**63)
_FLOAT: Final = Struct("<f").pack
_DOUBLE: Final = Struct("<d").pack
_EXACT: Final = Context(prec=200)

ValueEncoder = Callable[[bytes], bytes]


def avro_date(text: bytes) -> int:
    """Days since 1970-01-01; the infinities are the ends of a 32-bit integer."""
    days = parse_date(text)
    if days in (AVRO_DATE_INFINITY, _MINUS_DATE):
        return days
    return days + EPOCH_SHIFT_DAYS


def avro_timestamp(text: bytes) -> int:
    """Microseconds since 1970-01-01 00:00; the infinities are the ends of a 64-bit integer."""
    return _since_1970(parse_timestamp(text))


def avro_timestamptz(text: bytes) -> int:
    """Microseconds since 1970-01-01 00:00 UTC; the infinities as `avro_timestamp`."""
    return _since_1970(parse_timestamptz(text))


def _since_1970(usecs: int) -> int:
    if usecs in (AVRO_TIMESTAMP_INFINITY, _MINUS_TIMESTAMP):
        return usecs
    usecs += EPOCH_SHIFT_US
    if usecs >= AVRO_TIMESTAMP_INFINITY:
        raise ValueFormatError(
            "a timestamp lies after 294247-01-10 04:00:54, the last that fits into 64 bits since"
            " 1970",
            hint="use infinity, or leave the column out with a column list",
        )
    return usecs


def unscaled_decimal(text: bytes, precision: int, scale: int) -> int:
    """The integer that, divided by 10**scale, is the number `text`.

    Raises:
        ValueFormatError: NaN, or a number that the precision and scale cannot hold.
    """
    try:
        if scale == 0:
            return int(text)
        if text[-scale - 1 : -scale] == b".":
            return int(text[: -scale - 1] + text[-scale:])
    except ValueError:
        pass  # NaN or a fault: told apart below
    try:
        number = Decimal(text.decode("ascii"))
        if number.is_finite():
            scaled = number.scaleb(scale, _EXACT)
            unscaled = int(scaled)
            if unscaled == scaled and abs(unscaled) < 10**precision:
                return unscaled
    except (InvalidOperation, UnicodeDecodeError):
        raise ValueFormatError("a value does not read as numeric") from None
    kind = "NaN or infinity" if not number.is_finite() else "a number with other digits"
    raise ValueFormatError(
        f"{kind} cannot be carried by an Avro decimal({precision},{scale})",
        hint='[types] numeric = "string" publishes every numeric as text, to new topics',
    )


def _boolean(text: bytes) -> bytes:
    if text == b"t":
        return b"\x01"
    if text == b"f":
        return b"\x00"
    raise ValueError("a value does not read as boolean")


def _integer(text: bytes) -> bytes:
    return encode_long(int(text))


def _float(text: bytes) -> bytes:
    return _FLOAT(float(text))


def _double(text: bytes) -> bytes:
    return _DOUBLE(float(text))


def _bytea(text: bytes) -> bytes:
    if text[:2] != b"\\x":
        raise ValueFormatError(
            "a bytea value is not in hex format", hint="the session must use bytea_output = hex"
        )
    return encode_bytes(unhexlify(text[2:]))


def _date(text: bytes) -> bytes:
    return encode_long(avro_date(text))


def _timestamp(text: bytes) -> bytes:
    return encode_long(avro_timestamp(text))


def _timestamptz(text: bytes) -> bytes:
    return encode_long(avro_timestamptz(text))


def _decimal(precision: int, scale: int) -> ValueEncoder:
    def encode(text: bytes) -> bytes:
        unscaled = unscaled_decimal(text, precision, scale)
        # The shortest big-endian two's complement form.
        size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
        return encode_long(size) + unscaled.to_bytes(size, "big", signed=True)

    return encode


_BY_KIND: Final[dict[AvroKind, ValueEncoder]] = {
    AvroKind.BOOLEAN: _boolean,
    AvroKind.INT: _integer,
    AvroKind.LONG: _integer,
    AvroKind.FLOAT: _float,
    AvroKind.DOUBLE: _double,
    AvroKind.BYTES: _bytea,
    AvroKind.DATE: _date,
    AvroKind.TIMESTAMP: _timestamp,
    AvroKind.TIMESTAMPTZ: _timestamptz,
    AvroKind.UUID: encode_bytes,
    AvroKind.STRING: encode_bytes,
}


def value_encoder(field: Field) -> ValueEncoder:
    """Return the function for a field's values."""
    if field.kind is AvroKind.DECIMAL:
        return _decimal(field.precision, field.scale)
    return _BY_KIND[field.kind]
