"""date, timestamp and timestamptz in ISO DateStyle, as PostgreSQL's own integers.

A date is a number of days, a timestamp a number of microseconds, both since 2000-01-01
(timestamptz: 00:00 UTC) in the proleptic Gregorian calendar, as in the server's memory. The
infinities are the ends of the integer type, so that values compare as PostgreSQL compares them.
Python's `datetime` is not used: it knows no BC, no year above 9999 and no infinity.

Source: src/backend/utils/adt/datetime.c (EncodeDateOnly, EncodeDateTime, date2j, j2date).
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "DATE_INFINITY",
    "DATE_MINUS_INFINITY",
    "TIMESTAMP_INFINITY",
    "TIMESTAMP_MINUS_INFINITY",
    "USECS_PER_DAY",
    "add_days",
    "date_as_timestamp",
    "date_to_julian",
    "date_to_timestamp",
    "days_between",
    "format_date",
    "format_timestamp",
    "julian_to_date",
    "parse_clock",
    "parse_date",
    "parse_timestamp",
    "parse_timestamptz",
    "round_timestamp",
    "subtract_days",
    "timestamp_to_date",
]

DATE_INFINITY: Final = 2**31 - 1
DATE_MINUS_INFINITY: Final = -(2**31)
TIMESTAMP_INFINITY: Final = 2**63 - 1
TIMESTAMP_MINUS_INFINITY: Final = -(2**63)

USECS_PER_SEC: Final = 1_000_000
USECS_PER_DAY: Final = 86_400 * USECS_PER_SEC
EPOCH_JULIAN: Final = 2_451_545
"""Julian day of 2000-01-01 (POSTGRES_EPOCH_JDATE)."""
MIN_DATE: Final = -EPOCH_JULIAN
"""4714-11-24 BC: Julian day 0."""
END_DATE: Final = 2_147_483_494 - EPOCH_JULIAN
"""First day after the last, 5874897-12-31 (DATE_END_JULIAN)."""
MIN_TIMESTAMP: Final = -211_813_488_000_000_000
END_TIMESTAMP: Final = 9_223_371_331_200_000_000

_CACHE_LIMIT: Final = 1 << 16
_DATE = re.compile(rb"(\d{4,7})-(\d\d)-(\d\d)( BC)?")
_TIMESTAMP = re.compile(
    rb"(\d{4,6})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
    rb"(?:([+-])(\d\d)(?::(\d\d)(?::(\d\d))?)?)?( BC)?"
)
_CLOCK = re.compile(rb"([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_FRACTION_UNIT: Final = (0, 100_000, 10_000, 1_000, 100, 10, 1)
"""Microseconds of the last digit, by the number of digits after the point."""


def parse_date(text: bytes) -> int:
    """Read a date: days since 2000-01-01; the infinities are 2**31 - 1 and -2**31.

    Raises:
        ValueFormatError: not a date in ISO DateStyle, or out of PostgreSQL's range.
    """
    return _dates[text]


def parse_timestamp(text: bytes) -> int:
    """Read a timestamp: microseconds since 2000-01-01 00:00; infinities 2**63 - 1 and -2**63.

    Raises:
        ValueFormatError: not a timestamp in ISO DateStyle, or out of PostgreSQL's range.
    """
    size = len(text)
    if size == 26:  # six digits, as clocks give them: the usual case first
        fraction = text[20:]
        if fraction.isdigit() and text[19] == 46:
            return _day_usecs[text[:10]] + _time_usecs[text[10:19]] + int(fraction)
    if size == 19:
        return _day_usecs[text[:10]] + _time_usecs[text[10:]]
    if 21 <= size <= 25 and text[19] == 46:  # a point
        fraction = text[20:]
        if fraction.isdigit():
            return (
                _day_usecs[text[:10]]
                + _time_usecs[text[10:19]]
                + int(fraction) * _FRACTION_UNIT[size - 20]
            )
    return _parse_timestamp_slowly(text, zone=False)


def parse_timestamptz(text: bytes) -> int:
    """Read a timestamptz: microseconds since 2000-01-01 00:00 UTC; infinities as `parse_timestamp`.

    Any numeric UTC offset is understood, minutes and seconds included; zone abbreviations are not.

    Raises:
        ValueFormatError: not a timestamptz in ISO DateStyle, or out of PostgreSQL's range.
    """
    size = len(text)
    if text[-3:] == b"+00":
        if size == 29:
            fraction = text[20:26]
            if fraction.isdigit() and text[19] == 46:
                return _day_usecs[text[:10]] + _time_usecs[text[10:19]] + int(fraction)
        if size == 22:
            return _day_usecs[text[:10]] + _time_usecs[text[10:19]]
        if 24 <= size <= 28 and text[19] == 46:
            fraction = text[20:-3]
            if fraction.isdigit():
                return (
                    _day_usecs[text[:10]]
                    + _time_usecs[text[10:19]]
                    + int(fraction) * _FRACTION_UNIT[size - 23]
                )
    return _parse_timestamp_slowly(text, zone=True)


def parse_clock(text: bytes) -> int:
    """Read a time of day, or the hours and less of an interval: microseconds.

    Raises:
        ValueFormatError: not ``HH:MM:SS``, with a fraction and a sign or without.
    """
    match = _CLOCK.fullmatch(text)
    if match is None:
        _refuse("time")
    sign, hours, minutes, seconds, fraction = match.groups()
    usecs = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * USECS_PER_SEC
    usecs += int((fraction or b"0").ljust(6, b"0"))
    return -usecs if sign == b"-" else usecs


class _Dates(dict[bytes, int]):
    """Whole dates -> days; a table's dates repeat, so most are found without being parsed."""

    __slots__ = ()

    def __missing__(self, text: bytes) -> int:
        if text == b"infinity":
            return DATE_INFINITY
        if text == b"-infinity":
            return DATE_MINUS_INFINITY
        match = _DATE.fullmatch(text)
        if match is None:
            _refuse("date")
        year, month, day, bc = match.groups()
        days = _days(year, month, day, bc, "date")
        if not MIN_DATE <= days < END_DATE:
            _refuse("date")
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[bytes(text)] = days
        return days


class _DayUsecs(dict[bytes, int]):
    """The ``YYYY-MM-DD`` of a timestamp -> microseconds of its midnight."""

    __slots__ = ()

    def __missing__(self, text: bytes) -> int:
        match = _DATE.fullmatch(text)
        if match is None:
            _refuse("timestamp")
        year, month, day, bc = match.groups()
        usecs = _days(year, month, day, bc, "timestamp") * USECS_PER_DAY
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[text] = usecs
        return usecs


class _TimeUsecs(dict[bytes, int]):
    """`` HH:MM:SS``, with its leading blank -> microseconds. Can hold a whole day: 86,400."""

    __slots__ = ()

    def __missing__(self, text: bytes) -> int:
        if (
            len(text) != 9
            or text[0] != 32
            or text[3] != 58
            or text[6] != 58
            or not (text[1:3] + text[4:6] + text[7:9]).isdigit()
        ):
            _refuse("timestamp")
        usecs = _time_of_day(text[1:3], text[4:6], text[7:9])
        self[text] = usecs
        return usecs


_dates: Final = _Dates()
_day_usecs: Final = _DayUsecs()
_time_usecs: Final = _TimeUsecs()


def _parse_timestamp_slowly(text: bytes, *, zone: bool) -> int:
    name = "timestamptz" if zone else "timestamp"
    if text == b"infinity":
        return TIMESTAMP_INFINITY
    if text == b"-infinity":
        return TIMESTAMP_MINUS_INFINITY
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        _refuse(name)
    year, month, day, hour, minute, second, fraction, sign, *offset, bc = match.groups()
    if (sign is not None) is not zone:
        _refuse(name)
    usecs = _days(year, month, day, bc, name) * USECS_PER_DAY
    usecs += _time_of_day(hour, minute, second)
    if fraction is not None:
        usecs += int(fraction) * _FRACTION_UNIT[len(fraction)]
    if zone:
        hours, minutes, seconds = (int(part or 0) for part in offset)
        if hours > 15 or minutes > 59 or seconds > 59:
            _refuse(name)
        east = ((hours * 60 + minutes) * 60 + seconds) * USECS_PER_SEC
        usecs -= -east if sign == b"-" else east
    # Not END_TIMESTAMP: timestamp(3) rounds 294276-12-31 23:59:59.9999 up to the year 294277.
    if not MIN_TIMESTAMP <= usecs < TIMESTAMP_INFINITY:
        _refuse(name)
    return usecs


def _time_of_day(hour: bytes, minute: bytes, second: bytes) -> int:
    hours, minutes, seconds = int(hour), int(minute), int(second)
    if hours > 23 or minutes > 59 or seconds > 59:
        _refuse("timestamp")
    return ((hours * 60 + minutes) * 60 + seconds) * USECS_PER_SEC


def _days(year: bytes, month: bytes, day: bytes, bc: bytes | None, name: str) -> int:
    """Days since 2000-01-01 of a date as printed; the year before 1 AD is 1 BC."""
    printed, months, days = int(year), int(month), int(day)
    years = 1 - printed if bc is not None else printed
    if printed == 0:
        _refuse(name)
    julian = date_to_julian(years, months, days)
    # A day that the calendar does not have comes back as another one.
    if not 1 <= months <= 12 or julian_to_date(julian) != (years, months, days):
        _refuse(name)
    return julian - EPOCH_JULIAN


def date_to_julian(year: int, month: int, day: int) -> int:
    """Julian day of a date of the proleptic Gregorian calendar; year 0 is 1 BC.

    Source: date2j().
    """
    if month > 2:
        month += 1
        year += 4800
    else:
        month += 13
        year += 4799
    century = year // 100
    julian = year * 365 - 32167
    julian += year // 4 - century + century // 4
    return julian + 7834 * month // 256 + day


def julian_to_date(julian: int) -> tuple[int, int, int]:
    """The year (0 is 1 BC), month and day of a Julian day.

    Source: j2date().
    """
    julian += 32044
    quad, extra = divmod(julian, 146097)
    extra = extra * 4 + 3
    julian += 60 + quad * 3 + extra // 146097
    quad, julian = divmod(julian, 1461)
    year = julian * 4 // 1461
    julian = ((julian + 305) % 365 if year else (julian + 306) % 366) + 123
    year += quad * 4
    quad = julian * 2141 // 65536
    return year - 4800, (quad + 10) % 12 + 1, julian - 7834 * quad // 256


def add_days(date: int, days: int) -> int:
    """Date + integer (date_pli)."""
    if date in (DATE_INFINITY, DATE_MINUS_INFINITY):
        return date
    if not MIN_DATE <= date + days < END_DATE:
        raise EvaluationError("date out of range")
    return date + days


def subtract_days(date: int, days: int) -> int:
    """Date - integer (date_mii)."""
    return add_days(date, -days)


def days_between(left: int, right: int) -> int:
    """Date - date (date_mi)."""
    if {left, right} & {DATE_INFINITY, DATE_MINUS_INFINITY}:
        raise EvaluationError("cannot subtract infinite dates")
    return left - right


def date_to_timestamp(date: int) -> int:
    """Cast date to timestamp."""
    usecs = date_as_timestamp(date)
    if usecs >= END_TIMESTAMP and date != DATE_INFINITY:
        raise EvaluationError("date out of range for timestamp")
    return usecs


def date_as_timestamp(date: int) -> int:
    """Return the timestamp for comparing a date: its midnight, always below infinity.

    Source: date_cmp_timestamp_internal().
    """
    if date == DATE_INFINITY:
        return TIMESTAMP_INFINITY
    if date == DATE_MINUS_INFINITY:
        return TIMESTAMP_MINUS_INFINITY
    return min(date * USECS_PER_DAY, TIMESTAMP_INFINITY - 1)


def timestamp_to_date(usecs: int) -> int:
    """Cast timestamp to date."""
    if usecs == TIMESTAMP_INFINITY:
        return DATE_INFINITY
    if usecs == TIMESTAMP_MINUS_INFINITY:
        return DATE_MINUS_INFINITY
    return usecs // USECS_PER_DAY


def round_timestamp(usecs: int, digits: int) -> int:
    """Cast to ``timestamp(digits)``, half away from 2000-01-01 (AdjustTimestampForTypmod)."""
    if usecs in (TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY) or digits not in range(6):
        return usecs
    unit: int = 10 ** (6 - digits)
    rounded = (abs(usecs) + unit // 2) // unit * unit
    return -rounded if usecs < 0 else rounded


def format_date(days: int) -> bytes:
    """Print a date as `parse_date` reads it."""
    if days == DATE_INFINITY:
        return b"infinity"
    if days == DATE_MINUS_INFINITY:
        return b"-infinity"
    year, month, day = julian_to_date(days + EPOCH_JULIAN)
    suffix = " BC" if year <= 0 else ""
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}{suffix}".encode()


def format_timestamp(usecs: int, zone: str) -> bytes:
    """Print a finite timestamp as `parse_timestamp` reads it, with `zone` after it."""
    days, usecs = divmod(usecs, USECS_PER_DAY)
    seconds, usecs = divmod(usecs, USECS_PER_SEC)
    fraction = f".{usecs:06d}".rstrip("0") if usecs else ""
    clock = f" {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    day, _, bc = format_date(days).partition(b" ")
    return day + f"{clock}{fraction}{zone}".encode() + (b" BC" if bc else b"")


def _refuse(name: str) -> NoReturn:
    raise ValueFormatError(
        f"a value does not read as {name}",
        hint="the connection must use DateStyle ISO; a column of another type has this name?",
    )
