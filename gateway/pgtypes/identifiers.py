"""pg_lsn, tid and "char": what the server uses to identify and to flag.

A pg_lsn is an integer; a tid a tuple of block and offset; a "char" an integer from 0 to 255.

Source: src/backend/utils/adt/pg_lsn.c, tid.c, char.c, uuid.c.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.nan import NotANumber
from gateway.pgtypes.numeric import Numeric, add, numeric_to_integer

__all__ = [
    "add_to_lsn",
    "char_to_integer",
    "integer_to_char",
    "numeric_to_lsn",
    "parse_char",
    "parse_lsn",
    "parse_tid",
    "subtract_from_lsn",
    "subtract_lsns",
    "uuid_version",
]

_MAX_LSN: Final = 2**64 - 1
_RFC_9562_VARIANT: Final = b"89ab"


def parse_lsn(text: bytes) -> int:
    """Read a pg_lsn.

    Raises:
        ValueFormatError: not two groups of hex digits.
    """
    try:
        high, low = (int(part, 16) for part in text.split(b"/"))
    except ValueError:
        raise ValueFormatError("a value does not read as pg_lsn") from None
    return high << 32 | low


def subtract_lsns(left: int, right: int) -> Numeric:
    """``pg_lsn - pg_lsn``, in bytes."""
    return Decimal(left - right)


def add_to_lsn(lsn: int, number: Numeric) -> int:
    """``pg_lsn + numeric``, rounded half away from zero.

    Raises:
        EvaluationError: the number is NaN, or the result out of range.
    """
    if isinstance(number, NotANumber):
        raise EvaluationError("cannot add NaN to pg_lsn")
    return _lsn(Decimal(lsn), number)


def subtract_from_lsn(lsn: int, number: Numeric) -> int:
    """``pg_lsn - numeric``, rounded half away from zero.

    Raises:
        EvaluationError: the number is NaN, or the result out of range.
    """
    if isinstance(number, NotANumber):
        raise EvaluationError("cannot subtract NaN from pg_lsn")
    return _lsn(Decimal(lsn), number.copy_negate())


def _lsn(lsn: Decimal, number: Decimal) -> int:
    return numeric_to_lsn(add(lsn, number))


def numeric_to_lsn(value: Numeric) -> int:
    """Cast numeric to pg_lsn.

    Raises:
        EvaluationError: it is not a number, infinite, or out of range.
    """
    return numeric_to_integer(value, 0, _MAX_LSN, "pg_lsn")


def parse_tid(text: bytes) -> tuple[int, int]:
    """Read a tid.

    Raises:
        ValueFormatError: not a block and an offset in brackets.
    """
    block, comma, offset = text[1:-1].partition(b",")
    if text[:1] + text[-1:] != b"()" or not comma or not (block.isdigit() and offset.isdigit()):
        raise ValueFormatError("a value does not read as tid")
    return int(block), int(offset)


def parse_char(text: bytes) -> int:
    """Read a "char": one byte, nothing for zero, or a backslash and three octal digits.

    Raises:
        ValueFormatError: something else.
    """
    if len(text) <= 1:
        return text[0] if text else 0
    if len(text) == 4 and text[:1] == b"\\" and text[1:].isdigit():
        return int(text[1:], 8)
    raise ValueFormatError('a value does not read as "char"')


def char_to_integer(value: int) -> int:
    """Cast "char" to integer; it is signed."""
    return value - 256 if value > 127 else value


def integer_to_char(value: int) -> int:
    """Cast integer to "char"; raises `EvaluationError` beyond a signed byte."""
    if not -128 <= value <= 127:
        raise EvaluationError('"char" out of range')
    return value & 0xFF


def uuid_version(value: bytes) -> int | None:
    """uuid_extract_version(); None if the UUID is not of the variant of RFC 9562."""
    return int(value[14:15], 16) if value[19:20] in _RFC_9562_VARIANT else None
