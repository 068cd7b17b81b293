"""real and double precision: values, rounding to single, arithmetic that raises on overflow.

A value is a Python float, or `NAN`; a real is the float that holds exactly its value.
PostgreSQL must print with extra_float_digits >= 1 (the default), else digits are already lost.

Source: src/include/utils/float.h (float8_pl and its kin), src/backend/utils/adt/float.c.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from math import isinf
from typing import Final, TypeAlias

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.numbers.nan import NAN, NotANumber

__all__ = [
    "Float",
    "parse_float4",
    "parse_float8",
]

Float: TypeAlias = float | NotANumber

_SINGLE: Final = struct.Struct("<f")
_SINGLE_BITS: Final = struct.Struct("<I")


def parse_float8(text: bytes) -> Float:
    """Read a double precision.

    Raises:
        ValueFormatError: not a number.
    """
    value = _parse(text, "double precision")
    return value if value == value else NAN


def _parse(text: bytes, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueFormatError(f"a value does not read as {name}") from None
    if isinf(value) and text[-1:] != b"y":  # digits that no double can hold
        raise ValueFormatError(f"a value does not read as {name}")
    return value


def parse_float4(text: bytes) -> Float:
    """Read a real, rounding once, as strtof does.

    Raises:
        ValueFormatError: not a number, or too large.
    """
    value = _parse(text, "real")
    if value != value:
        return NAN
    try:
        return _exact_single(value, text.decode())
    except OverflowError:
        raise ValueFormatError("a value does not read as real") from None


def _exact_single(value: float, text: str) -> float:
    """Round the number that `text` says to single; `value` is the nearest double to it.

    Rounding twice goes wrong only when the double lies half way between two singles and the text
    does not: then the text decides.
    """
    nearest = _round_single(value)
    if nearest == value or isinf(value):
        return nearest
    other = _neighbour(nearest, up=value > nearest)
    if value - nearest != other - value:
        return nearest
    exact = Decimal(text).copy_abs()
    if exact == Decimal(value).copy_abs():
        return nearest
    outer, inner = (nearest, other) if abs(nearest) > abs(other) else (other, nearest)
    return outer if exact > Decimal(value).copy_abs() else inner


def _round_single(value: float) -> float:
    rounded: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    return rounded


def _neighbour(value: float, *, up: bool) -> float:
    bits: int = _SINGLE_BITS.unpack(_SINGLE.pack(value))[0]
    if value == 0:
        tiny: float = _SINGLE.unpack(_SINGLE_BITS.pack(1))[0]
        return tiny if up else -tiny
    bits += 1 if (value > 0) is up else -1
    neighbour: float = _SINGLE.unpack(_SINGLE_BITS.pack(bits))[0]
    return neighbour
