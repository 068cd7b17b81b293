"""ISO 8601 weeks, and the numbers of decades, centuries and millennia; year 0 is 1 BC.

Source: src/backend/utils/adt/timestamp.c (date2isoweek, date2isoyear, timestamp_part).
"""

from __future__ import annotations

from gateway.pgtypes.datetime import date_to_julian

__all__ = [
    "century_of",
    "day_of_week",
    "decade_of",
    "first_day_of_iso_year",
    "iso_year_and_week",
    "millennium_of",
    "printed_year",
]


def day_of_week(julian: int) -> int:
    """0 is Sunday (j2day)."""
    return (julian + 1) % 7


def first_day_of_iso_year(year: int) -> int:
    """Julian day of the Monday of week 1, which is the one with January 4."""
    fourth = date_to_julian(year, 1, 4)
    return fourth - day_of_week(fourth - 1)


def iso_year_and_week(year: int, julian: int) -> tuple[int, int]:
    """The ISO year and week of a Julian day in the calendar year `year`."""
    first = first_day_of_iso_year(year)
    if julian < first:
        year -= 1
        first = first_day_of_iso_year(year)
    week = (julian - first) // 7 + 1
    if week >= 52:
        next_first = first_day_of_iso_year(year + 1)
        if julian >= next_first:
            return year + 1, (julian - next_first) // 7 + 1
    return year, week


def printed_year(year: int) -> int:
    """There is no year 0: the year before 1 is -1."""
    return year if year > 0 else year - 1


def decade_of(year: int) -> int:
    """Decade 0 is from 1 BC on, -1 from 11 BC to 2 BC."""
    return year // 10 if year >= 0 else -((9 - year) // 10)


def century_of(year: int) -> int:
    """Century 1 is from year 1 to 100, -1 from 100 BC to 1 BC."""
    return (year + 99) // 100 if year > 0 else -((100 - year) // 100)


def millennium_of(year: int) -> int:
    """As `century_of`."""
    return (year + 999) // 1000 if year > 0 else -((1000 - year) // 1000)
