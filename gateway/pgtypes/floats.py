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

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.nan import NAN, NotANumber

__all__ = [
    "Float",
    "absolute",
    "add",
    "divide",
    "float_to_integer",
    "integer_to_float4",
    "multiply",
    "negate",
    "parse_float4",
    "parse_float8",
    "round_to_float4",
    "subtract",
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


def round_to_float4(value: Float) -> Float:
    """Cast double precision to real (dtof)."""
    if isinstance(value, NotANumber):
        return NAN
    try:
        rounded = _round_single(value)
    except OverflowError:
        raise EvaluationError("value out of range: overflow") from None
    if rounded == 0 and value != 0:
        raise EvaluationError("value out of range: underflow")
    return rounded


def integer_to_float4(value: int) -> Float:
    """Cast an integer to real, rounding once."""
    return _exact_single(float(value), str(value))


def float_to_integer(value: Float, low: int, high: int, name: str) -> int:
    """Cast to an integer type, half to even; raises "... out of range" (dtoi4 and its kin)."""
    if isinstance(value, NotANumber) or isinf(value):
        raise EvaluationError(f"{name} out of range")
    rounded = round(value)
    if not low <= rounded <= high:
        raise EvaluationError(f"{name} out of range")
    return rounded


def _single_or_raise(value: float, *, zero_is_exact: bool, infinite: bool) -> float:
    """Round a result to single and raise where float4 arithmetic would."""
    try:
        rounded = _round_single(value)
    except OverflowError:
        raise EvaluationError("value out of range: overflow") from None
    return _checked(rounded, zero_is_exact=zero_is_exact, infinite=infinite)


def _checked(value: float, *, zero_is_exact: bool, infinite: bool) -> float:
    if isinf(value) and not infinite:
        raise EvaluationError("value out of range: overflow")
    if value == 0 and not zero_is_exact:
        raise EvaluationError("value out of range: underflow")
    return value


def add(left: Float, right: Float, *, single: bool = False) -> Float:
    """``+``; `single` for real with real, whose result is rounded to real."""
    if isinstance(left, NotANumber) or isinstance(right, NotANumber):
        return NAN
    result = left + right
    if result != result:
        return NAN
    finish = _single_or_raise if single else _checked
    return finish(result, zero_is_exact=True, infinite=isinf(left) or isinf(right))


def subtract(left: Float, right: Float, *, single: bool = False) -> Float:
    """``-``."""
    return add(left, negate(right), single=single)


def multiply(left: Float, right: Float, *, single: bool = False) -> Float:
    """``*``."""
    if isinstance(left, NotANumber) or isinstance(right, NotANumber):
        return NAN
    result = left * right
    if result != result:
        return NAN
    finish = _single_or_raise if single else _checked
    return finish(
        result,
        zero_is_exact=left == 0 or right == 0,
        infinite=isinf(left) or isinf(right),
    )


def divide(left: Float, right: Float, *, single: bool = False) -> Float:
    """``/``; by zero raises, except for NaN."""
    if isinstance(left, NotANumber):
        return NAN
    if right == 0:
        raise EvaluationError("division by zero")
    if isinstance(right, NotANumber) or (isinf(left) and isinf(right)):
        return NAN
    finish = _single_or_raise if single else _checked
    return finish(left / right, zero_is_exact=left == 0 or isinf(right), infinite=isinf(left))


def negate(value: Float) -> Float:
    """Unary ``-``."""
    return NAN if isinstance(value, NotANumber) else -value


def absolute(value: Float) -> Float:
    """``@``."""
    return NAN if isinstance(value, NotANumber) else abs(value)
