"""Times, durations and sizes as people read them."""

from __future__ import annotations

import time

__all__ = ["ago", "date_time", "duration", "moves", "size"]


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


def moves(unsettled: int, since: float | None, moved_rows: int) -> str:
    """Return how far the moves of a table are, in the same words wherever they are shown.

    Args:
        unsettled: Number of values and keys whose rows are still to be read.
        since: Time since when rows move, in seconds since 1970; None if it is not known.
        moved_rows: Number of rows that were read because of that so far.
    """
    begin = "" if since is None else f" since {date_time(since)}"
    left = "1 value or key" if unsettled == 1 else f"{unsettled:,} values and keys"
    rows = "1 row" if moved_rows == 1 else f"{moved_rows:,} rows"
    return f"rows moving{begin}: {left} to read, {rows} moved so far"


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
