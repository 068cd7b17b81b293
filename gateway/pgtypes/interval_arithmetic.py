"""What PostgreSQL computes with intervals: sums, products, justification, type modifiers.

`major` is the major version of the server where versions differ, None when it is not known: then
`EvaluationError` is raised for the values for which they do. Floating-point steps follow the C
code one by one, because each of them rounds.

Source: src/backend/utils/adt/timestamp.c (interval_pl to interval_div, interval_justify_*,
AdjustIntervalForTypmod, make_interval).
"""

from __future__ import annotations

from math import isfinite, isinf
from typing import Final, NoReturn

from gateway.pgtypes.datetime import USECS_PER_DAY
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.floats import Float
from gateway.pgtypes.interval import (
    DAYS_PER_MONTH,
    INFINITY,
    MINUS_INFINITY,
    MONTHS_PER_YEAR,
    USECS_PER_HOUR,
    USECS_PER_MINUTE,
    Interval,
    as_int32,
    as_int64,
    depends_on_version,
    divide_towards_zero,
    is_finite,
)
from gateway.pgtypes.nan import NotANumber

__all__ = [
    "INFINITE_SINCE",
    "VALID_MODIFIERS",
    "add",
    "divide",
    "finite_result",
    "interval_to_time",
    "justify_days",
    "justify_hours",
    "justify_interval",
    "make_interval",
    "multiply",
    "multiply_reversed",
    "negate",
    "negate_in_sum",
    "scale",
    "scale_checked",
    "scale_is_valid",
    "subtract",
    "time_to_interval",
]

INFINITE_SINCE: Final = 17
"""The first major version with infinite intervals."""

_SECS_PER_DAY: Final = 86_400
_USECS_PER_SEC: Final = 1_000_000.0
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)


def _out_of_range() -> NoReturn:
    raise EvaluationError("interval out of range")


def finite_result(months: int, days: int, usecs: int, major: int | None) -> Interval:
    """The interval with these fields, which must be finite."""
    if months not in _INT32 or days not in _INT32 or usecs not in _INT64:
        _out_of_range()
    found = Interval(months, days, usecs)
    for end in (INFINITY, MINUS_INFINITY):
        if found.span == end.span and (months, days) == (end.months, end.days):
            if major is None:
                depends_on_version()
            if major >= INFINITE_SINCE:
                _out_of_range()
    return found


def negate(value: Interval, *, major: int | None = None) -> Interval:
    """Unary ``-`` (interval_um)."""
    if value is INFINITY:
        return MINUS_INFINITY
    if value is MINUS_INFINITY:
        return INFINITY
    return finite_result(-value.months, -value.days, -value.usecs, major)


def negate_in_sum(value: Interval, *, major: int | None = None) -> Interval:
    """The interval to add for one to subtract; before 17, what cannot be negated stays as it is."""
    if not is_finite(value) or (major is not None and major >= INFINITE_SINCE):
        return negate(value, major=major)
    negated = Interval(as_int32(-value.months), as_int32(-value.days), as_int64(-value.usecs))
    if major is None and negated.span != -value.span:
        depends_on_version()
    return negated


def add(left: Interval, right: Interval, *, major: int | None = None) -> Interval:
    """``+`` (interval_pl); infinities of different signs raise."""
    if not is_finite(left) or not is_finite(right):
        if not is_finite(left) and not is_finite(right) and left is not right:
            _out_of_range()
        return right if is_finite(left) else left
    return finite_result(
        left.months + right.months, left.days + right.days, left.usecs + right.usecs, major
    )


def subtract(left: Interval, right: Interval, *, major: int | None = None) -> Interval:
    """``-`` (interval_mi); infinities of the same sign raise."""
    if not is_finite(left) or not is_finite(right):
        if left is right:
            _out_of_range()
        return negate(right) if is_finite(left) else left
    return finite_result(
        left.months - right.months, left.days - right.days, left.usecs - right.usecs, major
    )


def multiply(value: Interval, factor: Float, *, major: int | None = None) -> Interval:
    """``interval * double precision`` (interval_mul)."""
    if isinstance(factor, NotANumber):
        _out_of_range()
    if not is_finite(value):
        if factor == 0:
            _out_of_range()
        return value if factor > 0 else negate(value)
    if isinf(factor):
        if value.span == 0:
            _out_of_range()
        if major is None:
            depends_on_version()
        if major < INFINITE_SINCE:
            _out_of_range()
        return INFINITY if (value.span > 0) == (factor > 0) else MINUS_INFINITY
    return _cascaded(value.months * factor, value.days * factor, value.usecs * factor, major)


def multiply_reversed(factor: Float, value: Interval, *, major: int | None = None) -> Interval:
    """``double precision * interval`` (mul_d_interval)."""
    return multiply(value, factor, major=major)


def divide(value: Interval, divisor: Float, *, major: int | None = None) -> Interval:
    """``interval / double precision`` (interval_div)."""
    if isinstance(divisor, NotANumber):
        _out_of_range()
    if divisor == 0:
        raise EvaluationError("division by zero")
    if not is_finite(value):
        if isinf(divisor):
            _out_of_range()
        return value if divisor > 0 else negate(value)
    return _cascaded(value.months / divisor, value.days / divisor, value.usecs / divisor, major)


def _cascaded(months: float, days: float, usecs: float, major: int | None) -> Interval:
    """Fields that became fractional: what is left of a month goes to days, of a day to seconds."""
    whole_months, whole_days = _to_int32(months), _to_int32(days)
    month_remainder_days = _rounded_to_usec((months - whole_months) * DAYS_PER_MONTH)
    sec_remainder = _rounded_to_usec(
        (days - whole_days + month_remainder_days - int(month_remainder_days)) * _SECS_PER_DAY
    )
    if abs(sec_remainder) >= _SECS_PER_DAY:
        extra = int(sec_remainder / _SECS_PER_DAY)
        whole_days += extra
        if whole_days not in _INT32:
            _out_of_range()
        sec_remainder -= extra * _SECS_PER_DAY
    whole_days += int(month_remainder_days)
    total = usecs + sec_remainder * _USECS_PER_SEC
    if not isfinite(total):
        _out_of_range()
    return finite_result(whole_months, whole_days, round(total), major)


def _to_int32(value: float) -> int:
    """Cut off the fraction; FLOAT8_FITS_IN_INT32."""
    if not -2147483648.0 <= value < 2147483648.0:
        _out_of_range()
    return int(value)


def _rounded_to_usec(value: float) -> float:
    """TSROUND; Python's round() is rint()."""
    return round(value * _USECS_PER_SEC) / _USECS_PER_SEC


def justify_hours(value: Interval) -> Interval:
    """Bring whole days from the time into the days (interval_justify_hours)."""
    if not is_finite(value):
        return value
    whole_days, usecs = divide_towards_zero(value.usecs, USECS_PER_DAY)
    days = value.days + whole_days
    if days not in _INT32:
        _out_of_range()
    if days > 0 and usecs < 0:
        days, usecs = days - 1, usecs + USECS_PER_DAY
    elif days < 0 and usecs > 0:
        days, usecs = days + 1, usecs - USECS_PER_DAY
    return Interval(value.months, days, usecs)


def justify_days(value: Interval) -> Interval:
    """Bring whole months from the days into the months (interval_justify_days)."""
    if not is_finite(value):
        return value
    whole_months, days = divide_towards_zero(value.days, DAYS_PER_MONTH)
    months = _months(value.months + whole_months)
    if months > 0 and days < 0:
        months, days = months - 1, days + DAYS_PER_MONTH
    elif months < 0 and days > 0:
        months, days = months + 1, days - DAYS_PER_MONTH
    return Interval(months, days, value.usecs)


def justify_interval(value: Interval) -> Interval:
    """Do both, and give all fields one sign (interval_justify_interval)."""
    if not is_finite(value):
        return value
    months, days, usecs = value.months, value.days, value.usecs
    if (days > 0 and usecs > 0) or (days < 0 and usecs < 0):
        whole_months, days = divide_towards_zero(days, DAYS_PER_MONTH)
        months = _months(months + whole_months)
    whole_days, usecs = divide_towards_zero(usecs, USECS_PER_DAY)
    whole_months, days = divide_towards_zero(days + whole_days, DAYS_PER_MONTH)
    months = _months(months + whole_months)
    if months > 0 and (days < 0 or (days == 0 and usecs < 0)):
        months, days = months - 1, days + DAYS_PER_MONTH
    elif months < 0 and (days > 0 or (days == 0 and usecs > 0)):
        months, days = months + 1, days - DAYS_PER_MONTH
    if days > 0 and usecs < 0:
        days, usecs = days - 1, usecs + USECS_PER_DAY
    elif days < 0 and usecs > 0:
        days, usecs = days + 1, usecs - USECS_PER_DAY
    return Interval(months, days, usecs)


def _months(months: int) -> int:
    if months not in _INT32:
        _out_of_range()
    return months


def make_interval(
    years: int,
    months: int,
    weeks: int,
    days: int,
    hours: int,
    mins: int,
    secs: Float,
    *,
    major: int | None = None,
) -> Interval:
    """Construct an interval; before 17 months and days overflow in silence.

    There the seconds do so, too, but how depends on the machine, so that it is not reproduced.
    """
    if isinstance(secs, NotANumber) or isinf(secs):
        _out_of_range()
    all_months, all_days = years * MONTHS_PER_YEAR + months, weeks * 7 + days
    parts = (years * MONTHS_PER_YEAR, all_months, weeks * 7, all_days)
    if any(part not in _INT32 for part in parts):
        if major is None:
            depends_on_version()
        if major >= INFINITE_SINCE:
            _out_of_range()
        all_months, all_days = as_int32(all_months), as_int32(all_days)
    usecs_of_secs = secs * _USECS_PER_SEC
    if isinf(usecs_of_secs):
        if major is not None and major >= INFINITE_SINCE:
            raise EvaluationError("value out of range: overflow")
        depends_on_version()
    usecs = round(usecs_of_secs)
    total = usecs + hours * USECS_PER_HOUR + mins * USECS_PER_MINUTE
    if usecs not in _INT64 or total not in _INT64:
        if major is not None and major >= INFINITE_SINCE:
            _out_of_range()
        depends_on_version()
    return finite_result(all_months, all_days, total, major)


def time_to_interval(usecs: int) -> Interval:
    """Cast time to interval."""
    return Interval(0, 0, usecs)


def interval_to_time(value: Interval, *, major: int | None = None) -> int:
    """Cast interval to time: what goes beyond whole days (interval_time)."""
    if not is_finite(value):
        raise EvaluationError("cannot convert infinite interval to time")
    days = (-value.usecs + USECS_PER_DAY - 1) // USECS_PER_DAY
    if days * USECS_PER_DAY not in _INT64 or -value.usecs + USECS_PER_DAY - 1 not in _INT64:
        # Before 17 the number of days overflowed in between.
        if major is None:
            depends_on_version()
        if major < INFINITE_SINCE:
            wrapped = as_int64(-value.usecs + USECS_PER_DAY - 1)
            days = divide_towards_zero(wrapped, USECS_PER_DAY)[0]
            return as_int64(value.usecs + days * USECS_PER_DAY)
    return value.usecs % USECS_PER_DAY


# Type modifiers. The fields are a set of bits, of which the smallest counts.

_FULL_RANGE: Final = 0x7FFF
_FULL_PRECISION: Final = 0xFFFF
_YEAR, _MONTH, _DAY = 1 << 2, 1 << 1, 1 << 3
_HOUR, _MINUTE, _SECOND = 1 << 10, 1 << 11, 1 << 12
_UNIT_OF_RANGE: Final = {
    _DAY: USECS_PER_DAY,
    _HOUR: USECS_PER_HOUR,
    _DAY | _HOUR: USECS_PER_HOUR,
    _MINUTE: USECS_PER_MINUTE,
    _HOUR | _MINUTE: USECS_PER_MINUTE,
    _DAY | _HOUR | _MINUTE: USECS_PER_MINUTE,
    _SECOND: 1,
    _MINUTE | _SECOND: 1,
    _HOUR | _MINUTE | _SECOND: 1,
    _DAY | _HOUR | _MINUTE | _SECOND: 1,
    _FULL_RANGE: 1,
}


VALID_MODIFIERS: Final = frozenset(
    fields << 16 | precision
    for fields in (*_UNIT_OF_RANGE, _YEAR, _MONTH, _YEAR | _MONTH)
    for precision in (*range(7), _FULL_PRECISION)
)
"""The type modifiers that an interval can have, other than none (-1)."""


def scale_is_valid(typmod: int) -> bool:
    """`typmod` is one that an interval can have."""
    return typmod == -1 or typmod in VALID_MODIFIERS


def scale(value: Interval, typmod: int, *, major: int | None = None) -> Interval:
    """Cast to an interval with fields or a precision, `typmod` (AdjustIntervalForTypmod)."""
    if not is_finite(value) or typmod < 0:
        return value
    fields, precision = (typmod >> 16) & 0x7FFF, typmod & 0xFFFF
    months, days, usecs = value.months, value.days, value.usecs
    if fields == _YEAR:
        months = divide_towards_zero(months, MONTHS_PER_YEAR)[0] * MONTHS_PER_YEAR
    unit = _UNIT_OF_RANGE.get(fields)
    if unit is None:
        days = usecs = 0
    elif fields == _DAY:
        usecs = 0
    else:
        usecs -= divide_towards_zero(usecs, unit)[1]
    if precision != _FULL_PRECISION:
        usecs = _rounded(usecs, 10 ** (6 - precision), major)
    return Interval(months, days, usecs)


def scale_checked(value: Interval, typmod: int, *, major: int | None = None) -> Interval:
    """The cast as a function, which can be called with any number (interval_scale)."""
    if is_finite(value) and typmod >= 0 and not scale_is_valid(typmod):
        if not scale_is_valid(typmod | _FULL_PRECISION):
            raise EvaluationError("unrecognized interval typmod")
        raise EvaluationError("interval precision must be between 0 and 6")
    return scale(value, typmod, major=major)


def _rounded(usecs: int, unit: int, major: int | None) -> int:
    """Half away from zero; before 17 it overflows in silence."""
    negative = usecs < 0
    usecs += -(unit // 2) if negative else unit // 2
    if usecs not in _INT64:
        if major is None:
            depends_on_version()
        if major >= INFINITE_SINCE:
            _out_of_range()
        half_up = divide_towards_zero(as_int64(-usecs if negative else usecs), unit)[0] * unit
        return as_int64(-half_up if negative else half_up)
    return usecs - divide_towards_zero(usecs, unit)[1]
