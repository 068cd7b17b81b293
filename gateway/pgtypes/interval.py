"""interval: months, days and microseconds, each with its own sign, and how they are printed.

Two intervals are equal when they span the same time with months of 30 days and days of 24 hours,
whatever their fields: ``1 day`` equals ``24:00:00``. PostgreSQL 17 and later have infinite
intervals; they are the objects `INFINITY` and `MINUS_INFINITY`, and only those. Before, an interval
whose fields all are at their ends is as finite as any other.

Source: src/backend/utils/adt/timestamp.c (interval_cmp_value), datetime.c (EncodeInterval).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, NoReturn

from gateway.errors import ValueFormatError
from gateway.pgtypes.datetime import USECS_PER_DAY, USECS_PER_SEC
from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "DAYS_PER_MONTH",
    "INFINITY",
    "MINUS_INFINITY",
    "MONTHS_PER_YEAR",
    "USECS_PER_HOUR",
    "USECS_PER_MINUTE",
    "Interval",
    "as_int32",
    "as_int64",
    "depends_on_version",
    "divide_towards_zero",
    "format_interval",
    "is_finite",
    "parse_interval",
]

MONTHS_PER_YEAR: Final = 12
DAYS_PER_MONTH: Final = 30
USECS_PER_MINUTE: Final = 60 * USECS_PER_SEC
USECS_PER_HOUR: Final = 60 * USECS_PER_MINUTE


@dataclass(frozen=True, slots=True, eq=False)
class Interval:
    """A span of time.

    Attributes:
        months: 32 bits, signed; years are twelve of them.
        days: 32 bits, signed.
        usecs: 64 bits, signed.
        span: What it is compared by, in microseconds.
    """

    months: int
    days: int
    usecs: int
    span: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Add up the span once; an interval is compared more often than made."""
        days = self.months * DAYS_PER_MONTH + self.days
        object.__setattr__(self, "span", days * USECS_PER_DAY + self.usecs)

    def __eq__(self, other: object) -> bool:
        """Equal spans are equal intervals (interval_eq)."""
        return isinstance(other, Interval) and self.span == other.span

    def __hash__(self) -> int:
        """As equality has it."""
        return hash(self.span)

    def __lt__(self, other: Interval) -> bool:
        """A shorter span (interval_lt)."""
        return self.span < other.span

    def __le__(self, other: Interval) -> bool:
        """interval_le."""
        return self.span <= other.span

    def __gt__(self, other: Interval) -> bool:
        """interval_gt."""
        return self.span > other.span

    def __ge__(self, other: Interval) -> bool:
        """interval_ge."""
        return self.span >= other.span


INFINITY: Final = Interval(2**31 - 1, 2**31 - 1, 2**63 - 1)
MINUS_INFINITY: Final = Interval(-(2**31), -(2**31), -(2**63))


def is_finite(value: Interval) -> bool:
    """Neither `INFINITY` nor `MINUS_INFINITY`."""
    return value is not INFINITY and value is not MINUS_INFINITY


def depends_on_version() -> NoReturn:
    """Raise where major versions of PostgreSQL differ and nobody said which one the server is."""
    raise EvaluationError("the result depends on the major version of the server")


def divide_towards_zero(dividend: int, divisor: int) -> tuple[int, int]:
    """Quotient and remainder as C has them; `divisor` is positive."""
    if dividend >= 0:
        return divmod(dividend, divisor)
    quotient, remainder = divmod(-dividend, divisor)
    return -quotient, -remainder


def as_int32(value: int) -> int:
    """The lowest 32 bits, where PostgreSQL does not look for overflow."""
    return (value + 2**31) % 2**32 - 2**31


def as_int64(value: int) -> int:
    """The lowest 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


_INTERVAL: Final = re.compile(
    rb"(?:([+-]?\d+) years?)?(?:(?:^|(?<!^) )([+-]?\d+) mons?)?(?:(?:^|(?<!^) )([+-]?\d+) days?)?"
    rb"(?:(?:^|(?<!^) )([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)
_CACHE_LIMIT: Final = 1 << 14


class _Intervals(dict[bytes, Interval]):
    """Text -> interval; a table's intervals repeat, so most are found without being parsed."""

    __slots__ = ()

    def __missing__(self, text: bytes) -> Interval:
        if text == b"infinity":
            return INFINITY
        if text == b"-infinity":
            return MINUS_INFINITY
        match = _INTERVAL.fullmatch(text)
        if match is None or not text:
            _refuse()
        years, months, days, sign, hours, minutes, seconds, fraction = match.groups()
        usecs = int(hours or 0) * USECS_PER_HOUR
        usecs += int(minutes or 0) * USECS_PER_MINUTE + int(seconds or 0) * USECS_PER_SEC
        usecs += int((fraction or b"").ljust(6, b"0"))
        found = Interval(
            int(years or 0) * MONTHS_PER_YEAR + int(months or 0),
            int(days or 0),
            -usecs if sign == b"-" else usecs,
        )
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[bytes(text)] = found
        return found


_intervals: Final = _Intervals()


def parse_interval(text: bytes) -> Interval:
    """Read an interval as printed under IntervalStyle postgres.

    Raises:
        ValueFormatError: it does not read so.
    """
    return _intervals[text]


def _refuse() -> NoReturn:
    raise ValueFormatError(
        "a value does not read as interval",
        hint="the connection must use IntervalStyle postgres; a column of another type has this "
        "name?",
    )


def format_interval(value: Interval) -> bytes:
    """Print an interval under IntervalStyle postgres, as `parse_interval` reads it."""
    if value is INFINITY:
        return b"infinity"
    if value is MINUS_INFINITY:
        return b"-infinity"
    years, months = divide_towards_zero(value.months, MONTHS_PER_YEAR)
    parts: list[str] = []
    after_negative = False
    for count, unit in ((years, "year"), (months, "mon"), (value.days, "day")):
        if count:
            # A plus is printed only where a minus stood before.
            sign = "+" if after_negative and count > 0 else ""
            parts.append(f"{sign}{count} {unit}{'' if count == 1 else 's'}")
            after_negative = count < 0
    if value.usecs or not parts:
        sign = "-" if value.usecs < 0 else "+" if after_negative else ""
        seconds, usecs = divmod(abs(value.usecs), USECS_PER_SEC)
        fraction = f".{usecs:06d}".rstrip("0") if usecs else ""
        parts.append(
            f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"
        )
    return " ".join(parts).encode()
