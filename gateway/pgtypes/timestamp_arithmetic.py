"""What PostgreSQL computes with timestamps: intervals added, differences, age, constructors, casts.

A timestamp is an integer as in `gateway.pgtypes.datetime`. `major` is as in
`gateway.pgtypes.interval_arithmetic`.

Source: src/backend/utils/adt/timestamp.c (timestamp_pl_interval, timestamp_mi, timestamp_age,
make_timestamp_internal, float8_timestamptz), date.c (make_date, datetime_timestamp).
"""

from __future__ import annotations

from math import isinf
from typing import Final

from gateway.pgtypes.datetime import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    END_DATE,
    END_TIMESTAMP,
    EPOCH_JULIAN,
    MIN_DATE,
    MIN_TIMESTAMP,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    USECS_PER_DAY,
    USECS_PER_SEC,
    date_to_julian,
    date_to_timestamp,
    julian_to_date,
    round_timestamp,
)
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.floats import Float
from gateway.pgtypes.interval import (
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
)
from gateway.pgtypes.interval_arithmetic import (
    INFINITE_SINCE,
    finite_result,
    negate_in_sum,
)
from gateway.pgtypes.nan import NotANumber
from gateway.pgtypes.timeofday import TimeTz, seconds_are_valid, zone_of_interval

__all__ = [
    "add_interval",
    "add_interval_to_date",
    "age",
    "checked_timestamp",
    "date_and_time",
    "date_and_timetz",
    "make_date",
    "make_timestamp",
    "scale",
    "subtract",
    "subtract_interval",
    "subtract_interval_from_date",
    "timestamp_in_zone",
    "timestamp_to_time",
    "timestamptz_in_zone",
    "to_timestamp",
]

_INFINITIES: Final = (TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY)
_OUT_OF_RANGE: Final = "timestamp out of range"
_CHECKS_DIFFERENCES_SINCE: Final = 16
_JULIAN_DAYS: Final = range(-1, 2**31)
_DAYS_OF_MONTH: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_UNIX_EPOCH_SECONDS: Final = 946_684_800
"""From 1970-01-01 to 2000-01-01."""
_MIN_UNIX_SECONDS: Final = -210_866_803_200.0
_END_UNIX_SECONDS: Final = 9_224_318_016_000.0


def checked_timestamp(usecs: int) -> int:
    """`usecs`, which must be in the range of finite timestamps (IS_VALID_TIMESTAMP)."""
    if not MIN_TIMESTAMP <= usecs < END_TIMESTAMP:
        raise EvaluationError(_OUT_OF_RANGE)
    return usecs


def _days_of_month(year: int, month: int) -> int:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if leap else _DAYS_OF_MONTH[month - 1]


def add_interval(usecs: int, value: Interval, *, offset: int = 0) -> int:
    """``timestamp + interval``: months first, then days, then the time.

    `offset` is how many microseconds the clock is ahead by which months and days are counted.
    """
    if value is MINUS_INFINITY or value is INFINITY:
        own, other = TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY
        if value is MINUS_INFINITY:
            own, other = other, own
        if usecs == other:
            raise EvaluationError(_OUT_OF_RANGE)
        return own
    if usecs in _INFINITIES:
        return usecs
    if value.months:
        usecs = checked_timestamp(_add_months(usecs + offset, value.months) - offset)
    if value.days:
        # The server lets the day before Julian day 0 pass, for the sake of time zones.
        if (usecs + offset) // USECS_PER_DAY + EPOCH_JULIAN + value.days not in _JULIAN_DAYS:
            raise EvaluationError(_OUT_OF_RANGE)
        usecs = checked_timestamp(usecs + value.days * USECS_PER_DAY)
    return checked_timestamp(usecs + value.usecs)


def _add_months(usecs: int, months: int) -> int:
    days, time = divmod(usecs, USECS_PER_DAY)
    year, month, day = julian_to_date(days + EPOCH_JULIAN)
    more_years, month = divmod(month - 1 + months, MONTHS_PER_YEAR)
    year += more_years
    if not -4713 <= year <= 294_277:  # of timestamps; date_to_julian() has its limits
        raise EvaluationError(_OUT_OF_RANGE)
    day = min(day, _days_of_month(year, month + 1))
    return (date_to_julian(year, month + 1, day) - EPOCH_JULIAN) * USECS_PER_DAY + time


def subtract_interval(usecs: int, value: Interval, *, major: int | None = None) -> int:
    """``timestamp - interval``; before 17 a field that cannot be negated stays as it is."""
    return add_interval(usecs, negate_in_sum(value, major=major))


def add_interval_to_date(date: int, value: Interval) -> int:
    """``date + interval``, a timestamp."""
    return add_interval(date_to_timestamp(date), value)


def subtract_interval_from_date(date: int, value: Interval, *, major: int | None = None) -> int:
    """``date - interval``, a timestamp."""
    return subtract_interval(date_to_timestamp(date), value, major=major)


def _infinite_difference(left: int, right: int) -> Interval:
    """The difference of timestamps of which one is infinite, or both are."""
    if left == right:
        raise EvaluationError("interval out of range")
    return INFINITY if left > right else MINUS_INFINITY


def subtract(left: int, right: int, *, major: int | None = None) -> Interval:
    """``timestamp - timestamp``, for timestamptz too: days and time, no months."""
    if left in _INFINITIES or right in _INFINITIES:
        if major is None:
            depends_on_version()
        if major < INFINITE_SINCE:
            raise EvaluationError("cannot subtract infinite timestamps")
        return _infinite_difference(left, right)
    difference = left - right
    if difference != as_int64(difference):
        if major is None:
            depends_on_version()
        if major >= _CHECKS_DIFFERENCES_SINCE:
            raise EvaluationError("interval out of range")
        difference = as_int64(difference)
    days, usecs_left = divide_towards_zero(difference, USECS_PER_DAY)
    return Interval(0, days, usecs_left)


def age(left: int, right: int, *, major: int | None = None) -> Interval:
    """Subtract the fields of two timestamps: years and months, days, time."""
    if left in _INFINITIES or right in _INFINITIES:
        if major is None:
            depends_on_version()
        if major >= INFINITE_SINCE:
            return _infinite_difference(left, right)
        if TIMESTAMP_MINUS_INFINITY in (left, right):
            raise EvaluationError(_OUT_OF_RANGE)
        # Infinity is taken for the last microsecond that there is: so does the server.
    late, early = (left, right) if left >= right else (right, left)
    months, days, usecs = _symbolic_difference(late, early)
    if left < right:
        months, days, usecs = -months, -days, -usecs
    return finite_result(months, days, usecs, major)


def _symbolic_difference(late: int, early: int) -> tuple[int, int, int]:
    """Months, days and microseconds; days are borrowed from the month of the earlier one."""
    late_days, late_time = divmod(late, USECS_PER_DAY)
    early_days, early_time = divmod(early, USECS_PER_DAY)
    late_year, late_month, late_day = julian_to_date(late_days + EPOCH_JULIAN)
    early_year, early_month, early_day = julian_to_date(early_days + EPOCH_JULIAN)
    usecs, days = late_time - early_time, late_day - early_day
    months = (late_year - early_year) * MONTHS_PER_YEAR + late_month - early_month
    if usecs < 0:
        usecs, days = usecs + USECS_PER_DAY, days - 1
    while days < 0:
        days, months = days + _days_of_month(early_year, early_month), months - 1
    return months, days, usecs


def timestamp_to_time(usecs: int) -> int | None:
    """Cast timestamp to time; an infinite one has none."""
    return None if usecs in _INFINITIES else usecs % USECS_PER_DAY


def scale(usecs: int, digits: int) -> int:
    """The cast to timestamp(digits) as a function, which can be called with any number."""
    if digits not in range(-1, 7) and usecs not in _INFINITIES:
        raise EvaluationError("timestamp precision must be between 0 and 6")
    return round_timestamp(usecs, digits)


def date_and_time(date: int, time: int) -> int:
    """``date + time``, a timestamp."""
    midnight = date_to_timestamp(date)
    return midnight if midnight in _INFINITIES else checked_timestamp(midnight + time)


def date_and_timetz(date: int, time: TimeTz) -> int:
    """``date + timetz``, a timestamptz."""
    if date == DATE_INFINITY:
        return TIMESTAMP_INFINITY
    if date == DATE_MINUS_INFINITY:
        return TIMESTAMP_MINUS_INFINITY
    usecs = date * USECS_PER_DAY + time.instant
    if date >= END_TIMESTAMP // USECS_PER_DAY or not MIN_TIMESTAMP <= usecs < END_TIMESTAMP:
        raise EvaluationError("date out of range for timestamp")
    return usecs


def timestamp_in_zone(zone: Interval, usecs: int) -> int:
    """``timestamp AT TIME ZONE interval``, a timestamptz (timestamp_izone)."""
    if usecs in _INFINITIES:
        return usecs
    return checked_timestamp(usecs - as_int32(zone_of_interval(zone)) * USECS_PER_SEC)


def timestamptz_in_zone(zone: Interval, usecs: int) -> int:
    """``timestamptz AT TIME ZONE interval``, a timestamp (timestamptz_izone)."""
    if usecs in _INFINITIES:
        return usecs
    return checked_timestamp(usecs - as_int32(-zone_of_interval(zone)) * USECS_PER_SEC)


def to_timestamp(seconds: Float) -> int:
    """Seconds since 1970 to a timestamptz (float8_timestamptz)."""
    if isinstance(seconds, NotANumber):
        raise EvaluationError("timestamp cannot be NaN")
    if isinf(seconds):
        return TIMESTAMP_INFINITY if seconds > 0 else TIMESTAMP_MINUS_INFINITY
    if not _MIN_UNIX_SECONDS <= seconds < _END_UNIX_SECONDS:
        raise EvaluationError(_OUT_OF_RANGE)
    return checked_timestamp(round((seconds - _UNIX_EPOCH_SECONDS) * 1_000_000.0))


def _julian(year: int, month: int, day: int) -> int:
    """Julian day of a date whose year is negative BC, as the constructors take it."""
    years = year + 1 if year < 0 else year
    valid = year not in (0, -(2**31)) and 1 <= month <= MONTHS_PER_YEAR
    if not valid or not 1 <= day <= _days_of_month(years, month):
        raise EvaluationError("date field value out of range")
    if not (-4713, 11) <= (years, month) < (5_874_898, 6):
        raise EvaluationError("date out of range")
    return date_to_julian(years, month, day)


def make_date(year: int, month: int, day: int) -> int:
    """Construct a date; negative years are BC."""
    date = _julian(year, month, day) - EPOCH_JULIAN
    if not MIN_DATE <= date < END_DATE:
        raise EvaluationError("date out of range")
    return date


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, seconds: Float) -> int:
    """Construct a timestamp; negative years are BC."""
    date = _julian(year, month, day) - EPOCH_JULIAN
    if not seconds_are_valid(hour, minute, seconds) or isinstance(seconds, NotANumber):
        raise EvaluationError("time field value out of range")
    usecs = hour * USECS_PER_HOUR + minute * USECS_PER_MINUTE + round(seconds * 1_000_000.0)
    return checked_timestamp(date * USECS_PER_DAY + usecs)
