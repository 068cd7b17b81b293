"""bit and bit varying: strings of bits.

A value is its text, the bytes ``0`` and ``1``: that compares as PostgreSQL compares bit strings,
by bits and then by length.

Source: src/backend/utils/adt/varbit.c.
"""

from __future__ import annotations

from typing import Final

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "bit_count",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "concatenate",
    "from_integer",
    "get_bit",
    "octet_length",
    "overlay",
    "parse_bits",
    "position",
    "set_bit",
    "shift_left",
    "shift_right",
    "substring",
    "to_bigint",
    "to_bit",
    "to_integer",
    "to_varbit",
]

_MAX_LENGTH: Final = 0x7FFFFFFF - 8 + 1
"""VARBITMAXLEN."""
_INVERSE: Final = bytes.maketrans(b"01", b"10")


def parse_bits(text: bytes) -> bytes:
    """Read a bit string as its output function prints it.

    Raises:
        ValueFormatError: anything but zeros and ones.
    """
    if text.strip(b"01"):
        raise ValueFormatError("a value does not read as bit")
    return text


# Lengths


def to_bit(value: bytes, length: int) -> bytes:
    """Cast to ``bit(length)``: cut, or filled with zeros on the right."""
    return value[:length].ljust(length, b"0")


def to_varbit(value: bytes, length: int) -> bytes:
    """Cast to ``bit varying(length)``: cut."""
    return value[:length]


def octet_length(value: bytes) -> int:
    """Bytes that hold the bits."""
    return (len(value) + 7) // 8


def bit_count(value: bytes) -> int:
    """How many are set."""
    return value.count(b"1")


# Integers


def from_integer(value: int, length: int) -> bytes:
    """Cast an integer to ``bit(length)``: its last bits, or filled with its sign on the left.

    A length that no bit string has is taken for 1, as by the function that the cast calls.
    """
    if not 1 <= length <= _MAX_LENGTH:
        length = 1
    return f"{value & ((1 << length) - 1):0{length}b}".encode()


def to_integer(value: bytes) -> int:
    """Cast to integer: 32 bits are two's complement, fewer are not negative.

    Raises:
        EvaluationError: longer than 32.
    """
    if len(value) > 32:
        raise EvaluationError("integer out of range")
    return _signed(value, 32)


def to_bigint(value: bytes) -> int:
    """Cast to bigint: 64 bits are two's complement, fewer are not negative.

    Raises:
        EvaluationError: longer than 64.
    """
    if len(value) > 64:
        raise EvaluationError("bigint out of range")
    return _signed(value, 64)


def _signed(value: bytes, width: int) -> int:
    number = int(value or b"0", 2)
    return number - (1 << width) if number >> (width - 1) else number


# Bits


def _pair(left: bytes, right: bytes, name: str) -> tuple[int, int]:
    if len(left) != len(right):
        raise EvaluationError(f"cannot {name} bit strings of different sizes")
    return int(left or b"0", 2), int(right or b"0", 2)


def _as_long_as(value: int, like: bytes) -> bytes:
    return f"{value:0{len(like)}b}".encode() if like else b""


def bitwise_and(left: bytes, right: bytes) -> bytes:
    """``&``; raises `EvaluationError` when the lengths differ."""
    first, second = _pair(left, right, "AND")
    return _as_long_as(first & second, left)


def bitwise_or(left: bytes, right: bytes) -> bytes:
    """``|``; raises `EvaluationError` when the lengths differ."""
    first, second = _pair(left, right, "OR")
    return _as_long_as(first | second, left)


def bitwise_xor(left: bytes, right: bytes) -> bytes:
    """``#``; raises `EvaluationError` when the lengths differ."""
    first, second = _pair(left, right, "XOR")
    return _as_long_as(first ^ second, left)


def bitwise_not(value: bytes) -> bytes:
    """``~``."""
    return value.translate(_INVERSE)


def shift_left(value: bytes, count: int) -> bytes:
    """``<<``, which keeps the length; a negative count shifts to the right."""
    if count < 0:
        return _shifted_right(value, -count)
    return _shifted_left(value, count)


def shift_right(value: bytes, count: int) -> bytes:
    """``>>``, which keeps the length; a negative count shifts to the left."""
    return _shifted_left(value, -count) if count < 0 else _shifted_right(value, count)


def _shifted_left(value: bytes, count: int) -> bytes:
    return value[count:].ljust(len(value), b"0")


def _shifted_right(value: bytes, count: int) -> bytes:
    return value[: max(len(value) - count, 0)].rjust(len(value), b"0")


def get_bit(value: bytes, index: int) -> int:
    """The bit at `index`, counted from 0; raises `EvaluationError` when there is none."""
    _check_index(value, index)
    return value[index] - 0x30


def set_bit(value: bytes, index: int, bit: int) -> bytes:
    """`value` with another bit at `index`, counted from 0.

    Raises:
        EvaluationError: there is no such bit, or the new one is neither 0 nor 1.
    """
    _check_index(value, index)
    if bit not in (0, 1):
        raise EvaluationError("new bit must be 0 or 1")
    return value[:index] + (b"1" if bit else b"0") + value[index + 1 :]


def _check_index(value: bytes, index: int) -> None:
    if not 0 <= index < len(value):
        raise EvaluationError(f"bit index {index} out of valid range (0..{len(value) - 1})")


# Parts


def concatenate(left: bytes, right: bytes) -> bytes:
    """``||``; raises `EvaluationError` beyond the longest bit string."""
    if len(left) + len(right) > _MAX_LENGTH:
        raise EvaluationError(f"bit string length exceeds the maximum allowed ({_MAX_LENGTH})")
    return left + right


def substring(value: bytes, start: int, length: int | None = None) -> bytes:
    """The part from `start`, counted from 1; positions before the string count for `length`.

    Raises:
        EvaluationError: the length is negative.
    """
    if length is None:
        return value[max(start, 1) - 1 :]
    if length < 0:
        raise EvaluationError("negative substring length not allowed")
    return value[max(start, 1) - 1 : max(start + length - 1, 0)]


def overlay(value: bytes, new: bytes, start: int, length: int | None = None) -> bytes:
    """Put `new` in the place of `length` bits (by default as many as it has) from `start`.

    Raises:
        EvaluationError: `start` is below 1, or start and length exceed an integer.
    """
    if start <= 0:
        raise EvaluationError("negative substring length not allowed")
    end = start + (len(new) if length is None else length)
    if not -(2**31) <= end < 2**31:
        raise EvaluationError("integer out of range")
    return value[: start - 1] + new + substring(value, end)


def position(value: bytes, wanted: bytes) -> int:
    """Where `wanted` begins in `value`, counted from 1; 0 if nowhere, or in an empty string."""
    return value.find(wanted) + 1 if value else 0
