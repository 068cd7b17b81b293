"""date_trunc() and date_bin() of timestamps.

Source: src/backend/utils/adt/timestamp.c (timestamp_trunc, timestamp_bin).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from gateway.pgtypes.datetime import (
    EPOCH_JULIAN,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    USECS_PER_DAY,
    date_to_julian,
    julian_to_date,
)
from gateway.pgtypes.datetime_calendar import (
    century_of,
    day_of_week,
    decade_of,
    millennium_of,
)
from gateway.pgtypes.datetime_units import TRUNC_UNITS, unit_name
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.interval import Interval, depends_on_version, divide_towards_zero, is_finite
from gateway.pgtypes.timestamp_arithmetic import checked_timestamp

__all__ = ["date_bin", "trunc", "trunc_function"]

Trunc: TypeAlias = Callable[[int], int]

_INFINITIES: Final = (TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY)
_CHECKS_INFINITIES_SINCE: Final = 18
_USECS_OF_UNIT: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": USECS_PER_DAY,
}


def _first_year_of_decade(year: int) -> int:
    return decade_of(year) * 10


def _first_year_of_century(year: int) -> int:
    return century_of(year) * 100 - 99 if year > 0 else century_of(year) * 100 + 1


def _first_year_of_millennium(year: int) -> int:
    return millennium_of(year) * 1000 - 999 if year > 0 else millennium_of(year) * 1000 + 1


_YEAR_OF_UNIT: Final[dict[str, Callable[[int], int]]] = {
    "year": lambda year: year,
    "decade": _first_year_of_decade,
    "century": _first_year_of_century,
    "millennium": _first_year_of_millennium,
}
_MONTHS_OF_UNIT: Final = {"month": 1, "quarter": 3}


def trunc_function(
    text: bytes, *, major: int | None = None, offset: int = 0, zoned: bool = False
) -> Trunc:
    """What date_trunc() does with the unit `text`; it raises for units that there are not.

    Before PostgreSQL 18 it does not do so for infinite timestamps; `major` is as in
    `gateway.pgtypes.interval_arithmetic`. `offset` is how many microseconds the clock is ahead by
    which a timestamptz (`zoned`) is truncated.
    """
    name = "timestamp with time zone" if zoned else "timestamp without time zone"
    unit = unit_name(text, TRUNC_UNITS)
    if unit is None:
        return _raises(f"unit not recognized for type {name}", major)
    local = _local_function(unit)
    if local is None:
        return _raises(f"unit not supported for type {name}", major)

    def truncate(usecs: int) -> int:
        if usecs in _INFINITIES:
            return usecs
        return checked_timestamp(local(usecs + offset) - offset)

    return truncate


def _local_function(unit: str) -> Trunc | None:
    if unit == "week":
        return _trunc_to_week
    if (size := _USECS_OF_UNIT.get(unit)) is not None:
        return lambda usecs: usecs // size * size
    if (months := _MONTHS_OF_UNIT.get(unit)) is not None:
        return lambda usecs: _trunc_to_months(usecs, months)
    if (first_year := _YEAR_OF_UNIT.get(unit)) is not None:
        return lambda usecs: _trunc_to_years(usecs, first_year)
    return None


def _raises(message: str, major: int | None) -> Trunc:
    def fail(usecs: int) -> int:
        if usecs in _INFINITIES:
            if major is None:
                depends_on_version()
            if major < _CHECKS_INFINITIES_SINCE:
                return usecs
        raise EvaluationError(message)

    return fail


def _midnight(year: int, month: int, day: int) -> int:
    return (date_to_julian(year, month, day) - EPOCH_JULIAN) * USECS_PER_DAY


def _trunc_to_week(usecs: int) -> int:
    days = usecs // USECS_PER_DAY
    return (days - day_of_week(days + EPOCH_JULIAN - 1)) * USECS_PER_DAY


def _trunc_to_months(usecs: int, months: int) -> int:
    year, month, _ = julian_to_date(usecs // USECS_PER_DAY + EPOCH_JULIAN)
    return _midnight(year, (month - 1) // months * months + 1, 1)


def _trunc_to_years(usecs: int, first_year: Callable[[int], int]) -> int:
    year = julian_to_date(usecs // USECS_PER_DAY + EPOCH_JULIAN)[0]
    return _midnight(first_year(year), 1, 1)


def trunc(text: bytes, usecs: int, *, major: int | None = None) -> int:
    """Cut off what is below a unit of a timestamp."""
    return trunc_function(text, major=major)(usecs)


def date_bin(stride: Interval, usecs: int, origin: int) -> int:
    """The begin of the bin of a timestamp, or a timestamptz."""
    if usecs in _INFINITIES:
        return usecs
    if origin in _INFINITIES:
        raise EvaluationError("origin out of range")
    if not is_finite(stride):
        raise EvaluationError("timestamps cannot be binned into infinite intervals")
    if stride.months:
        raise EvaluationError(
            "timestamps cannot be binned into intervals containing months or years"
        )
    size = stride.days * USECS_PER_DAY + stride.usecs
    difference = usecs - origin
    if not -(2**63) <= size < 2**63:
        raise EvaluationError("interval out of range")
    if size <= 0:
        raise EvaluationError("stride must be greater than zero")
    if not -(2**63) <= difference < 2**63:
        raise EvaluationError("interval out of range")
    steps, beyond = divide_towards_zero(difference, size)
    result = origin + steps * size
    return checked_timestamp(result - size) if beyond < 0 else result
