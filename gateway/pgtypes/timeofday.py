"""time and timetz: values, text, arithmetic.

A time is microseconds since midnight; 24:00:00 is one of them. A timetz is a `TimeTz`, which
compares as PostgreSQL compares it: by the instant, then by the zone.

Source: src/backend/utils/adt/date.c (time_*, timetz_*), datetime.c (EncodeTimeOnly).
"""

from __future__ import annotations

import re
from math import isinf
from typing import Final, NamedTuple, NoReturn

from gateway.errors import ValueFormatError
from gateway.pgtypes.datetime import USECS_PER_DAY, USECS_PER_SEC
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.floats import Float
from gateway.pgtypes.interval import (
    Interval,
    as_int32,
    as_int64,
    divide_towards_zero,
    is_finite,
)
from gateway.pgtypes.nan import NotANumber

__all__ = [
    "TimeTz",
    "add_interval",
    "add_interval_to_timetz",
    "format_time",
    "format_timetz",
    "make_time",
    "parse_time",
    "parse_timetz",
    "round_time",
    "round_timetz",
    "seconds_are_valid",
    "subtract_interval",
    "subtract_interval_from_timetz",
    "subtract_times",
    "timetz_at_interval",
    "timetz_to_time",
    "zone_of_interval",
]

_CACHE_LIMIT: Final = 1 << 16
_TIME: Final = re.compile(rb"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_ZONE: Final = re.compile(rb"([+-])(\d+)(?::(\d\d)(?::(\d\d))?)?")


class TimeTz(NamedTuple):
    """A time with time zone.

    Attributes:
        instant: Microseconds since midnight in Greenwich; below 0 or above a day when the zone
            is another day's.
        zone: Seconds west of Greenwich.
    """

    instant: int
    zone: int

    @property
    def usecs(self) -> int:
        """Microseconds since midnight where it was said."""
        return self.instant - self.zone * USECS_PER_SEC


def _timetz(usecs: int, zone: int) -> TimeTz:
    return TimeTz(usecs + zone * USECS_PER_SEC, zone)


class _Times(dict[bytes, int]):
    """Text -> microseconds; times repeat, so many are found without being parsed."""

    __slots__ = ()

    def __missing__(self, text: bytes) -> int:
        match = _TIME.fullmatch(text)
        if match is None:
            _refuse("time")
        hours, minutes, seconds, fraction = match.groups()
        usecs = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * USECS_PER_SEC
        usecs += int((fraction or b"").ljust(6, b"0"))
        if usecs > USECS_PER_DAY or int(minutes) > 59 or int(seconds) > 59:
            _refuse("time")
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[bytes(text)] = usecs
        return usecs


class _Zones(dict[bytes, int]):
    """A printed UTC offset -> seconds west."""

    __slots__ = ()

    def __missing__(self, text: bytes) -> int:
        match = _ZONE.fullmatch(text)
        if match is None:
            _refuse("timetz")
        sign, hours, minutes, seconds = match.groups()
        zone = (int(hours) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[bytes(text)] = found = zone if sign == b"-" else -zone
        return found


_times: Final = _Times()
_zones: Final = _Zones()


def parse_time(text: bytes) -> int:
    """Read a time as printed under DateStyle ISO.

    Raises:
        ValueFormatError: it does not read so.
    """
    return _times[text]


def parse_timetz(text: bytes) -> TimeTz:
    """Read a timetz as printed under DateStyle ISO.

    Raises:
        ValueFormatError: it does not read so.
    """
    at = max(text.rfind(b"+"), text.rfind(b"-"))
    if at < 0:
        _refuse("timetz")
    return _timetz(_times[text[:at]], _zones[text[at:]])


def _refuse(name: str) -> NoReturn:
    raise ValueFormatError(
        f"a value does not read as {name}",
        hint="the connection must use DateStyle ISO; a column of another type has this name?",
    )


def format_time(usecs: int) -> bytes:
    """Print a time as `parse_time` reads it."""
    seconds, usecs = divmod(usecs, USECS_PER_SEC)
    fraction = f".{usecs:06d}".rstrip("0") if usecs else ""
    return (f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}").encode()


def format_timetz(value: TimeTz) -> bytes:
    """Print a timetz as `parse_timetz` reads it."""
    minutes, seconds = divmod(abs(value.zone), 60)
    hours, minutes = divmod(minutes, 60)
    zone = f"{'-' if value.zone > 0 else '+'}{hours:02d}"
    if minutes or seconds:
        zone += f":{minutes:02d}"
    if seconds:
        zone += f":{seconds:02d}"
    return format_time(value.usecs) + zone.encode()


def add_interval(usecs: int, value: Interval) -> int:
    """``time + interval``; days and months do not count, and midnight is no border."""
    if not is_finite(value):
        raise EvaluationError("cannot add infinite interval to time")
    return as_int64(usecs + value.usecs) % USECS_PER_DAY


def subtract_interval(usecs: int, value: Interval) -> int:
    """``time - interval``."""
    if not is_finite(value):
        raise EvaluationError("cannot subtract infinite interval from time")
    return as_int64(usecs - value.usecs) % USECS_PER_DAY


def add_interval_to_timetz(time: TimeTz, value: Interval) -> TimeTz:
    """``timetz + interval``."""
    return _timetz(add_interval(time.usecs, value), time.zone)


def subtract_interval_from_timetz(time: TimeTz, value: Interval) -> TimeTz:
    """``timetz - interval``."""
    return _timetz(subtract_interval(time.usecs, value), time.zone)


def subtract_times(left: int, right: int) -> Interval:
    """``time - time``."""
    return Interval(0, 0, left - right)


def timetz_to_time(value: TimeTz) -> int:
    """Cast timetz to time: the zone is dropped."""
    return value.usecs


def zone_of_interval(value: Interval) -> int:
    """Seconds east that an interval says when it is used as a time zone."""
    if not is_finite(value):
        raise EvaluationError("interval time zone must be finite")
    if value.months or value.days:
        raise EvaluationError("interval time zone must not include months or days")
    return divide_towards_zero(value.usecs, USECS_PER_SEC)[0]


def timetz_at_interval(zone: Interval, value: TimeTz) -> TimeTz:
    """``timetz AT TIME ZONE interval`` (timetz_izone)."""
    west = as_int32(-zone_of_interval(zone))
    usecs = value.usecs + as_int32(value.zone - west) * USECS_PER_SEC
    return _timetz(usecs % USECS_PER_DAY if not 0 <= usecs < USECS_PER_DAY else usecs, west)


def round_time(usecs: int, digits: int) -> int:
    """Cast to ``time(digits)``, half up; 23:59:59.9 can become 24:00:00."""
    if digits not in range(6):
        return usecs
    unit: int = 10 ** (6 - digits)
    return (usecs + unit // 2) // unit * unit


def round_timetz(value: TimeTz, digits: int) -> TimeTz:
    """Cast to ``timetz(digits)``."""
    return _timetz(round_time(value.usecs, digits), value.zone)


def seconds_are_valid(hour: int, minute: int, seconds: Float) -> bool:
    """A time of day up to 24:00:00, with up to 60 seconds (float_time_overflows)."""
    if not 0 <= hour <= 24 or not 0 <= minute < 60:
        return False
    if isinstance(seconds, NotANumber) or isinf(seconds) or isinf(seconds * 1_000_000.0):
        return False
    usecs = round(seconds * 1_000_000.0)
    return (
        0 <= usecs <= 60 * USECS_PER_SEC
        and (hour * 60 + minute) * 60 * USECS_PER_SEC + usecs <= USECS_PER_DAY
    )


def make_time(hour: int, minute: int, seconds: Float) -> int:
    """Construct a time."""
    if not seconds_are_valid(hour, minute, seconds) or isinstance(seconds, NotANumber):
        raise EvaluationError("time field value out of range")
    return (hour * 60 + minute) * 60 * USECS_PER_SEC + round(seconds * 1_000_000.0)
