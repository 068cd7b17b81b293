"""extract() and date_part(): the fields of dates, times, timestamps and intervals.

extract() gives a numeric with the scale that PostgreSQL gives it, date_part() a double precision.

Source: src/backend/utils/adt/timestamp.c (timestamp_part_common, interval_part_common), date.c
(extract_date, time_part_common, timetz_part_common).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, TypeAlias

from gateway.pgtypes import numeric
from gateway.pgtypes.datetime import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    EPOCH_JULIAN,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    USECS_PER_DAY,
    USECS_PER_SEC,
    date_to_julian,
    julian_to_date,
)
from gateway.pgtypes.datetime_calendar import (
    century_of,
    day_of_week,
    decade_of,
    iso_year_and_week,
    millennium_of,
    printed_year,
)
from gateway.pgtypes.datetime_units import EXTRACT_UNITS, RESERVED, unit_name
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.interval import USECS_PER_HOUR, USECS_PER_MINUTE
from gateway.pgtypes.timeofday import TimeTz

__all__ = [
    "DATE",
    "TIME",
    "TIMESTAMP",
    "TIMETZ",
    "Field",
    "Kind",
    "as_numeric",
    "date_part",
    "extract",
    "field_function",
]

Field: TypeAlias = Callable[[Any], Any]
_NUMERIC_INFINITY: Final = Decimal("Infinity")
_FLOAT_INFINITY: Final = float("inf")
_UNIX_EPOCH_JULIAN: Final = 2_440_588
_UNIX_EPOCH: Final = (_UNIX_EPOCH_JULIAN - EPOCH_JULIAN) * USECS_PER_DAY
_USECS_PER_DAY_NUMERIC: Final = Decimal(USECS_PER_DAY)


@dataclass(frozen=True, slots=True)
class Kind:
    """What fields the values of one type have.

    Attributes:
        name: The type, as messages name it.
        integers: Fields that are whole numbers, for both functions.
        numerics: The other fields, for extract().
        floats: The other fields, for date_part().
        sign: 1 or -1 for an infinite value, 0 for any other.
        increasing: Fields that are infinite in an infinite value.
        oscillating: Fields that are NULL in an infinite value.
        infinite: What other fields are in an infinite value, by its sign.
        reserved_is_unit: Words like ``now`` are "not supported", not "not recognized".
    """

    name: str
    integers: Mapping[str, Callable[[Any], int]]
    numerics: Mapping[str, Callable[[Any], Decimal]]
    floats: Mapping[str, Callable[[Any], float]]
    sign: Callable[[Any], int] | None = None
    increasing: frozenset[str] = frozenset()
    oscillating: frozenset[str] = frozenset()
    infinite: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)
    reserved_is_unit: bool = False


def as_numeric(value: int, scale: int) -> Decimal:
    """`value` / 10 ** `scale`, with that scale (int64_div_fast_to_numeric)."""
    return Decimal(value).scaleb(-scale, context=numeric.EXACT)


def field_function(kind: Kind, text: bytes, *, as_float: bool) -> Field:
    """What extract(), or date_part() `as_float`, does with the unit `text`.

    The function raises `EvaluationError` for units that the type does not have.
    """
    unit = unit_name(text, EXTRACT_UNITS)
    finite = _finite_field(kind, unit, as_float=as_float)
    sign = kind.sign
    if sign is None:
        return finite
    infinite = _infinite_field(kind, unit, as_float=as_float)

    def of_any(value: Any) -> Any:
        direction = sign(value)
        return infinite(direction) if direction else finite(value)

    return of_any


def _finite_field(kind: Kind, unit: str | None, *, as_float: bool) -> Field:
    if unit is None or (unit == RESERVED and not kind.reserved_is_unit):
        return _raises(f"unit not recognized for type {kind.name}")
    if unit in kind.integers:
        return _converted(kind.integers[unit], float if as_float else Decimal)
    found: Field | None = (kind.floats if as_float else kind.numerics).get(unit)
    return found or _raises(f"unit not supported for type {kind.name}")


def _infinite_field(kind: Kind, unit: str | None, *, as_float: bool) -> Field:
    if unit is None:
        return _raises(f"unit not recognized for type {kind.name}")
    if unit in kind.increasing:
        infinity: Any = _FLOAT_INFINITY if as_float else _NUMERIC_INFINITY
        return lambda direction: infinity if direction > 0 else -infinity
    if unit in kind.oscillating:
        return lambda _: None
    return kind.infinite.get(unit) or _raises(f"unit not supported for type {kind.name}")


def _converted(function: Callable[[Any], int], convert: Callable[[int], Any]) -> Field:
    return lambda value: convert(function(value))


def _raises(message: str) -> Field:
    def fail(_: Any) -> Any:
        raise EvaluationError(message)

    return fail


def extract(kind: Kind) -> Callable[[bytes, Any], Any]:
    """A function of a unit and a value of this kind, which gives a numeric."""
    return lambda text, value: field_function(kind, text, as_float=False)(value)


def date_part(kind: Kind) -> Callable[[bytes, Any], Any]:
    """A function of a unit and a value of this kind, which gives a double precision."""
    return lambda text, value: field_function(kind, text, as_float=True)(value)


# Days


def _day_fields(julian: Callable[[Any], int]) -> dict[str, Callable[[Any], int]]:
    """Fields of the day whose Julian number `julian` finds."""

    def of_date(function: Callable[[int, int, int], int]) -> Callable[[Any], int]:
        return lambda value: function(*julian_to_date(julian(value)))

    def of_year(function: Callable[[int], int]) -> Callable[[Any], int]:
        return lambda value: function(julian_to_date(julian(value))[0])

    def iso(value: Any) -> tuple[int, int]:
        day = julian(value)
        return iso_year_and_week(julian_to_date(day)[0], day)

    return {
        "day": of_date(lambda year, month, day: day),
        "month": of_date(lambda year, month, day: month),
        "quarter": of_date(lambda year, month, day: (month - 1) // 3 + 1),
        "year": of_year(printed_year),
        "decade": of_year(decade_of),
        "century": of_year(century_of),
        "millennium": of_year(millennium_of),
        "week": lambda value: iso(value)[1],
        "isoyear": lambda value: printed_year(iso(value)[0]),
        "dow": lambda value: day_of_week(julian(value)),
        "isodow": lambda value: day_of_week(julian(value)) or 7,
        "doy": lambda value: _day_of_year(julian(value)),
    }


def _day_of_year(julian: int) -> int:
    return julian - date_to_julian(julian_to_date(julian)[0], 1, 1) + 1


_INCREASING: Final = frozenset(
    ("year", "decade", "century", "millennium", "julian", "isoyear", "epoch")
)
_OSCILLATING_DAYS: Final = frozenset(("day", "month", "quarter", "week", "dow", "isodow", "doy"))


def _date_sign(value: int) -> int:
    return 1 if value == DATE_INFINITY else -1 if value == DATE_MINUS_INFINITY else 0


DATE: Final = Kind(
    "date",
    {
        **_day_fields(lambda date: date + EPOCH_JULIAN),
        "julian": lambda date: date + EPOCH_JULIAN,
        "epoch": lambda date: (date + EPOCH_JULIAN - _UNIX_EPOCH_JULIAN) * 86_400,
    },
    {},
    {},
    _date_sign,
    _INCREASING,
    _OSCILLATING_DAYS,
    reserved_is_unit=True,
)


# Times of day


def _time_fields(usecs: Callable[[Any], int]) -> dict[str, Callable[[Any], int]]:
    return {
        "hour": lambda value: usecs(value) // USECS_PER_HOUR,
        "minute": lambda value: usecs(value) // USECS_PER_MINUTE % 60,
        "microsecond": lambda value: usecs(value) % USECS_PER_MINUTE,
    }


def _numeric_time_fields(usecs: Callable[[Any], int]) -> dict[str, Callable[[Any], Decimal]]:
    return {
        "millisecond": lambda value: as_numeric(usecs(value) % USECS_PER_MINUTE, 3),
        "second": lambda value: as_numeric(usecs(value) % USECS_PER_MINUTE, 6),
    }


def _float_time_fields(usecs: Callable[[Any], int]) -> dict[str, Callable[[Any], float]]:
    def parts(value: Any) -> tuple[int, int]:
        return divmod(usecs(value) % USECS_PER_MINUTE, USECS_PER_SEC)

    def milliseconds(value: Any) -> float:
        seconds, rest = parts(value)
        return seconds * 1000.0 + rest / 1000.0

    def in_seconds(value: Any) -> float:
        seconds, rest = parts(value)
        return seconds + rest / 1_000_000.0

    return {"millisecond": milliseconds, "second": in_seconds}


def _itself(usecs: int) -> int:
    return usecs


def _timetz_usecs(value: TimeTz) -> int:
    return value.usecs


TIME: Final = Kind(
    "time without time zone",
    _time_fields(_itself),
    {**_numeric_time_fields(_itself), "epoch": lambda time: as_numeric(time, 6)},
    {**_float_time_fields(_itself), "epoch": lambda time: time / 1_000_000.0},
)


def _zone_parts(value: TimeTz) -> tuple[int, int]:
    """Hours and minutes east, both with the sign."""
    minutes = abs(value.zone) // 60
    sign = -1 if value.zone > 0 else 1
    return sign * (minutes // 60), sign * (minutes % 60)


TIMETZ: Final = Kind(
    "time with time zone",
    {
        **_time_fields(_timetz_usecs),
        "timezone": lambda value: -value.zone,
        "timezone_hour": lambda value: _zone_parts(value)[0],
        "timezone_minute": lambda value: _zone_parts(value)[1],
    },
    {
        **_numeric_time_fields(_timetz_usecs),
        "epoch": lambda value: as_numeric(value.instant, 6),
    },
    {
        **_float_time_fields(_timetz_usecs),
        "epoch": lambda value: value.usecs / 1_000_000.0 + value.zone,
    },
)


# Timestamps


def _timestamp_sign(value: int) -> int:
    return 1 if value == TIMESTAMP_INFINITY else -1 if value == TIMESTAMP_MINUS_INFINITY else 0


def _timestamp_julian(value: int) -> int:
    return value // USECS_PER_DAY + EPOCH_JULIAN


def _timestamp_usecs(value: int) -> int:
    return value % USECS_PER_DAY


def _numeric_julian(value: int) -> Decimal:
    day, usecs = divmod(value, USECS_PER_DAY)
    fraction = numeric.divide(Decimal(usecs), _USECS_PER_DAY_NUMERIC)
    found = numeric.add(Decimal(day + EPOCH_JULIAN), fraction)
    assert isinstance(found, Decimal)
    return found


def _float_julian(value: int) -> float:
    day, usecs = divmod(value, USECS_PER_DAY)
    seconds, rest = divmod(usecs, USECS_PER_SEC)
    return day + EPOCH_JULIAN + (seconds + rest / 1_000_000.0) / 86_400.0


def _numeric_epoch(value: int) -> Decimal:
    if value < TIMESTAMP_INFINITY + _UNIX_EPOCH:
        return as_numeric(value - _UNIX_EPOCH, 6)
    # Beyond 64 bits the server divides, to fewer digits than the result then shows.
    found = numeric.divide(Decimal(value - _UNIX_EPOCH), Decimal(USECS_PER_SEC))
    assert isinstance(found, Decimal)
    return found.quantize(Decimal((0, (1,), -6)), context=numeric.EXACT)


def _float_epoch(value: int) -> float:
    if value < TIMESTAMP_INFINITY + _UNIX_EPOCH:
        return float(value - _UNIX_EPOCH) / 1_000_000.0
    return (float(value) - float(_UNIX_EPOCH)) / 1_000_000.0


TIMESTAMP: Final = Kind(
    "timestamp without time zone",
    {**_day_fields(_timestamp_julian), **_time_fields(_timestamp_usecs)},
    {
        **_numeric_time_fields(_timestamp_usecs),
        "julian": _numeric_julian,
        "epoch": _numeric_epoch,
    },
    {
        **_float_time_fields(_timestamp_usecs),
        "julian": _float_julian,
        "epoch": _float_epoch,
    },
    _timestamp_sign,
    _INCREASING,
    _OSCILLATING_DAYS
    | {"microsecond", "millisecond", "second", "minute", "hour"}
    | {"timezone", "timezone_hour", "timezone_minute"},
    reserved_is_unit=True,
)
