"""Text of PostgreSQL's intervals: the months, days and microseconds of one.

Source: EncodeInterval in datetime.c, for IntervalStyle postgres.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["interval_parts"]

_INTERVAL: Final = re.compile(
    rb"(?:([+-]?\d{1,10}) years? ?)?(?:([+-]?\d{1,10}) mons? ?)?(?:([+-]?\d{1,10}) days? ?)?"
    rb"(?:([+-]?)(\d{1,10}):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?(?<=[\dnrsy])"
)


def interval_parts(text: bytes) -> tuple[int, int, int]:
    """Return months, days and microseconds, each with its own sign.

    Raises:
        ValueError: it is infinite, or PostgreSQL does not print such text in IntervalStyle
            postgres.
    """
    if (found := _INTERVAL.fullmatch(text)) is None:
        raise ValueError("not an interval in IntervalStyle postgres")
    years, mons, days, sign, hours, minutes, seconds, fraction = found.groups()
    months = int(years or 0) * 12 + int(mons or 0)
    whole = (int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    usecs = whole * 1_000_000 + int((fraction or b"").ljust(6, b"0"))
    parts = months, int(days or 0), -usecs if sign == b"-" else usecs
    if not all(
        -(2**bits) <= part < 2**bits for part, bits in zip(parts, (31, 31, 63), strict=True)
    ):
        raise ValueError("an interval out of PostgreSQL's range")
    return parts
