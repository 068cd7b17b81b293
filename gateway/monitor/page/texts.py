"""Times, durations and sizes as people read them."""

from __future__ import annotations

import time

__all__ = ["ago", "date_time", "duration", "size"]


def duration(seconds: float) -> str:
    """Return a duration in its largest fitting unit."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def ago(at: float, now: float) -> str:
    """Return how long ago a time was; both in seconds since 1970."""
    return f"{duration(max(0.0, now - at))} ago"


def date_time(at: float) -> str:
    """Return a time in seconds since 1970, with its date."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def size(number: int | None) -> str:
    """Return a number of bytes in its largest fitting unit."""
    if number is None:
        return "unknown"
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1_024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1_024
    return f"{amount:.1f} TiB"
