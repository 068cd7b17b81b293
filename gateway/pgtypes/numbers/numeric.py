"""numeric: exact decimals with PostgreSQL's scale rules, infinities and NaN.

A value is a `Decimal` whose exponent is never above zero (so that ``-exponent`` is PostgreSQL's
display scale), an infinite `Decimal`, or `NAN`. Only division looks at the scale; it is kept
right for all operations because a result can be divided again.

Source: src/backend/utils/adt/numeric.c.
"""

from __future__ import annotations

from decimal import (
    ROUND_HALF_UP,
    Clamped,
    Context,
    Decimal,
    DivisionByZero,
    InvalidOperation,
    Overflow,
    Rounded,
    Subnormal,
)
from math import isinf
from typing import Final, TypeAlias

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.numbers.floats import Float
from gateway.pgtypes.numbers.nan import NAN, NotANumber

__all__ = [
    "Numeric",
    "absolute",
    "add",
    "apply_typmod",
    "divide",
    "integer_to_numeric",
    "modulo",
    "multiply",
    "negate",
    "numeric_to_float",
    "numeric_to_integer",
    "parse_numeric",
    "subtract",
]

Numeric: TypeAlias = Decimal | NotANumber

EXACT: Final = Context(
    prec=400_000,
    rounding=ROUND_HALF_UP,
    Emin=-999_999,
    Emax=999_999,
    clamp=0,
    traps=[InvalidOperation, DivisionByZero, Overflow],
)
"""Room for every product: 131,072 digits before the point and 16,383 after it, twice."""

_QUICK: Final = Context(
    prec=200,
    Emin=-500,
    Emax=500,
    traps=[Clamped, DivisionByZero, InvalidOperation, Overflow, Rounded, Subnormal],
)
"""Bounds within which exact results are exact in PostgreSQL, too, without further checks."""
_BEYOND: Final = (TypeError, Clamped, InvalidOperation, Overflow, Rounded, Subnormal)

MAX_DIGITS: Final = 131_072
"""Digits before the point: (NUMERIC_WEIGHT_MAX + 1) * DEC_DIGITS."""
MAX_SCALE: Final = 16_383
MIN_SIG_DIGITS: Final = 16
MAX_DISPLAY_SCALE: Final = 1000
_ZERO: Final = Decimal(0)


def parse_numeric(text: bytes) -> Numeric:
    """Read a numeric as its output function prints it.

    Raises:
        ValueFormatError: not a number.
    """
    try:
        value = Decimal(text.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        raise ValueFormatError("a value does not read as numeric") from None
    return value if value == value else NAN


def scale_of(value: Decimal) -> int:
    """Digits after the point (dscale)."""
    exponent = value.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def integer_to_numeric(value: int) -> Numeric:
    """Cast an integer."""
    return Decimal(value)


def fit(value: Decimal) -> Decimal:
    """Raise where make_result() would; round digits that no numeric can store; zero has no sign."""
    if value.is_finite():
        if scale_of(value) > MAX_SCALE:
            value = value.quantize(Decimal((0, (1,), -MAX_SCALE)), context=EXACT)
        if not value:
            return value.copy_abs()
        if value.adjusted() >= MAX_DIGITS:
            raise EvaluationError("value overflows numeric format")
    return value


def add(left: Numeric, right: Numeric) -> Numeric:
    """``+``."""
    try:
        result = _QUICK.add(left, right)  # type: ignore[arg-type]
    except _BEYOND:
        return _add(left, right)
    return result if result else result.copy_abs()


def _add(left: Numeric, right: Numeric) -> Numeric:
    if isinstance(left, NotANumber) or isinstance(right, NotANumber):
        return NAN
    if left.is_infinite() and right.is_infinite() and left != right:
        return NAN
    return fit(EXACT.add(left, right))


def subtract(left: Numeric, right: Numeric) -> Numeric:
    """``-``."""
    return add(left, negate(right))


def multiply(left: Numeric, right: Numeric) -> Numeric:
    """``*``."""
    try:
        result = _QUICK.multiply(left, right)  # type: ignore[arg-type]
    except _BEYOND:
        return _multiply(left, right)
    return result if result else result.copy_abs()


def _multiply(left: Numeric, right: Numeric) -> Numeric:
    if isinstance(left, NotANumber) or isinstance(right, NotANumber):
        return NAN
    if (left.is_infinite() and not right) or (right.is_infinite() and not left):
        return NAN
    return fit(EXACT.multiply(left, right))


def negate(value: Numeric) -> Numeric:
    """Unary ``-``."""
    if isinstance(value, NotANumber):
        return NAN
    return value.copy_negate() if value else value


def absolute(value: Numeric) -> Numeric:
    """``@``."""
    return NAN if isinstance(value, NotANumber) else value.copy_abs()


def divide(left: Numeric, right: Numeric) -> Numeric:
    """``/``, rounded half away from zero to the scale that select_div_scale() chooses."""
    if isinstance(left, NotANumber) or isinstance(right, NotANumber):
        return NAN
    if left.is_infinite():
        if right.is_infinite():
            return NAN
        if not right:
            raise EvaluationError("division by zero")
        return left if right > 0 else left.copy_negate()
    if right.is_infinite():
        return _ZERO
    if not right:
        raise EvaluationError("division by zero")
    scale = _division_scale(left, right)
    left_scale, right_scale = scale_of(left), scale_of(right)
    dividend = abs(unscaled(left, left_scale))
    divisor = abs(unscaled(right, right_scale))
    shift = scale + right_scale - left_scale
    if shift >= 0:
        dividend *= 10**shift
    else:
        divisor *= 10**-shift
    quotient = (2 * dividend + divisor) // (2 * divisor)
    if left.is_signed() != right.is_signed():
        quotient = -quotient
    return fit(EXACT.scaleb(_decimal(quotient), -scale))


def unscaled(value: Decimal, scale: int) -> int:
    """`value` times 10^scale, which is an integer."""
    return int(EXACT.scaleb(value, scale))


def _decimal(value: int) -> Decimal:
    return Decimal(value)


def leading(value: Decimal) -> tuple[int, int]:
    """Weight and value of the first non-zero digit in base 10,000; (0, 0) for zero."""
    if not value:
        return 0, 0
    weight = value.adjusted() // 4
    return weight, int(EXACT.scaleb(value.copy_abs(), -4 * weight))


def _division_scale(left: Decimal, right: Decimal) -> int:
    left_weight, left_digit = leading(left)
    right_weight, right_digit = leading(right)
    weight = left_weight - right_weight
    if left_digit <= right_digit:
        weight -= 1
    scale = max(MIN_SIG_DIGITS - weight * 4, scale_of(left), scale_of(right), 0)
    return min(scale, MAX_DISPLAY_SCALE)


def modulo(left: Numeric, right: Numeric) -> Numeric:
    """``%``; the result has the sign of `left`."""
    if isinstance(left, NotANumber) or isinstance(right, NotANumber):
        return NAN
    if left.is_infinite():
        if right.is_finite() and not right:
            raise EvaluationError("division by zero")
        return NAN
    if right.is_infinite():
        return left
    if not right:
        raise EvaluationError("division by zero")
    scale = max(scale_of(left), scale_of(right))
    rest = abs(unscaled(left, scale)) % abs(unscaled(right, scale))
    return EXACT.scaleb(_decimal(-rest if left.is_signed() else rest), -scale)


def apply_typmod(value: Numeric, typmod: int) -> Numeric:
    """Cast to ``numeric(precision, scale)``: round half away from zero, raise when too large.

    Source: apply_typmod(), apply_typmod_special().
    """
    if typmod < 4:
        return value
    precision = ((typmod - 4) >> 16) & 0xFFFF
    scale = (((typmod - 4) & 0x7FF) ^ 1024) - 1024
    if isinstance(value, NotANumber):
        return NAN
    if value.is_infinite():
        raise EvaluationError("numeric field overflow")
    rounded = value.quantize(Decimal((0, (1,), -scale)), context=EXACT)
    if scale < 0:
        rounded = rounded.quantize(Decimal(1), context=EXACT)
    if rounded and rounded.adjusted() >= precision - scale:
        raise EvaluationError("numeric field overflow")
    return rounded if rounded else rounded.copy_abs()


def numeric_to_integer(value: Numeric, low: int, high: int, name: str) -> int:
    """Cast to an integer type, half away from zero."""
    if isinstance(value, NotANumber):
        raise EvaluationError(f"cannot convert NaN to {name}")
    if value.is_infinite():
        raise EvaluationError(f"cannot convert infinity to {name}")
    if value and value.adjusted() > 20:
        raise EvaluationError(f"{name} out of range")
    rounded = int(value.quantize(Decimal(1), context=EXACT))
    if not low <= rounded <= high:
        raise EvaluationError(f"{name} out of range")
    return rounded


def numeric_to_float(value: Numeric) -> Float:
    """Cast to double precision, rounding once."""
    if isinstance(value, NotANumber):
        return NAN
    result = float(value)
    if value.is_finite() and (isinf(result) or (value and not result)):
        raise EvaluationError("value is out of range for type double precision")
    return result
