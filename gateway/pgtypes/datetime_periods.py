"""OVERLAPS, and the in_range functions of window frames.

Source: overlaps_timestamp() and its kin, in_range_*_interval() in src/backend/utils/adt.
"""

from __future__ import annotations

from typing import Any

from gateway.pgtypes import interval_arithmetic, timestamp_arithmetic
from gateway.pgtypes.datetime import (
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    USECS_PER_SEC,
    date_to_timestamp,
)
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.interval import (
    INFINITY,
    MINUS_INFINITY,
    Interval,
    as_int64,
    depends_on_version,
)
from gateway.pgtypes.interval_arithmetic import INFINITE_SINCE
from gateway.pgtypes.timeofday import TimeTz

__all__ = [
    "date_in_range",
    "interval_in_range",
    "overlaps",
    "time_in_range",
    "timestamp_in_range",
    "timetz_in_range",
]


def overlaps(left: Any, left_end: Any, right: Any, right_end: Any) -> bool | None:
    """Two periods have a moment in common; any argument can be None, the result too.

    A period whose ends are given in the wrong order is turned round; one with a NULL is known to
    have its other end. Values are compared by Python.
    """
    left, left_end = _ordered(left, left_end)
    right, right_end = _ordered(right, right_end)
    if left is None or right is None:
        return None
    if left == right:
        return None if left_end is None or right_end is None else True
    if left < right:
        left, left_end, right, right_end = right, right_end, left, left_end
    if right_end is None:
        return None
    if left < right_end:
        return True
    return None if left_end is None else False


def _ordered(begin: Any, end: Any) -> tuple[Any, Any]:
    if begin is None:
        return end, None
    if end is not None and begin > end:
        return end, begin
    return begin, end


def _check_offset(is_negative: bool) -> None:
    if is_negative:
        raise EvaluationError("invalid preceding or following size in window function")


def timestamp_in_range(
    value: int, base: int, offset: Interval, sub: bool, less: bool, *, major: int | None = None
) -> bool:
    """``value <= base + offset``, or ``-`` when `sub`, or ``>=`` when not `less`."""
    _check_offset(offset.span < 0)
    if offset is INFINITY and base == (TIMESTAMP_INFINITY if sub else TIMESTAMP_MINUS_INFINITY):
        return True
    if sub:
        limit = timestamp_arithmetic.subtract_interval(base, offset, major=major)
    else:
        limit = timestamp_arithmetic.add_interval(base, offset)
    return value <= limit if less else value >= limit


def date_in_range(
    value: int, base: int, offset: Interval, sub: bool, less: bool, *, major: int | None = None
) -> bool:
    """The same of dates, which are taken for timestamps."""
    timestamp, base = date_to_timestamp(value), date_to_timestamp(base)
    return timestamp_in_range(timestamp, base, offset, sub, less, major=major)


def interval_in_range(
    value: Interval,
    base: Interval,
    offset: Interval,
    sub: bool,
    less: bool,
    *,
    major: int | None = None,
) -> bool:
    """The same of intervals."""
    _check_offset(offset.span < 0)
    if offset is INFINITY and base is (INFINITY if sub else MINUS_INFINITY):
        return True
    compute = interval_arithmetic.subtract if sub else interval_arithmetic.add
    limit = compute(base, offset, major=major)
    return value <= limit if less else value >= limit


def _takes_overflow_for_infinity(major: int | None) -> bool:
    if major is None:
        depends_on_version()
    return major >= INFINITE_SINCE


def time_in_range(
    value: int, base: int, offset: Interval, sub: bool, less: bool, *, major: int | None = None
) -> bool:
    """The same of times, without going round at midnight."""
    _check_offset(offset.usecs < 0)
    limit = base - offset.usecs if sub else base + offset.usecs
    if limit >= 2**63:
        if _takes_overflow_for_infinity(major):
            return less
        limit = as_int64(limit)
    return value <= limit if less else value >= limit


def timetz_in_range(
    value: TimeTz,
    base: TimeTz,
    offset: Interval,
    sub: bool,
    less: bool,
    *,
    major: int | None = None,
) -> bool:
    """The same of times with time zone."""
    _check_offset(offset.usecs < 0)
    usecs = base.usecs - offset.usecs if sub else base.usecs + offset.usecs
    if usecs >= 2**63 and _takes_overflow_for_infinity(major):
        return less
    limit = TimeTz(as_int64(usecs + base.zone * USECS_PER_SEC), base.zone)
    return value <= limit if less else value >= limit
