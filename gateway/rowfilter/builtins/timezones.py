"""Functions that are told a time zone, for constant ones that mean the same on any server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from gateway.pgtypes import datetime_zones
from gateway.pgtypes.datetime_zones import fixed_offset
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.interval import Interval
from gateway.rowfilter.expr import Operation, Value

__all__ = ["OPERATIONS", "operations"]


def _at_zone(offset: int, convert: Callable[[int, int], int], zone: bytes, usecs: int) -> int:
    return convert(offset, usecs)


def _add(offset: int, usecs: int, value: Interval, zone: bytes) -> int:
    return datetime_zones.add_in_zone(offset, usecs, value)


def _subtract(major: int | None, offset: int, usecs: int, value: Interval, zone: bytes) -> int:
    return datetime_zones.subtract_in_zone(offset, usecs, value, major=major)


def _trunc(major: int | None, offset: int, unit: bytes, usecs: int, zone: bytes) -> int:
    return datetime_zones.trunc_in_zone(offset, unit, major=major)(usecs)


def _zoned(name: str, place: int, make: Callable[[int], Callable[..., Value]]) -> Operation:
    """`make` gives the function for an offset; it takes all arguments, the zone at `place`."""

    def any_zone(*arguments: Value) -> Value:
        zone = arguments[place]
        offset = fixed_offset(zone) if isinstance(zone, bytes) else None
        if offset is None:
            raise EvaluationError("the time zone depends on the server")
        return make(offset)(*arguments)

    def specialize(constants: Mapping[int, Value]) -> Operation | str:
        if place not in constants:
            return "its time zone is not constant"
        zone = constants[place]
        if isinstance(zone, bytes):
            offset = fixed_offset(zone)
            if offset is None:
                return "its time zone depends on the server, on its settings or time zone data"
            return Operation(name, make(offset), can_raise=True)
        return operation  # NULL, and so is the result

    operation = Operation(name, any_zone, can_raise=True, specialize=specialize)
    return operation


def operations(major: int | None) -> Sequence[Operation]:
    """The operations on a server of this major version; None: of any, as in `intervals`."""
    to_local, to_utc = datetime_zones.utc_to_local, datetime_zones.local_to_utc
    return (
        _zoned("timestamptz_zone", 0, lambda offset: partial(_at_zone, offset, to_local)),
        _zoned("timestamp_zone", 0, lambda offset: partial(_at_zone, offset, to_utc)),
        _zoned("timestamptz_pl_interval_at_zone", 2, lambda offset: partial(_add, offset)),
        _zoned(
            "timestamptz_mi_interval_at_zone",
            2,
            lambda offset: partial(_subtract, major, offset),
        ),
        _zoned("timestamptz_trunc_zone", 2, lambda offset: partial(_trunc, major, offset)),
    )


OPERATIONS: Final = operations(None)
