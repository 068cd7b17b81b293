"""Dates, times and intervals, in ISO style, intervals in style postgres, zone UTC.

Source: date.c, timestamp.c, EncodeDateOnly, EncodeDateTime, EncodeTimeOnly, EncodeInterval in
datetime.c.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from gateway.pgtypes.binary.info import ToText
from gateway.pgtypes.datetimes.iso import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    EPOCH_JULIAN,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    USECS_PER_DAY,
    julian_to_date,
)

__all__ = ["DATETIMES"]

_DATE: Final = Struct("!i").unpack
_USECS: Final = Struct("!q").unpack
_TIMETZ: Final = Struct("!qi").unpack
_INTERVAL: Final = Struct("!qii").unpack

_INFINITY: Final = b"infinity"
_MINUS_INFINITY: Final = b"-infinity"
_MAX_INTERVAL: Final = (2**63 - 1, 2**31 - 1, 2**31 - 1)
_MIN_INTERVAL: Final = (-(2**63), -(2**31), -(2**31))
_MONTHS_PER_YEAR: Final = 12
_CACHE_LIMIT: Final = 4096
_MINUTES_PER_DAY: Final = 1440
_MINUTES: Final = [b" %02d:%02d:" % divmod(minute, 60) for minute in range(_MINUTES_PER_DAY)]
_SECONDS: Final = [b"%02d" % second for second in range(60)]


class _Days(dict[int, tuple[bytes, bytes]]):
    """Days since 2000-01-01 -> ``YYYY-MM-DD``, and `` BC`` or nothing; tables repeat their days."""

    __slots__ = ()

    def __missing__(self, days: int) -> tuple[bytes, bytes]:
        year, month, day = julian_to_date(days + EPOCH_JULIAN)
        before = year <= 0
        shown = b"%04d-%02d-%02d" % (1 - year if before else year, month, day)
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[days] = found = shown, b" BC" if before else b""
        return found


_days: Final = _Days()


def date(data: bytes) -> bytes:
    """Days since 2000-01-01."""
    (days,) = _DATE(data)
    if days == DATE_INFINITY:
        return _INFINITY
    if days == DATE_MINUS_INFINITY:
        return _MINUS_INFINITY
    shown, era = _days[days]
    return shown + era


def _time_of_day(usecs: int) -> bytes:
    """``HH:MM:SS``, and the fraction without its last zeros; hours may be more than 24."""
    seconds, fraction = divmod(usecs, 1_000_000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    if fraction:
        return (b"%02d:%02d:%02d.%06d" % (hour, minute, second, fraction)).rstrip(b"0")
    return b"%02d:%02d:%02d" % (hour, minute, second)


def time(data: bytes) -> bytes:
    """Microseconds since midnight; 24:00:00 is one of them."""
    (usecs,) = _USECS(data)
    if not 0 <= usecs <= USECS_PER_DAY:
        raise ValueError("not a time of day")
    return _time_of_day(usecs)


def timetz(data: bytes) -> bytes:
    """The same, and the zone in seconds west of Greenwich."""
    usecs, west = _TIMETZ(data)
    if not 0 <= usecs <= USECS_PER_DAY:
        raise ValueError("not a time of day")
    minutes, second = divmod(abs(west), 60)
    hour, minute = divmod(minutes, 60)
    zone = b"%c%02d" % (b"-" if west > 0 else b"+", hour)
    if second:
        zone += b":%02d:%02d" % (minute, second)
    elif minute:
        zone += b":%02d" % minute
    return _time_of_day(usecs) + zone


def timestamp(data: bytes) -> bytes:
    """Microseconds since 2000-01-01 00:00."""
    return _timestamp(data, b"")


def timestamptz(data: bytes) -> bytes:
    """The same in UTC."""
    return _timestamp(data, b"+00")


def _timestamp(data: bytes, zone: bytes) -> bytes:
    (usecs,) = _USECS(data)
    if usecs == TIMESTAMP_INFINITY:
        return _INFINITY
    if usecs == TIMESTAMP_MINUS_INFINITY:
        return _MINUS_INFINITY
    seconds, fraction = divmod(usecs, 1_000_000)
    minutes, second = divmod(seconds, 60)
    days, minute = divmod(minutes, _MINUTES_PER_DAY)
    shown, era = _days[days]
    shown = b"%b%b%b" % (shown, _MINUTES[minute], _SECONDS[second])
    if fraction:
        shown += (b".%06d" % fraction).rstrip(b"0")
    return shown + zone + era


def interval(data: bytes) -> bytes:
    """Microseconds, days and months, each with its own sign.

    The ends of all three mean infinity, as from PostgreSQL 17 on; before, nobody reaches them.
    """
    fields = _INTERVAL(data)
    if fields == _MAX_INTERVAL:
        return _INFINITY
    if fields == _MIN_INTERVAL:
        return _MINUS_INFINITY
    usecs, days, months = fields
    years, months = divmod(months, _MONTHS_PER_YEAR) if months >= 0 else _negative(months)
    parts: list[bytes] = []
    negative = False
    for value, unit in ((years, b"year"), (months, b"mon"), (days, b"day")):
        if value:
            # A sign is printed where it changes from minus to plus.
            sign = b"+" if negative and value > 0 else b""
            parts.append(b"%b%d %b%b" % (sign, value, unit, b"" if value == 1 else b"s"))
            negative = value < 0
    if usecs or not parts:
        sign = b"-" if usecs < 0 else b"+" if negative else b""
        parts.append(sign + _time_of_day(abs(usecs)))
    return b" ".join(parts)


def _negative(months: int) -> tuple[int, int]:
    """Years and months of a negative number of months, both rounded towards zero."""
    years, months = divmod(-months, _MONTHS_PER_YEAR)
    return -years, -months


DATETIMES: Final[dict[tuple[str, str], ToText]] = {
    ("date_out", "date_send"): date,
    ("time_out", "time_send"): time,
    ("timetz_out", "timetz_send"): timetz,
    ("timestamp_out", "timestamp_send"): timestamp,
    ("timestamptz_out", "timestamptz_send"): timestamptz,
    ("interval_out", "interval_send"): interval,
}
"""Output and send function -> conversion."""
