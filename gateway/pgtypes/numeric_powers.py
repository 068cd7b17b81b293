"""Powers, exponentials and logarithms of numeric, digit by digit as PostgreSQL computes them.

The results are rounded from a calculation with some digits more, whose steps are each rounded to
a scale of their own; both scales come from estimates in double precision. All that is the same
here, so that the last digit is the server's also where it is not the nearest one.

Before PostgreSQL 16 integer powers had another scale, so `power` takes the major version.

Source: src/backend/utils/adt/numeric.c (exp_var(), ln_var(), log_var(), power_var(),
power_var_int()).
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.nan import NAN, NotANumber
from gateway.pgtypes.numeric import (
    EXACT,
    MAX_DIGITS,
    MAX_DISPLAY_SCALE,
    MIN_SIG_DIGITS,
    Numeric,
    fit,
    leading,
    scale_of,
    unscaled,
)
from gateway.pgtypes.numeric_functions import root, scaled

__all__ = ["common_logarithm", "exponential", "logarithm", "natural_logarithm", "power"]

_ZERO: Final = Decimal(0)
_ONE: Final = Decimal(1)
_MINUS_ONE: Final = Decimal(-1)
_TWO: Final = Decimal(2)
_TEN: Final = Decimal(10)
_INFINITY: Final = Decimal("Infinity")
_NEAR_ONE: Final = (Decimal("0.9"), Decimal("1.1"))
_MAX_RESULT_SCALE: Final = MAX_DISPLAY_SCALE * 2
_SCALE_BY_WEIGHT: Final = 16
"""The first major version that chooses the scale of an integer power by its size."""
_MAX_WEIGHT: Final = 0x7FFF
_LOG10_E: Final = 0.434294481903252
_LOG10_2: Final = 0.301029995663981
_LN_10: Final = 2.302585092994046
_INT4: Final = range(-(2**31), 2**31)


# Steps


def _round(value: Decimal, scale: int) -> Decimal:
    """Half away from zero to `scale` digits, and with that display scale; zero has no sign."""
    rounded = value.quantize(Decimal((0, (1,), -scale)), ROUND_HALF_UP, EXACT)
    return rounded if rounded else rounded.copy_abs()


def _multiply(left: Decimal, right: Decimal, scale: int) -> Decimal:
    return _round(EXACT.multiply(left, right), scale)


def _divide(left: Decimal, right: Decimal, scale: int) -> Decimal:
    common = max(scale_of(left), scale_of(right))
    dividend = abs(unscaled(left, common)) * 10**scale
    divisor = abs(unscaled(right, common))
    quotient = (2 * dividend + divisor) // (2 * divisor)
    return scaled(-quotient if (left < 0) != (right < 0) else quotient, scale)


def _weight(value: Decimal) -> int:
    """Of the first digit in base 10,000."""
    return leading(value)[0]


def _clamped(scale: int) -> int:
    return min(max(scale, 0), MAX_DISPLAY_SCALE)


def _overflow() -> EvaluationError:
    return EvaluationError("value overflows numeric format")


# Exponential


def exponential(value: Numeric) -> Numeric:
    """exp(), with at least 16 significant digits.

    Raises:
        EvaluationError: the result is too large.
    """
    if isinstance(value, NotANumber):
        return NAN
    if value.is_infinite():
        return value if value > 0 else _ZERO
    estimate = float(value) * _LOG10_E
    estimate = min(max(estimate, -_MAX_RESULT_SCALE), _MAX_RESULT_SCALE)
    scale = _clamped(max(MIN_SIG_DIGITS - int(estimate), scale_of(value)))
    return fit(_exp(value, scale))


def _exp(value: Decimal, scale: int) -> Decimal:
    """e^value by its Taylor series, on the value divided by a power of two."""
    estimate = float(value)
    if abs(estimate) >= _MAX_RESULT_SCALE * 3:
        if estimate > 0:
            raise _overflow()
        return scaled(0, scale)
    weight = int(estimate * _LOG10_E)
    halvings = 0
    while abs(estimate) > 0.01:
        halvings += 1
        estimate /= 2
    if halvings:
        value = _divide(value, Decimal(1 << halvings), scale_of(value) + halvings)
    digits = max(1 + weight + scale + int(halvings * _LOG10_2), 0) + 8
    result = _exp_series(value, digits - 1)
    for _ in range(halvings):
        result = _multiply(result, result, max(digits - _weight(result) * 8, 0))
    return _round(result, scale)


def _exp_series(value: Decimal, scale: int) -> Decimal:
    result = EXACT.add(_ONE, value)
    term = _divide(_multiply(value, value, scale), _TWO, scale)
    number = 2
    while term:
        result = EXACT.add(result, term)
        number += 1
        term = _divide(_multiply(term, value, scale), Decimal(number), scale)
    return result


# Logarithms


def natural_logarithm(value: Numeric) -> Numeric:
    """ln(), with at least 16 significant digits.

    Raises:
        EvaluationError: the number is zero or negative.
    """
    if isinstance(value, NotANumber):
        return NAN
    if value.is_infinite() and value > 0:
        return value
    _check_logarithm(value)
    scale = _clamped(max(MIN_SIG_DIGITS - _ln_weight(value), scale_of(value)))
    return fit(_ln(value, scale))


def _check_logarithm(value: Decimal) -> None:
    if not value:
        raise EvaluationError("cannot take logarithm of zero")
    if value < 0:
        raise EvaluationError("cannot take logarithm of a negative number")


def _ln_weight(value: Decimal) -> int:
    """An estimate of the decimal weight of the logarithm; 0 where there is none."""
    if value <= 0:
        return 0
    if _NEAR_ONE[0] <= value <= _NEAR_ONE[1]:
        rest = EXACT.subtract(value, _ONE)
        weight, digit = leading(rest)
        return weight * 4 + int(math.log10(digit)) if rest else 0
    weight = _weight(value)
    digits = int(EXACT.scaleb(value, -4 * weight))
    exponent = weight * 4
    if EXACT.scaleb(value, -4 * weight) != digits:
        digits = int(EXACT.scaleb(value, -4 * (weight - 1)))
        exponent -= 4
    return int(math.log10(abs(math.log(digits) + exponent * _LN_10)))


def _ln(value: Decimal, scale: int) -> Decimal:
    """The logarithm by the series of the inverse hyperbolic tangent, on a root of the value."""
    factor, roots = _TWO, 0
    while not _NEAR_ONE[0] < value < _NEAR_ONE[1]:
        value = root(value, scale - int(_weight(value) * 4 / 2) + 8)
        factor = EXACT.multiply(factor, _TWO)
        roots += 1
    local = scale + int((roots + 1) * _LOG10_2) + 8
    result = _divide(EXACT.subtract(value, _ONE), EXACT.add(value, _ONE), local)
    odd_power = result
    square = _multiply(result, result, local)
    number = 1
    while True:
        number += 2
        odd_power = _multiply(odd_power, square, local)
        term = _divide(odd_power, Decimal(number), local)
        if not term:
            break
        result = EXACT.add(result, term)
        if _weight(term) < _weight(result) - int(local * 2 / 4):
            break
    return _multiply(result, factor, scale)


def logarithm(base: Numeric, value: Numeric) -> Numeric:
    """log(base, value).

    Raises:
        EvaluationError: an argument is zero or negative, or the base is 1.
    """
    if isinstance(base, NotANumber) or isinstance(value, NotANumber):
        return NAN
    if base.is_infinite() or value.is_infinite():
        return _infinite_logarithm(base, value)
    base_weight, value_weight = _ln_weight(base), _ln_weight(value)
    weight = value_weight - base_weight
    scale = _clamped(max(MIN_SIG_DIGITS - weight, scale_of(base), scale_of(value)))
    _check_logarithm(base)
    ln_base = _ln(base, max(scale + weight - base_weight + 8, 0))
    _check_logarithm(value)
    ln_value = _ln(value, max(scale + weight - value_weight + 8, 0))
    if not ln_base:
        raise EvaluationError("division by zero")
    return fit(_divide(ln_value, ln_base, scale))


def _infinite_logarithm(base: Decimal, value: Decimal) -> Numeric:
    if base < 0 or value < 0:
        raise EvaluationError("cannot take logarithm of a negative number")
    if not base or not value:
        raise EvaluationError("cannot take logarithm of zero")
    if not base.is_infinite():
        return _INFINITY
    return NAN if value.is_infinite() else _ZERO


def common_logarithm(value: Numeric) -> Numeric:
    """log(), to the base 10.

    Raises:
        EvaluationError: the number is zero or negative.
    """
    return logarithm(_TEN, value)


# Powers


def power(base: Numeric, exponent: Numeric, *, major: int) -> Numeric:
    """The operator ``^``, as a server of the `major` version computes it.

    Raises:
        EvaluationError: zero to a negative power, a negative number to one that is no integer, or
            a result that is too large.
    """
    if isinstance(base, NotANumber):
        return _ONE if exponent == 0 else NAN
    if isinstance(exponent, NotANumber):
        return _ONE if base == 1 else NAN
    if not base and exponent < 0:
        raise EvaluationError("zero raised to a negative power is undefined")
    integral = exponent.is_infinite() or exponent == exponent.to_integral_value()
    if base.is_infinite() or exponent.is_infinite():
        if base < 0 and not integral:
            raise _complex()
        return _infinite_power(base, exponent)
    if integral and abs(exponent) <= 2**31 and int(exponent) in _INT4:
        return fit(_integer_power(base, int(exponent), scale_of(exponent), major))
    if not base:
        return scaled(0, MIN_SIG_DIGITS)
    if base < 0 and not integral:
        raise _complex()
    result = _power(base.copy_abs(), exponent)
    return fit(result.copy_negate() if base < 0 and result and _odd(exponent) else result)


def _complex() -> EvaluationError:
    return EvaluationError(
        "a negative number raised to a non-integer power yields a complex result"
    )


def _odd(value: Decimal) -> bool:
    return bool(EXACT.remainder(value, _TWO))


def _infinite_power(base: Decimal, exponent: Decimal) -> Numeric:
    if base == _ONE or not exponent:
        return _ONE
    if not base:
        return _ZERO
    if exponent.is_infinite():
        if base == _MINUS_ONE:
            return _ONE
        return _INFINITY if (abs(base) > 1) == (exponent > 0) else _ZERO
    if exponent < 0:
        return _ZERO
    return base if base > 0 or _odd(exponent) else _INFINITY


def _power(base: Decimal, exponent: Decimal) -> Decimal:
    """e^(exponent * ln(base)), first estimated to eight digits or so."""
    ln_weight = _ln_weight(base)
    local = max(8 - ln_weight, 0)
    estimate = float(_multiply(_ln(base, local), exponent, local))
    if abs(estimate) > _MAX_RESULT_SCALE * 3.01:
        if estimate > 0:
            raise _overflow()
        return scaled(0, MAX_DISPLAY_SCALE)
    weight = int(estimate * _LOG10_E)
    scale = _clamped(max(MIN_SIG_DIGITS - weight, scale_of(base), scale_of(exponent)))
    local = max(max(scale + weight, 0) - ln_weight + 8, 0)
    return _exp(_multiply(_ln(base, local), exponent, local), scale)


def _integer_power(base: Decimal, exponent: int, exponent_scale: int, major: int) -> Decimal:
    weight = _power_weight(base, exponent)
    if weight > MAX_DIGITS:
        raise _overflow()
    if major >= _SCALE_BY_WEIGHT:
        if weight + 1 < -MAX_DISPLAY_SCALE:
            return scaled(0, MAX_DISPLAY_SCALE)
        scale = max(MIN_SIG_DIGITS - int(weight), scale_of(base), exponent_scale)
    else:
        scale = max(MIN_SIG_DIGITS, scale_of(base))
    scale = _clamped(scale)
    match exponent:
        case 0:
            return _round(_ONE, scale)
        case 1:
            return _round(base, scale)
        case -1:
            return _divide(_ONE, base, scale)
        case 2:
            return _multiply(base, base, scale)
    if not base or weight + 1 < -scale:
        return scaled(0, scale)
    digits = 1 + scale + int(weight) + int(math.log(abs(exponent))) + 8
    return _squared_up(base, exponent, digits, scale)


def _power_weight(base: Decimal, exponent: int) -> float:
    """An estimate of the decimal weight of the power, from up to 16 digits of the base."""
    if not base:
        return 0.0
    weight = _weight(base)
    digits = EXACT.scaleb(base.copy_abs(), -4 * weight)
    number, place = float(int(digits)), weight * 4
    for count in range(1, 4):
        if digits == int(digits):
            break
        digits = EXACT.scaleb(base.copy_abs(), -4 * (weight - count))
        number = number * 10000 + int(digits) % 10000
        place -= 4
    return exponent * (math.log10(number) + place)


def _squared_up(base: Decimal, exponent: int, digits: int, scale: int) -> Decimal:
    """By squaring, with as many digits in each step as the result needs."""
    negative, bits = exponent < 0, abs(exponent)
    square, result = base, base if bits & 1 else _ONE
    bits >>= 1
    while bits:
        local = min(digits - 2 * _weight(square) * 4, 2 * scale_of(square))
        square = _multiply(square, square, max(local, 0))
        if bits & 1:
            local = digits - (_weight(square) + _weight(result)) * 4
            local = min(local, scale_of(square) + scale_of(result))
            result = _multiply(square, result, max(local, 0))
        if _weight(square) > _MAX_WEIGHT or _weight(result) > _MAX_WEIGHT:
            if not negative:
                raise _overflow()
            return scaled(0, scale)
        bits >>= 1
    return _divide(_ONE, result, scale) if negative else _round(result, scale)
