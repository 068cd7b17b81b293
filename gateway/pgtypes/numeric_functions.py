"""Functions of numeric that round, count digits or stay among exact numbers.

Source: src/backend/utils/adt/numeric.c.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Final

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.nan import NAN, NotANumber
from gateway.pgtypes.numeric import (
    EXACT,
    MAX_DIGITS,
    MAX_DISPLAY_SCALE,
    MAX_SCALE,
    MIN_SIG_DIGITS,
    Numeric,
    fit,
    leading,
    scale_of,
    unscaled,
)

__all__ = [
    "ceil",
    "divide_truncating",
    "factorial",
    "floor",
    "greatest_common_divisor",
    "increment",
    "least_common_multiple",
    "min_scale",
    "round_to_integer",
    "round_to_scale",
    "scale",
    "sign",
    "square_root",
    "trim_scale",
    "truncate_to_integer",
    "truncate_to_scale",
    "width_bucket",
]

_ONE: Final = Decimal(1)
_ZERO: Final = Decimal(0)
_LAST_FACTORIAL: Final = 32177


def scaled(value: int, scale: int) -> Decimal:
    """``value / 10^scale`` with that display scale."""
    return EXACT.scaleb(Decimal(value), -scale)


def _integral(value: Numeric, rounding: str) -> Numeric:
    if isinstance(value, NotANumber) or value.is_infinite():
        return value
    return fit(value.quantize(_ONE, rounding, EXACT))


def ceil(value: Numeric) -> Numeric:
    """The next integer above."""
    return _integral(value, ROUND_CEILING)


def floor(value: Numeric) -> Numeric:
    """The next integer below."""
    return _integral(value, ROUND_FLOOR)


def round_to_integer(value: Numeric) -> Numeric:
    """The nearest integer, half away from zero."""
    return _integral(value, ROUND_HALF_UP)


def truncate_to_integer(value: Numeric) -> Numeric:
    """The integer part."""
    return _integral(value, ROUND_DOWN)


def round_to_scale(value: Numeric, scale: int) -> Numeric:
    """Round half away from zero; a negative scale rounds before the point.

    Raises:
        EvaluationError: the result is too large.
    """
    # One digit more than there can be: from there on everything rounds to zero.
    return _to_scale(value, max(scale, -MAX_DIGITS - 1), ROUND_HALF_UP)


def truncate_to_scale(value: Numeric, scale: int) -> Numeric:
    """Cut; a negative scale cuts before the point."""
    return _to_scale(value, max(scale, -MAX_DIGITS), ROUND_DOWN)


def _to_scale(value: Numeric, scale: int, rounding: str) -> Numeric:
    if isinstance(value, NotANumber) or value.is_infinite():
        return value
    scale = min(scale, MAX_SCALE)
    result = value.quantize(Decimal((0, (1,), -scale)), rounding, EXACT)
    if scale < 0:
        result = result.quantize(_ONE, context=EXACT)
    return fit(result)


def sign(value: Numeric) -> Numeric:
    """-1, 0, 1, or NaN."""
    if isinstance(value, NotANumber):
        return NAN
    return Decimal((value > 0) - (value < 0))


def increment(value: Numeric) -> Numeric:
    """numeric_inc(): one more."""
    return value if isinstance(value, NotANumber) else fit(EXACT.add(value, _ONE))


def scale(value: Numeric) -> int | None:
    """Digits after the point; None for NaN and infinities."""
    return scale_of(value) if isinstance(value, Decimal) and value.is_finite() else None


def min_scale(value: Numeric) -> int | None:
    """Digits after the point that are needed; None for NaN and infinities."""
    if isinstance(value, NotANumber) or value.is_infinite():
        return None
    exponent = value.normalize(EXACT).as_tuple().exponent
    assert isinstance(exponent, int)
    return max(-exponent, 0) if value else 0


def trim_scale(value: Numeric) -> Numeric:
    """The value without zeros at the end of its fraction."""
    needed = min_scale(value)
    if needed is None:
        return value
    assert isinstance(value, Decimal)
    return value.quantize(Decimal((0, (1,), -needed)), context=EXACT)


def divide_truncating(left: Numeric, right: Numeric) -> Numeric:
    """The integer part of the quotient.

    Raises:
        EvaluationError: `right` is zero.
    """
    if isinstance(left, NotANumber) or isinstance(right, NotANumber):
        return NAN
    if left.is_infinite() and right.is_infinite():
        return NAN
    if not right:
        raise EvaluationError("division by zero")
    if left.is_infinite():
        return left if right > 0 else left.copy_negate()
    if right.is_infinite():
        return _ZERO
    common = max(scale_of(left), scale_of(right))
    quotient = abs(unscaled(left, common)) // abs(unscaled(right, common))
    return fit(Decimal(-quotient if left.is_signed() != right.is_signed() else quotient))


def greatest_common_divisor(left: Numeric, right: Numeric) -> Numeric:
    """NaN if an argument is not finite."""
    if isinstance(left, NotANumber) or isinstance(right, NotANumber):
        return NAN
    if left.is_infinite() or right.is_infinite():
        return NAN
    common = max(scale_of(left), scale_of(right))
    return scaled(math.gcd(unscaled(left, common), unscaled(right, common)), common)


def least_common_multiple(left: Numeric, right: Numeric) -> Numeric:
    """NaN if an argument is not finite.

    Raises:
        EvaluationError: the result is too large.
    """
    if isinstance(left, NotANumber) or isinstance(right, NotANumber):
        return NAN
    if left.is_infinite() or right.is_infinite():
        return NAN
    common = max(scale_of(left), scale_of(right))
    return fit(scaled(math.lcm(unscaled(left, common), unscaled(right, common)), common))


def factorial(value: int) -> Numeric:
    """The product of all integers up to `value`.

    Raises:
        EvaluationError: the argument is negative, or the result too large.
    """
    if value < 0:
        raise EvaluationError("factorial of a negative number is undefined")
    if value > _LAST_FACTORIAL:
        raise EvaluationError("value overflows numeric format")
    return Decimal(math.factorial(value))


def square_root(value: Numeric) -> Numeric:
    """The square root to at least 16 significant digits, correctly rounded.

    Raises:
        EvaluationError: the number is negative.
    """
    if isinstance(value, NotANumber):
        return NAN
    if value < 0:
        raise EvaluationError("cannot take square root of a negative number")
    if value.is_infinite():
        return value
    weight = leading(value)[0] * 4 // 2 + 1
    wanted = min(max(MIN_SIG_DIGITS - weight, scale_of(value), 0), MAX_DISPLAY_SCALE)
    return fit(root(value, wanted))


def root(value: Decimal, scale: int) -> Decimal:
    """The square root rounded half up to `scale` digits, which may be negative."""
    shift = 2 * scale + 2
    number = unscaled(value, scale_of(value))
    shift -= scale_of(value)
    number = number * 10**shift if shift >= 0 else number // 10**-shift
    return scaled((math.isqrt(number) + 5) // 10, scale)


def width_bucket(operand: Numeric, low: Numeric, high: Numeric, count: int) -> int:
    """Which of `count` equal parts of [low, high) holds `operand`; 0 below, `count` + 1 above.

    Raises:
        EvaluationError: no count, NaN, infinite or equal bounds, or a result beyond integer.
    """
    if count <= 0:
        raise EvaluationError("count must be greater than zero")
    if isinstance(operand, NotANumber) or isinstance(low, NotANumber):
        raise EvaluationError("operand, lower bound, and upper bound cannot be NaN")
    if isinstance(high, NotANumber):
        raise EvaluationError("operand, lower bound, and upper bound cannot be NaN")
    if low.is_infinite() or high.is_infinite():
        raise EvaluationError("lower and upper bounds must be finite")
    if low == high:
        raise EvaluationError("lower bound cannot equal upper bound")
    if low > high:
        operand, low, high = operand.copy_negate(), low.copy_negate(), high.copy_negate()
    if operand < low:
        return 0
    if operand >= high:
        if count == 2**31 - 1:
            raise EvaluationError("integer out of range")
        return count + 1
    common = max(map(scale_of, (operand, low, high)))
    start, value, end = (unscaled(number, common) for number in (low, operand, high))
    return (value - start) * count // (end - start) + 1
