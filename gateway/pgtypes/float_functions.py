"""Functions of double precision whose result IEEE 754 fixes to the last bit.

Those of libm (sin, exp, ln, power, cbrt, ...) are not among them: their last bit depends on the
library of the server.

Source: src/backend/utils/adt/float.c.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.floats import Float, divide, multiply
from gateway.pgtypes.nan import NAN, NotANumber

__all__ = ["PI", "ceil", "degrees", "floor", "radians", "round_half_even", "sign", "square_root",
           "truncate", "width_bucket"]  # fmt: skip

PI: Final = math.pi
_RADIANS_PER_DEGREE: Final = 0.0174532925199432957692
_INTEGRAL: Final = 2.0**52
"""From here on every double is an integer."""


def _integral(value: Float, function: Callable[[float], int]) -> Float:
    if isinstance(value, NotANumber):
        return NAN
    if abs(value) >= _INTEGRAL:
        return value
    return math.copysign(function(value), value)


def round_half_even(value: Float) -> Float:
    """The nearest integer, of two equally near the even one."""
    return _integral(value, round)


def ceil(value: Float) -> Float:
    """The next integer above."""
    return _integral(value, math.ceil)


def floor(value: Float) -> Float:
    """The next integer below."""
    return _integral(value, math.floor)


def truncate(value: Float) -> Float:
    """The integer part."""
    return _integral(value, math.trunc)


def sign(value: Float) -> Float:
    """-1, 0 or 1; 0 for NaN."""
    if isinstance(value, NotANumber):
        return 0.0
    return float((value > 0) - (value < 0))


def square_root(value: Float) -> Float:
    """sqrt(), and ``|/``.

    Raises:
        EvaluationError: the number is negative.
    """
    if isinstance(value, NotANumber):
        return NAN
    if value < 0:
        raise EvaluationError("cannot take square root of a negative number")
    return math.sqrt(value)


def degrees(value: Float) -> Float:
    """From radians; raises `EvaluationError` on overflow."""
    return divide(value, _RADIANS_PER_DEGREE)


def radians(value: Float) -> Float:
    """From degrees; raises `EvaluationError` on underflow."""
    return multiply(value, _RADIANS_PER_DEGREE)


def width_bucket(operand: Float, low: Float, high: Float, count: int) -> int:
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
    if math.isinf(low) or math.isinf(high):
        raise EvaluationError("lower and upper bounds must be finite")
    if low == high:
        raise EvaluationError("lower bound cannot equal upper bound")
    # With the bounds the wrong way round everything is mirrored, which is exact.
    if low > high:
        operand, low, high = -operand, -low, -high
    if operand < low:
        return 0
    if operand >= high:
        if count == 2**31 - 1:
            raise EvaluationError("integer out of range")
        return count + 1
    if math.isinf(high - low):
        operand, low, high = operand / 2, low / 2, high / 2
    return min(int(count * ((operand - low) / (high - low))), count - 1) + 1
