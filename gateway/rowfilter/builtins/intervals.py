"""interval, and all that depends on the version of the server.

Before PostgreSQL 17 there are no infinite intervals, before 18 no weeks of intervals. `OPERATIONS`
holds for any version and raises for values for which versions differ; `operations` of a version
does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from struct import Struct
from types import MappingProxyType
from typing import Final

from gateway.pgtypes import (
    datetime_fields,
    datetime_periods,
    datetime_trunc,
    datetime_uuid,
    interval,
    interval_arithmetic,
    interval_fields,
    timestamp_arithmetic,
)
from gateway.pgtypes.datetime_units import EXTRACT_UNITS, unit_name
from gateway.pgtypes.interval import Interval
from gateway.rowfilter.builtins.common import comparisons
from gateway.rowfilter.builtins.datetimes import orders, with_modifier, with_unit
from gateway.rowfilter.expr import Operation, Value

__all__ = ["LENGTHS", "OPERATIONS", "PARSERS", "lengths", "operations"]

PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {"interval": interval.parse_interval}
)

_SEND: Final = Struct("!qii").pack


def _send(value: Interval) -> bytes:
    return _SEND(value.usecs, value.days, value.months)


def _same_everywhere() -> list[Operation]:
    raising: dict[str, Callable[..., Value]] = {
        "interval_justify_hours": interval_arithmetic.justify_hours,
        "interval_justify_days": interval_arithmetic.justify_days,
        "interval_justify_interval": interval_arithmetic.justify_interval,
    }
    return [
        *comparisons("interval_{}"),
        *orders("interval"),
        Operation("interval_finite", interval.is_finite),
        Operation("time_interval", interval_arithmetic.time_to_interval),
        Operation("interval_send", _send),
        *(Operation(key, function, can_raise=True) for key, function in raising.items()),
    ]


_DEPENDING: Final[Mapping[str, Callable[..., Value]]] = MappingProxyType(
    {
        "interval_um": interval_arithmetic.negate,
        "interval_pl": interval_arithmetic.add,
        "interval_mi": interval_arithmetic.subtract,
        "interval_mul": interval_arithmetic.multiply,
        "mul_d_interval": interval_arithmetic.multiply_reversed,
        "interval_div": interval_arithmetic.divide,
        "interval_time": interval_arithmetic.interval_to_time,
        "make_interval": interval_arithmetic.make_interval,
        "timestamp_mi": timestamp_arithmetic.subtract,
        "timestamp_age": timestamp_arithmetic.age,
        "timestamp_mi_interval": timestamp_arithmetic.subtract_interval,
        "date_mi_interval": timestamp_arithmetic.subtract_interval_from_date,
        "in_range_date_interval": datetime_periods.date_in_range,
        "in_range_time_interval": datetime_periods.time_in_range,
        "in_range_timetz_interval": datetime_periods.timetz_in_range,
        "in_range_timestamp_interval": datetime_periods.timestamp_in_range,
        "in_range_interval_interval": datetime_periods.interval_in_range,
    }
)


_UNITS_OF_A_VERSION: Final = ("week", "quarter")


def _fields(name: str, major: int | None, *, as_float: bool) -> Operation:
    kind = interval_fields.interval_kind(major)
    make = datetime_fields.date_part if as_float else datetime_fields.extract
    of_unit = partial(datetime_fields.field_function, kind, as_float=as_float)
    operation = with_unit(name, make(kind), of_unit, nullable=True)
    if major is not None:
        return operation

    def specialize(constants: Mapping[int, Value]) -> Operation | str:
        unit = constants.get(0, b"week")
        if isinstance(unit, bytes) and unit_name(unit, EXTRACT_UNITS) in _UNITS_OF_A_VERSION:
            return "the weeks and quarters of intervals depend on the version of the server"
        return operation

    return replace(operation, specialize=specialize)


def _refuse_silent_overflow(_: Mapping[int, Value]) -> str:
    return "before PostgreSQL 17 its seconds overflow in silence, and how depends on the machine"


def operations(major: int | None) -> Sequence[Operation]:
    """The operations on a server of this major version; None: of any."""
    early = major is not None and major < interval_arithmetic.INFINITE_SINCE
    silent = {"make_interval"} if early else set[str]()
    return (
        *_same_everywhere(),
        Operation(
            "uuid_extract_timestamp",
            partial(datetime_uuid.uuid_timestamp, major=major),
            can_raise=major is None,
            nullable=True,
        ),
        *(
            Operation(
                key,
                partial(function, major=major),
                can_raise=True,
                specialize=_refuse_silent_overflow if key in silent else None,
            )
            for key, function in _DEPENDING.items()
        ),
        with_modifier(
            "interval_scale",
            partial(interval_arithmetic.scale_checked, major=major),
            interval_arithmetic.VALID_MODIFIERS,
        ),
        _fields("extract_interval", major, as_float=False),
        _fields("interval_part", major, as_float=True),
        with_unit(
            "interval_trunc",
            partial(interval_fields.trunc, major=major),
            partial(interval_fields.trunc_function, major=major),
        ),
        with_unit(
            "timestamp_trunc",
            partial(datetime_trunc.trunc, major=major),
            partial(datetime_trunc.trunc_function, major=major),
        ),
    )


OPERATIONS: Final = operations(None)


def lengths(major: int | None) -> Mapping[str, Callable[[int], Operation | None]]:
    """The casts to a type modifier, as `operations`."""

    def coercion(typmod: int) -> Operation | None:
        if not interval_arithmetic.scale_is_valid(typmod):
            return None
        coerce = partial(interval_arithmetic.scale, typmod=typmod, major=major)
        return Operation(f"interval({typmod})", coerce, can_raise=True)

    return MappingProxyType({"interval": coercion})


LENGTHS: Final = lengths(None)
