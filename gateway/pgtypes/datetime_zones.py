"""AT TIME ZONE, and other functions that are told a time zone, for zones that never change.

Named zones are what the time zone data of the server says, which changes with its updates, and
abbreviations are what its settings say. UTC, ``Etc/GMT+5`` and its kin, and offsets that are
written with minutes depend on neither. An offset without minutes does: from PostgreSQL 18 on it can
be an abbreviation of the session's time zone, with the other sign.

Source: DecodeTimezoneName(), tzparse() in src/timezone/localtime.c, timestamptz_zone() and
timestamptz_trunc_internal() in src/backend/utils/adt/timestamp.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gateway.pgtypes import interval_arithmetic
from gateway.pgtypes.datetime import TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY, USECS_PER_SEC
from gateway.pgtypes.datetime_trunc import trunc_function
from gateway.pgtypes.interval import Interval
from gateway.pgtypes.timestamp_arithmetic import add_interval, checked_timestamp

__all__ = [
    "add_in_zone",
    "fixed_offset",
    "local_to_utc",
    "subtract_in_zone",
    "trunc_in_zone",
    "utc_to_local",
]

_INFINITIES: Final = (TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY)
_UTC: Final = frozenset((b"utc", b"gmt", b"etc/utc", b"etc/gmt"))
_ETC: Final = re.compile(rb"etc/gmt([+-])([1-9]|1[0-4])")
_OFFSET: Final = re.compile(rb"([+-]?)(\d{1,3}):([0-5]?\d)(?::([0-5]?\d))?")
_MOST_HOURS: Final = 167


def fixed_offset(zone: bytes) -> int | None:
    """Seconds east of Greenwich of a zone that has the same offset always and on any server.

    None for all others. Written offsets count westwards, as POSIX has it.
    """
    zone = zone.lower()
    if zone in _UTC:
        return 0
    if match := _ETC.fullmatch(zone):
        hours = int(match[2])
        if match[1] == b"+":
            return -hours * 3600 if hours <= 12 else None
        return hours * 3600
    match = _OFFSET.fullmatch(zone)
    if match is None or int(match[2]) > _MOST_HOURS:
        return None
    seconds = (int(match[2]) * 60 + int(match[3])) * 60 + int(match[4] or 0)
    return seconds if match[1] == b"-" else -seconds


def utc_to_local(offset: int, usecs: int) -> int:
    """``timestamptz AT TIME ZONE``, a timestamp (timestamptz_zone)."""
    return usecs if usecs in _INFINITIES else checked_timestamp(usecs + offset * USECS_PER_SEC)


def local_to_utc(offset: int, usecs: int) -> int:
    """``timestamp AT TIME ZONE``, a timestamptz (timestamp_zone)."""
    return usecs if usecs in _INFINITIES else checked_timestamp(usecs - offset * USECS_PER_SEC)


def add_in_zone(offset: int, usecs: int, value: Interval) -> int:
    """Add an interval to a timestamptz, counting months and days where the zone is."""
    return add_interval(usecs, value, offset=offset * USECS_PER_SEC)


def subtract_in_zone(offset: int, usecs: int, value: Interval, *, major: int | None = None) -> int:
    """Subtract an interval from a timestamptz."""
    negated = interval_arithmetic.negate_in_sum(value, major=major)
    return add_in_zone(offset, usecs, negated)


def trunc_in_zone(offset: int, unit: bytes, *, major: int | None = None) -> Callable[[int], int]:
    """What date_trunc() does with a timestamptz and this unit in the zone."""
    return trunc_function(unit, offset=offset * USECS_PER_SEC, zoned=True, major=major)
