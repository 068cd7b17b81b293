"""Arrays, ranges, multiranges and composite types, with the quoting of their output functions.

Source: array_send and array_out in arrayfuncs.c; range_send and range_deparse in rangetypes.c;
multirange_send and multirange_out in multirangetypes.c; record_send and record_out in rowtypes.c;
int2vectorout in int.c, oidvectorout in oid.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import Final

from gateway.pgtypes.binary.info import ToText

__all__ = ["array", "composite", "multirange", "range_", "vector"]

_LENGTH: Final = Struct("!i")
_ARRAY: Final = Struct("!iiI")
_DIMENSION: Final = Struct("!ii")
_FIELD: Final = Struct("!Ii")
_MAX_DIMENSIONS: Final = 6

_EMPTY: Final = 0x01
_LOWER_INCLUSIVE: Final = 0x02
_UPPER_INCLUSIVE: Final = 0x04
_LOWER_INFINITE: Final = 0x08
_UPPER_INFINITE: Final = 0x10
_NO_LOWER: Final = _EMPTY | _LOWER_INFINITE | 0x20
_NO_UPPER: Final = _EMPTY | _UPPER_INFINITE | 0x40

_ESCAPED: Final = re.compile(rb'["\\]')
_SPECIAL_IN_RANGE: Final = re.compile(rb'[\s"\\()\[\],]')
_SPECIAL_IN_RECORD: Final = re.compile(rb'[\s"\\(),]')


def _read_item(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Read a length and this many bytes, None for -1; return them and the position after them."""
    (length,) = _LENGTH.unpack_from(data, at)
    at += 4
    if length == -1:
        return None, at
    end = at + length
    if length < 0 or end > len(data):
        raise ValueError("a length beyond the end")
    return data[at:end], end


def _finish(data: bytes, at: int) -> None:
    if at != len(data):
        raise ValueError("bytes left over")


def _elements(data: bytes, to_text: ToText) -> tuple[list[tuple[int, int]], list[bytes | None]]:
    """Size and lower bound of each dimension; the elements' texts, row by row."""
    dimensions, _, _ = _ARRAY.unpack_from(data)
    if not 0 <= dimensions <= _MAX_DIMENSIONS:
        raise ValueError("an array of too many dimensions")
    at = _ARRAY.size
    shape: list[tuple[int, int]] = []
    count = 1 if dimensions else 0
    for _ in range(dimensions):
        size, lower = _DIMENSION.unpack_from(data, at)
        if size < 0:
            raise ValueError("a negative array size")
        shape.append((size, lower))
        count *= size
        at += _DIMENSION.size
    if count > len(data) // 4:
        raise ValueError("more array elements than bytes")
    texts: list[bytes | None] = []
    for _ in range(count):
        value, at = _read_item(data, at)
        texts.append(None if value is None else to_text(value))
    _finish(data, at)
    return shape, texts


def array(element: ToText, delimiter: str) -> ToText:
    """An array type, from its element's conversion and the element type's delimiter."""
    separator = delimiter.encode()
    special = re.compile(rb'[\s"\\{}' + re.escape(separator) + rb"]")

    def quoted(text: bytes | None) -> bytes:
        if text is None:
            return b"NULL"
        if not text or special.search(text) or (len(text) == 4 and text.upper() == b"NULL"):
            return b'"%b"' % _ESCAPED.sub(rb"\\\g<0>", text)
        return text

    def to_text(data: bytes) -> bytes:
        shape, texts = _elements(data, element)
        if not texts:
            return b"{}"
        shown = [quoted(text) for text in texts]
        for size, _ in reversed(shape):
            shown = [
                b"{%b}" % separator.join(shown[start : start + size])
                for start in range(0, len(shown), size)
            ]
        if all(lower == 1 for _, lower in shape):
            return shown[0]
        bounds = [b"[%d:%d]" % (lower, lower + size - 1) for size, lower in shape]
        return b"%b=%b" % (b"".join(bounds), shown[0])

    return to_text


def vector(element: ToText) -> ToText:
    """``int2vector`` and ``oidvector``: sent as arrays, printed with blanks."""

    def to_text(data: bytes) -> bytes:
        _, texts = _elements(data, element)
        return b" ".join([text for text in texts if text is not None])

    return to_text


def _doubled(text: bytes, special: re.Pattern[bytes]) -> bytes:
    """The quoting of ranges and records: quotes and backslashes are doubled."""
    if text and not special.search(text):
        return text
    return b'"%b"' % _ESCAPED.sub(rb"\g<0>\g<0>", text)


def range_(subtype: ToText) -> ToText:
    """A range type, from its subtype's conversion."""

    def to_text(data: bytes) -> bytes:
        flags = data[0]
        at = 1
        lower = upper = b""
        if not flags & _NO_LOWER:
            value, at = _read_item(data, at)
            lower = _bound(value, subtype)
        if not flags & _NO_UPPER:
            value, at = _read_item(data, at)
            upper = _bound(value, subtype)
        _finish(data, at)
        if flags & _EMPTY:
            return b"empty"
        opening = b"[" if flags & _LOWER_INCLUSIVE else b"("
        closing = b"]" if flags & _UPPER_INCLUSIVE else b")"
        return b"%b%b,%b%b" % (opening, lower, upper, closing)

    return to_text


def _bound(value: bytes | None, subtype: ToText) -> bytes:
    if value is None:
        raise ValueError("a range bound that is NULL")
    return _doubled(subtype(value), _SPECIAL_IN_RANGE)


def multirange(range_type: ToText) -> ToText:
    """A multirange type, from its range's conversion."""

    def to_text(data: bytes) -> bytes:
        (count,) = _LENGTH.unpack_from(data)
        at = 4
        shown: list[bytes] = []
        for _ in range(count):
            value, at = _read_item(data, at)
            if value is None:
                raise ValueError("a range that is NULL")
            shown.append(range_type(value))
        _finish(data, at)
        return b"{%b}" % b",".join(shown)

    return to_text


def composite(conversion: Callable[[int], ToText]) -> ToText:
    """A composite type. Each value says the types of its fields: they are asked for by OID.

    A row that was written before the type got another attribute is printed as it was then.
    """

    def to_text(data: bytes) -> bytes:
        (count,) = _LENGTH.unpack_from(data)
        at = 4
        shown: list[bytes] = []
        for _ in range(count):
            type_oid, _ = _FIELD.unpack_from(data, at)
            value, at = _read_item(data, at + 4)
            if value is None:
                shown.append(b"")
            else:
                shown.append(_doubled(conversion(type_oid)(value), _SPECIAL_IN_RECORD))
        _finish(data, at)
        return b"(%b)" % b",".join(shown)

    return to_text
