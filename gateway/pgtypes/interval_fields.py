"""extract() and date_part() of intervals, and date_trunc() of them.

Source: src/backend/utils/adt/timestamp.c (interval_part_common, interval_trunc).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from gateway.pgtypes.datetime import USECS_PER_SEC
from gateway.pgtypes.datetime_fields import Kind, as_numeric
from gateway.pgtypes.datetime_units import TRUNC_UNITS, unit_name
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.interval import (
    INFINITY,
    MINUS_INFINITY,
    MONTHS_PER_YEAR,
    USECS_PER_HOUR,
    USECS_PER_MINUTE,
    Interval,
    depends_on_version,
    divide_towards_zero,
    is_finite,
)
from gateway.pgtypes.interval_arithmetic import finite_result

__all__ = ["interval_kind", "trunc", "trunc_function"]

_NAME: Final = "interval"
_NOT_SUPPORTED: Final = f"unit not supported for type {_NAME}"
_WEEKS_SINCE: Final = 18
"""From this major version on an interval has weeks, and negative quarters."""

_INCREASING: Final = frozenset(("hour", "day", "year", "decade", "century", "millennium", "epoch"))
_OSCILLATING: Final = frozenset(
    ("microsecond", "millisecond", "second", "minute", "month", "quarter")
)


_CHECKS_INFINITIES_SINCE: Final = 18
_MIN_MONTHS: Final = -(2**31)


def _quotient(dividend: int, divisor: int) -> int:
    return divide_towards_zero(dividend, divisor)[0]


def _remainder(dividend: int, divisor: int) -> int:
    return divide_towards_zero(dividend, divisor)[1]


def _sign(value: Interval) -> int:
    return 1 if value is INFINITY else -1 if value is MINUS_INFINITY else 0


def _seconds(value: Interval) -> int:
    """Microseconds below the minute."""
    return _remainder(value.usecs, USECS_PER_MINUTE)


def _float_seconds(value: Interval) -> float:
    seconds, rest = divide_towards_zero(_seconds(value), USECS_PER_SEC)
    return seconds + rest / 1_000_000.0


def _float_milliseconds(value: Interval) -> float:
    seconds, rest = divide_towards_zero(_seconds(value), USECS_PER_SEC)
    return seconds * 1000.0 + rest / 1000.0


def _numeric_epoch(value: Interval) -> Decimal:
    """Years have 365.25 days here, months 30."""
    years, months = divide_towards_zero(value.months, MONTHS_PER_YEAR)
    seconds = (1461 * years + 120 * months + 4 * value.days) * 21_600
    return as_numeric(seconds * USECS_PER_SEC + value.usecs, 6)


def _float_epoch(value: Interval) -> float:
    years, months = divide_towards_zero(value.months, MONTHS_PER_YEAR)
    result = value.usecs / 1_000_000.0
    result += 31_557_600.0 * years
    result += 2_592_000.0 * months
    result += 86_400.0 * value.days
    return result


def _weeks(major: int | None) -> Callable[[Interval], int]:
    def weeks(value: Interval) -> int:
        if major is None:
            depends_on_version()
        if major < _WEEKS_SINCE:
            raise EvaluationError(_NOT_SUPPORTED)
        return _quotient(value.days, 7)

    return weeks


def _quarter(major: int | None) -> Callable[[Interval], int]:
    def quarter(value: Interval) -> int:
        if value.months >= 0:
            return value.months % MONTHS_PER_YEAR // 3 + 1
        if major is None:
            depends_on_version()
        if major < _WEEKS_SINCE:
            return _quotient(_remainder(value.months, MONTHS_PER_YEAR), 3) + 1
        # The smallest number of months stays negative when it is negated in 32 bits.
        months = -value.months if value.months != _MIN_MONTHS else _MIN_MONTHS
        return -(_quotient(_remainder(months, MONTHS_PER_YEAR), 3) + 1)

    return quarter


def _years(unit: int) -> Callable[[Interval], int]:
    return lambda value: _quotient(value.months, MONTHS_PER_YEAR * unit)


def interval_kind(major: int | None) -> Kind:
    """The fields of intervals on a server of this major version; None: it is not known."""
    infinite_week: dict[str, Callable[[int], None]] = {}
    if major is None:
        infinite_week["week"] = lambda _: depends_on_version()
    elif major >= _WEEKS_SINCE:
        infinite_week["week"] = lambda _: None
    return Kind(
        _NAME,
        {
            "microsecond": _seconds,
            "minute": lambda value: _quotient(_remainder(value.usecs, USECS_PER_HOUR),
                                              USECS_PER_MINUTE),
            "hour": lambda value: _quotient(value.usecs, USECS_PER_HOUR),
            "day": lambda value: value.days,
            "week": _weeks(major),
            "month": lambda value: _remainder(value.months, MONTHS_PER_YEAR),
            "quarter": _quarter(major),
            "year": _years(1),
            "decade": _years(10),
            "century": _years(100),
            "millennium": _years(1000),
        },
        {
            "millisecond": lambda value: as_numeric(_seconds(value), 3),
            "second": lambda value: as_numeric(_seconds(value), 6),
            "epoch": _numeric_epoch,
        },
        {
            "millisecond": _float_milliseconds,
            "second": _float_seconds,
            "epoch": _float_epoch,
        },
        _sign,
        _INCREASING,
        _OSCILLATING,
        infinite=infinite_week,
    )  # fmt: skip


_MONTHS_OF_UNIT: Final = {
    "millennium": 12_000,
    "century": 1_200,
    "decade": 120,
    "year": 12,
    "quarter": 3,
    "month": 1,
}
_USECS_OF_UNIT: Final = {
    "hour": USECS_PER_HOUR,
    "minute": USECS_PER_MINUTE,
    "second": USECS_PER_SEC,
    "millisecond": 1_000,
    "microsecond": 1,
}


def trunc_function(text: bytes, *, major: int | None = None) -> Callable[[Interval], Interval]:
    """What date_trunc() does with the unit `text`; it raises for units that there are not."""
    unit = unit_name(text, TRUNC_UNITS)
    if unit is None:
        return _raises(f"unit not recognized for type {_NAME}", major)
    if unit == "day":
        return _finitely(lambda value: finite_result(value.months, value.days, 0, major))
    if (months := _MONTHS_OF_UNIT.get(unit)) is not None:
        return _finitely(
            lambda value: finite_result(_quotient(value.months, months) * months, 0, 0, major)
        )
    if (usecs := _USECS_OF_UNIT.get(unit)) is not None:
        return _finitely(
            lambda value: finite_result(
                value.months, value.days, _quotient(value.usecs, usecs) * usecs, major
            )
        )
    return _raises(_NOT_SUPPORTED, major)


def _finitely(function: Callable[[Interval], Interval]) -> Callable[[Interval], Interval]:
    return lambda value: function(value) if is_finite(value) else value


def _raises(message: str, major: int | None) -> Callable[[Interval], Interval]:
    def fail(value: Interval) -> Interval:
        if not is_finite(value):
            if major is None:
                depends_on_version()
            if major < _CHECKS_INFINITIES_SINCE:
                return value
        raise EvaluationError(message)

    return fail


def trunc(text: bytes, value: Interval, *, major: int | None = None) -> Interval:
    """Cut off what is below a unit of an interval."""
    return trunc_function(text, major=major)(value)
