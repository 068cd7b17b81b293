"""date, time, timetz, timestamp and timestamptz; what makes intervals is in `intervals`."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from struct import Struct
from types import MappingProxyType
from typing import Any, Final

from gateway.pgtypes import (
    datetime,
    datetime_fields,
    datetime_hash,
    datetime_periods,
    datetime_trunc,
    timeofday,
    timestamp_arithmetic,
)
from gateway.pgtypes.datetime_fields import DATE, TIME, TIMESTAMP, TIMETZ, Kind
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.interval import Interval
from gateway.rowfilter.builtins.common import comparisons
from gateway.rowfilter.expr import Operation, Value

__all__ = ["LENGTHS", "OPERATIONS", "PARSERS", "orders", "with_modifier", "with_unit"]

PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {
        "date": datetime.parse_date,
        "time": timeofday.parse_time,
        "timetz": timeofday.parse_timetz,
        "timestamp": datetime.parse_timestamp,
        "timestamptz": datetime.parse_timestamptz,
    }
)

_AS_TIMESTAMP: Final = Operation("(date as timestamp)", datetime.date_as_timestamp)


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _larger(left: Any, right: Any) -> Any:
    return left if left > right else right


def _smaller(left: Any, right: Any) -> Any:
    return left if left < right else right


def orders(prefix: str) -> list[Operation]:
    """What follows from the order of a type: comparison in three ways, the larger, the smaller."""
    return [
        Operation(f"{prefix}_cmp", _compare),
        Operation(f"{prefix}_larger", _larger),
        Operation(f"{prefix}_smaller", _smaller),
    ]


def _comparisons() -> list[Operation]:
    return [
        *(
            op
            for kind in ("date", "time", "timetz", "timestamp")
            for op in comparisons(kind + "_{}")
        ),
        *(op for kind in ("date", "time", "timetz", "timestamp") for op in orders(kind)),
        *comparisons("date_{}_timestamp", adapters=(_AS_TIMESTAMP, None)),
        *comparisons("timestamp_{}_date", adapters=(None, _AS_TIMESTAMP)),
        Operation("date_cmp_timestamp", _compare, adapters=(_AS_TIMESTAMP, None)),
        Operation("timestamp_cmp_date", _compare, adapters=(None, _AS_TIMESTAMP)),
        Operation("date_finite", _is_finite_date),
        Operation("timestamp_finite", _is_finite_timestamp),
    ]


def _is_finite_date(date: int) -> bool:
    return date not in (datetime.DATE_INFINITY, datetime.DATE_MINUS_INFINITY)


def _is_finite_timestamp(usecs: int) -> bool:
    return usecs not in (datetime.TIMESTAMP_INFINITY, datetime.TIMESTAMP_MINUS_INFINITY)


def _reversed(function: Callable[[Any, Any], Value]) -> Callable[[Any, Any], Value]:
    return lambda left, right: function(right, left)


def _arithmetic() -> list[Operation]:
    raising: dict[str, Callable[..., Value]] = {
        "date_pli": datetime.add_days,
        "date_mii": datetime.subtract_days,
        "date_mi": datetime.days_between,
        "integer_pl_date(int4,date)": _reversed(datetime.add_days),
        "date_pl_interval": timestamp_arithmetic.add_interval_to_date,
        "interval_pl_date(interval,date)": _reversed(timestamp_arithmetic.add_interval_to_date),
        "timestamp_pl_interval": timestamp_arithmetic.add_interval,
        "interval_pl_timestamp(interval,timestamp)": _reversed(timestamp_arithmetic.add_interval),
        "datetime_timestamp": timestamp_arithmetic.date_and_time,
        "timedate_pl(time,date)": _reversed(timestamp_arithmetic.date_and_time),
        "datetimetz_timestamptz": timestamp_arithmetic.date_and_timetz,
        "timetzdate_pl(timetz,date)": _reversed(timestamp_arithmetic.date_and_timetz),
        "time_pl_interval": timeofday.add_interval,
        "interval_pl_time(interval,time)": _reversed(timeofday.add_interval),
        "time_mi_interval": timeofday.subtract_interval,
        "timetz_pl_interval": timeofday.add_interval_to_timetz,
        "interval_pl_timetz(interval,timetz)": _reversed(timeofday.add_interval_to_timetz),
        "timetz_mi_interval": timeofday.subtract_interval_from_timetz,
        "timestamp_izone": timestamp_arithmetic.timestamp_in_zone,
        "timestamptz_izone": timestamp_arithmetic.timestamptz_in_zone,
        "timetz_izone": timeofday.timetz_at_interval,
        "timestamp_bin": datetime_trunc.date_bin,
        "timestamptz_bin": datetime_trunc.date_bin,
        "make_date": timestamp_arithmetic.make_date,
        "make_time": timeofday.make_time,
        "make_timestamp": timestamp_arithmetic.make_timestamp,
        "float8_timestamptz": timestamp_arithmetic.to_timestamp,
    }
    return [
        *(Operation(key, function, can_raise=True) for key, function in raising.items()),
        Operation("time_mi_time", timeofday.subtract_times),
    ]


# Casts, and what looks like them


def _casts() -> list[Operation]:
    return [
        Operation("date_timestamp", datetime.date_to_timestamp, can_raise=True),
        Operation("timestamp_date", datetime.timestamp_to_date),
        Operation("timestamp_time", timestamp_arithmetic.timestamp_to_time, nullable=True),
        Operation("timetz_time", timeofday.timetz_to_time),
        Operation("time_scale", timeofday.round_time),
        Operation("timetz_scale", timeofday.round_timetz),
        with_modifier("timestamp_scale", timestamp_arithmetic.scale, range(7)),
        with_modifier("timestamptz_scale", timestamp_arithmetic.scale, range(7)),
    ]


def _first(value: Value, _: Value) -> Value:
    return value


def with_modifier(name: str, function: Callable[..., Value], valid: Container[int]) -> Operation:
    """A function that applies a type modifier; only one that is constant, and `valid` or negative.

    A negative one changes nothing. With others, the planner decides by the type modifier of the
    argument whether the function is called at all.

    Source: TemporalSimplify(), interval_support().
    """

    def specialize(constants: Mapping[int, Value]) -> Operation | str:
        if 1 not in constants:
            return "its type modifier must be constant"
        modifier = constants[1]
        if isinstance(modifier, int) and 0 not in constants:  # constants are folded by a call
            if modifier < 0:
                return Operation(name, _first)
            if modifier not in valid:
                return "such values do not have this type modifier"
        return replace(operation, specialize=None)

    operation = Operation(name, function, can_raise=True, specialize=specialize)
    return operation


def _timestamp(typmod: int) -> Operation:
    return Operation(f"timestamp({typmod})", partial(datetime.round_timestamp, digits=typmod))


def _time(typmod: int) -> Operation:
    return Operation(f"time({typmod})", partial(timeofday.round_time, digits=typmod))


def _timetz(typmod: int) -> Operation:
    return Operation(f"timetz({typmod})", partial(timeofday.round_timetz, digits=typmod))


LENGTHS: Final[Mapping[str, Callable[[int], Operation | None]]] = MappingProxyType(
    {"time": _time, "timetz": _timetz, "timestamp": _timestamp, "timestamptz": _timestamp}
)


def _sender(layout: str) -> Callable[..., bytes]:
    return Struct(layout).pack


_pack_timetz: Final = _sender("!qi")


def _timetz_send(value: timeofday.TimeTz) -> bytes:
    return _pack_timetz(value.usecs, value.zone)


def _senders() -> list[Operation]:
    return [
        Operation("date_send", _sender("!i")),
        *(
            Operation(f"{kind}_send", _sender("!q"))
            for kind in ("time", "timestamp", "timestamptz")
        ),
        Operation("timetz_send", _timetz_send),
    ]


def _hashes() -> list[Operation]:
    found: dict[str, Callable[..., Value]] = {
        "hashdate": datetime_hash.hash_int32,
        "hashdateextended": datetime_hash.hash_int32_extended,
        "timetz_hash": datetime_hash.hash_timetz,
        "timetz_hash_extended": datetime_hash.hash_timetz_extended,
        "interval_hash": datetime_hash.hash_interval,
        "interval_hash_extended": datetime_hash.hash_interval_extended,
    }
    for kind in ("time", "timestamp", "timestamptz"):
        found[f"{kind}_hash"] = datetime_hash.hash_int64
        found[f"{kind}_hash_extended"] = datetime_hash.hash_int64_extended
    return [Operation(key, function) for key, function in found.items()]


# Fields


def with_unit(
    name: str,
    function: Callable[[bytes, Any], Value],
    of_unit: Callable[[bytes], Callable[[Any], Value]],
    *,
    nullable: bool = False,
) -> Operation:
    """A function of a unit and a value; a constant unit is looked up once."""

    def prepare(constants: Mapping[int, Value]) -> Callable[..., Value] | None:
        unit = constants.get(0)
        return of_unit(unit) if isinstance(unit, bytes) else None

    return Operation(name, function, can_raise=True, nullable=nullable, prepare=prepare)


def _fields(name: str, kind: Kind, *, as_float: bool) -> Operation:
    make = datetime_fields.date_part if as_float else datetime_fields.extract
    of_unit = partial(datetime_fields.field_function, kind, as_float=as_float)
    return with_unit(name, make(kind), of_unit, nullable=kind.sign is not None)


def _date_part_of_date(unit: bytes | None, date: int | None) -> Value:
    """It is written in SQL: the date is cast, which can fail, also when the unit is NULL."""
    timestamp = None if date is None else datetime.date_to_timestamp(date)
    if unit is None or timestamp is None:
        return None
    return datetime_fields.field_function(TIMESTAMP, unit, as_float=True)(timestamp)


def _folded_first(
    operation: Operation, *parts: tuple[Callable[..., Value], tuple[int, int] | tuple[int]]
) -> Operation:
    """A function written in SQL whose body has `parts` that are folded when they are constant.

    Each is a function and the places of its arguments. When it fails, it does so for every row,
    reached or not.
    """

    def specialize(constants: Mapping[int, Value]) -> Operation | str:
        for function, places in parts:
            values = [constants.get(place) for place in places]
            if None not in values:
                try:
                    function(*values)
                except EvaluationError as error:
                    return error.message
        return operation

    return replace(operation, specialize=specialize)


def _all_fields() -> list[Operation]:
    return [
        _fields("extract_date", DATE, as_float=False),
        _fields("extract_time", TIME, as_float=False),
        _fields("extract_timetz", TIMETZ, as_float=False),
        _fields("extract_timestamp", TIMESTAMP, as_float=False),
        _fields("time_part", TIME, as_float=True),
        _fields("timetz_part", TIMETZ, as_float=True),
        _fields("timestamp_part", TIMESTAMP, as_float=True),
        _folded_first(
            Operation(
                "date_part(text,date)",
                _date_part_of_date,
                can_raise=True,
                strict=False,
                nullable=True,
            ),
            (datetime.date_to_timestamp, (1,)),
        ),
    ]


# OVERLAPS


def _overlaps(
    name: str, add: Callable[[Any, Interval], Any], given: tuple[bool, bool]
) -> Operation:
    """A form that is written in SQL: an end is given as an interval from the begin, or both are."""

    def end_of(begin: Any, length: Any) -> Any:
        return None if begin is None or length is None else add(begin, length)

    def overlaps(left: Any, left_end: Any, right: Any, right_end: Any) -> bool | None:
        if given[0]:
            left_end = end_of(left, left_end)
        if given[1]:
            right_end = end_of(right, right_end)
        return datetime_periods.overlaps(left, left_end, right, right_end)

    sums = [
        (add, places) for is_given, places in zip(given, ((0, 1), (2, 3)), strict=True) if is_given
    ]
    operation = Operation(name, overlaps, can_raise=True, strict=False, nullable=True)
    return _folded_first(operation, *sums)


def _all_overlaps() -> list[Operation]:
    found = [
        Operation(f"overlaps_{kind}", datetime_periods.overlaps, strict=False, nullable=True)
        for kind in ("time", "timetz", "timestamp")
    ]
    for kind, add in (
        ("time", timeofday.add_interval),
        ("timestamp", timestamp_arithmetic.add_interval),
    ):
        for given in ((True, True), (True, False), (False, True)):
            ends = ["interval" if is_given else kind for is_given in given]
            name = f"overlaps({kind},{ends[0]},{kind},{ends[1]})"
            found.append(_overlaps(name, add, given))
    return found


OPERATIONS: Final[Sequence[Operation]] = (
    *_comparisons(),
    *_arithmetic(),
    *_casts(),
    *_senders(),
    *_hashes(),
    *_all_fields(),
    *_all_overlaps(),
)
