"""Conversions by name: PostgreSQL's text of a value to what its Avro type holds, and to the bytes.

schemas/types.toml says which type has which conversion. Each function takes the bytes of a value
that is not NULL. Values that Avro holds as they are (text) are never decoded. A fault raises
ValueError, or ValueFormatError where its text helps; the row encoder adds relation and column, and
that text could carry the value. `value_encoder` gives no index of a union's branch.

Source: PostgreSQL's output functions, with DateStyle ISO, bytea_output hex and
extra_float_digits 1 or more, as the gateway's sessions set them.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from itertools import islice
from struct import Struct, pack
from typing import Any, Final

from gateway.core.errors import ValueFormatError
from gateway.envelope.encoding.varint import encode_bytes, encode_long
from gateway.envelope.schema import Field
from gateway.pgtypes.datetimes.iso import (
    parse_clock,
    parse_date,
    parse_timestamp,
    parse_timestamptz,
)
from schemas.array_text import NotPlainError, array_items
from schemas.hstore_text import hstore_pairs
from schemas.interval_text import interval_parts
from schemas.range_text import multirange_ranges, range_bounds
from schemas.types import MOST_ITEMS
from schemas.vector_text import sparsevec_parts, vector_items

__all__ = [
    "AVRO_DATE_INFINITY",
    "AVRO_TIMESTAMP_INFINITY",
    "CONVERSIONS",
    "EPOCH_SHIFT_DAYS",
    "EPOCH_SHIFT_US",
    "array_encoder",
    "avro_date",
    "avro_hstore",
    "avro_interval",
    "avro_sparsevec",
    "avro_time",
    "avro_timestamp",
    "avro_timestamptz",
    "avro_vector",
    "milli_time",
    "milli_timestamp",
    "unscaled_decimal",
    "value_encoder",
    "zoned_timestamp",
]

EPOCH_SHIFT_DAYS: Final = 10_957
"""2000-01-01 in days since 1970-01-01."""
EPOCH_SHIFT_US: Final = EPOCH_SHIFT_DAYS * 86_400_000_000
"""The same in microseconds."""

AVRO_DATE_INFINITY: Final = 2**31 - 1
"""``infinity``; ``-infinity`` is -2**31. No finite date of PostgreSQL's comes near."""
AVRO_TIMESTAMP_INFINITY: Final = 2**63 - 1
"""``infinity``; ``-infinity`` is -2**63. The last finite value that fits is one less."""

_USECS_PER_DAY: Final = 86_400_000_000
_MINUS_DATE: Final = -(2**31)
_MINUS_TIMESTAMP: Final = -(2**63)
_EXACT: Final = Context(prec=200)
_ZONED: Final = re.compile(rb"(\d{4,})(-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?\+00( BC)?")

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
            " 1970"
        )
    return usecs


def avro_time(text: bytes) -> int:
    """Microseconds since midnight.

    Raises:
        ValueFormatError: it is the end of the day.
    """
    usecs = parse_clock(text)
    if usecs == _USECS_PER_DAY:
        raise ValueFormatError("24:00 cannot be carried by Avro's time-micros")
    return usecs


def avro_interval(text: bytes) -> tuple[int, int, int]:
    """Months, days and microseconds.

    Raises:
        ValueFormatError: it is infinite.
    """
    if text in (b"infinity", b"-infinity"):
        raise ValueFormatError("an infinite interval has no months, days and microseconds")
    return interval_parts(text)


def avro_hstore(text: bytes) -> list[tuple[bytes, bytes | None]]:
    """Keys and values in the order of the text.

    Raises:
        ValueFormatError: there are more than readers accept.
    """
    pairs = list(islice(hstore_pairs(text), MOST_ITEMS + 1))
    if len(pairs) > MOST_ITEMS:
        raise ValueFormatError(
            f"an hstore has more than {MOST_ITEMS:,} pairs, which readers refuse"
        )
    return pairs


def avro_vector(text: bytes) -> list[float]:
    """Items of a vector."""
    return list(map(float, vector_items(text)))


def avro_sparsevec(text: bytes) -> tuple[int, list[int], list[float]]:
    """Dimensions, indices from 1 on, and values of a sparse vector."""
    dimensions, indices, values = sparsevec_parts(text)
    return dimensions, indices, list(map(float, values))


def milli_timestamp(text: bytes) -> int:
    """Milliseconds since 1970-01-01 00:00, the microseconds cut off.

    Raises:
        ValueFormatError: it is infinite.
    """
    usecs = avro_timestamp(text)
    if usecs in (AVRO_TIMESTAMP_INFINITY, _MINUS_TIMESTAMP):
        raise ValueFormatError("infinity cannot be carried by Connect's Timestamp")
    return usecs // 1000


def milli_time(text: bytes) -> int:
    """Milliseconds since midnight, the microseconds cut off.

    Raises:
        ValueFormatError: it is the end of the day.
    """
    return avro_time(text) // 1000


def zoned_timestamp(text: bytes, digits: int) -> bytes:
    """ISO 8601 in UTC, as Debezium writes it; the infinities as PostgreSQL does.

    Args:
        text: The value.
        digits: Digits after the point, as many as the column's precision allows.

    Raises:
        ValueFormatError: it is one that `avro_timestamptz` refuses, so that all formats carry the
            same values.

    Source: ZonedTimestamp.toIsoString, by Java's ISO_LOCAL_DATE: years beyond 9999 have a sign, and
    before the year 1 is the year 0.
    """
    if avro_timestamptz(text) in (AVRO_TIMESTAMP_INFINITY, _MINUS_TIMESTAMP):
        return text
    if (found := _ZONED.fullmatch(text)) is None:
        raise ValueError("a timestamp is not in UTC, or not in DateStyle ISO")
    year = 1 - int(found[1]) if found[5] else int(found[1])
    sign = b"-" if year < 0 else b"+" if year > 9999 else b""
    fraction = b".%s" % (found[4] or b"").ljust(digits, b"0") if digits else b""
    return b"%s%04d%sT%s%sZ" % (sign, abs(year), found[2], found[3], fraction)


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
        pass  # NaN or a fault: distinguished below
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
    raise ValueFormatError(f"{kind} cannot be carried by an Avro decimal({precision},{scale})")


def _boolean(text: bytes) -> bool:
    if text not in (b"t", b"f"):
        raise ValueError("a value does not read as boolean")
    return text == b"t"


def _bytea(text: bytes) -> bytes:
    if text[:2] != b"\\x":
        raise ValueFormatError(
            "a bytea value is not in hex format", hint="the session must use bytea_output = hex"
        )
    return unhexlify(text[2:])


def _text(text: bytes) -> bytes:
    return text


CONVERSIONS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "boolean": _boolean,
    "integer": int,
    "float4": float,
    "float8": float,
    "bytea": _bytea,
    "date": avro_date,
    "timestamp": avro_timestamp,
    "timestamptz": avro_timestamptz,
    "time": avro_time,
    "interval": avro_interval,
    "hstore": avro_hstore,
    "vector": avro_vector,
    "sparsevec": avro_sparsevec,
    "ewkb": unhexlify,
    "text": _text,
    "micro_time": parse_clock,
    "milli_time": milli_time,
    "milli_timestamp": milli_timestamp,
}
"""Conversions of text to values of Avro types, by name in schemas/types.toml; decimal, array,
range, multirange and zoned_timestamp depend on more than the text."""


def _write_boolean(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def _write_pairs(pairs: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    if not pairs:
        return b"\x00"
    encoded = (
        encode_bytes(key) + (b"\x00" if value is None else b"\x02" + encode_bytes(value))
        for key, value in pairs
    )
    return encode_long(len(pairs)) + b"".join(encoded) + b"\x00"


def _write_numbers(values: Iterable[int]) -> bytes:
    return b"".join(map(encode_long, values))


def _write_floats(values: Sequence[float]) -> bytes:
    head = encode_long(len(values)) if values else b""
    return head + pack(f"<{len(values)}f", *values) + b"\x00"


def _write_sparsevec(parts: tuple[int, Sequence[int], Sequence[float]]) -> bytes:
    dimensions, indices, values = parts
    listed = (encode_long(len(indices)) if indices else b"") + _write_numbers(indices) + b"\x00"
    return encode_long(dimensions) + listed + _write_floats(values)


_WRITERS: Final[Mapping[str, Callable[[Any], bytes]]] = {
    "boolean": _write_boolean,
    "int": encode_long,
    "long": encode_long,
    "float": Struct("<f").pack,
    "double": Struct("<d").pack,
    "bytes": encode_bytes,
    "string": encode_bytes,
    "interval": _write_numbers,
    "hstore": _write_pairs,
    "vector": _write_floats,
    "sparsevec": _write_sparsevec,
}
"""Binary encoders of Avro's primitive types, and of what conversions with several parts return."""


def value_encoder(field: Field) -> ValueEncoder:
    """Return the function for a field's values."""
    if field.item is not None:
        item = value_encoder(field.item)
        if field.type.array:
            return array_encoder(field.item, partial(_items, item))
        if field.type.ranges:
            return partial(_multirange, item, MOST_ITEMS // field.item.values)
        return partial(_range, item)
    if field.type.decimal:
        return partial(_decimal, field.precision, field.scale)
    if field.type.conversion == "zoned_timestamp":
        return lambda text: encode_bytes(zoned_timestamp(text, field.scale))
    write = _WRITERS.get(field.type.conversion) or _WRITERS[field.type.avro]
    read = CONVERSIONS[field.type.conversion]
    return lambda text: write(read(text))


def array_encoder(item: Field, encode: Callable[[Sequence[bytes | None]], bytes]) -> ValueEncoder:
    """Return the function for arrays, given that for the items of one, of which some are None."""
    return partial(_array, encode, MOST_ITEMS // item.values)


def _items(item: ValueEncoder, items: Sequence[bytes | None]) -> bytes:
    return b"".join([b"\x00" if one is None else b"\x02" + item(one) for one in items])


def _array(encode: Callable[[Sequence[bytes | None]], bytes], most: int, text: bytes) -> bytes:
    """One block of items, `most` of them at the most."""
    try:
        items = array_items(text)
    except NotPlainError as error:
        raise ValueFormatError(f"an array cannot be carried by an Avro array: {error}") from None
    if not items:
        return b"\x00"
    if len(items) > most:
        raise ValueFormatError(f"an array has more than {most:,} items, which readers refuse")
    return b"%b%b\x00" % (encode_long(len(items)), encode(items))


def _range(bound: ValueEncoder, text: bytes) -> bytes:
    """Bounds that may be null, whether they are included, whether the range is empty."""
    found = range_bounds(text)
    if found is None:
        return b"\x00\x00\x00\x00\x01"
    lower, upper, *included = found
    encoded = (b"\x00" if one is None else b"\x02" + bound(one) for one in (lower, upper))
    return b"".join(encoded) + bytes(included) + b"\x00"


def _multirange(encode: ValueEncoder, most: int, text: bytes) -> bytes:
    """One block of ranges, `most` of them at the most."""
    ranges = multirange_ranges(text)
    if not ranges:
        return b"\x00"
    if len(ranges) > most:
        raise ValueFormatError(f"a multirange has more than {most:,} ranges, which readers refuse")
    return encode_long(len(ranges)) + b"".join(map(encode, ranges)) + b"\x00"


def _decimal(precision: int, scale: int, text: bytes) -> bytes:
    unscaled = unscaled_decimal(text, precision, scale)
    # The shortest big-endian two's complement form.
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return encode_long(size) + unscaled.to_bytes(size, "big", signed=True)
