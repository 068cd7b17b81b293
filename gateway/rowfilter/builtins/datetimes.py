"""date, timestamp and timestamptz."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.pgtypes import datetime
from gateway.rowfilter.builtins.common import comparisons
from gateway.rowfilter.expr import Operation, Value

__all__ = ["LENGTHS", "OPERATIONS", "PARSERS"]

PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {
        "date": datetime.parse_date,
        "timestamp": datetime.parse_timestamp,
        "timestamptz": datetime.parse_timestamptz,
    }
)

_AS_TIMESTAMP: Final = Operation("(date as timestamp)", datetime.date_as_timestamp)

OPERATIONS: Final[Sequence[Operation]] = (
    *comparisons("date_{}"),
    *comparisons("timestamp_{}"),
    *comparisons("date_{}_timestamp", adapters=(_AS_TIMESTAMP, None)),
    *comparisons("timestamp_{}_date", adapters=(None, _AS_TIMESTAMP)),
    Operation("date_pli", datetime.add_days, can_raise=True),
    Operation("date_mii", datetime.subtract_days, can_raise=True),
    Operation("date_mi", datetime.days_between, can_raise=True),
    Operation("date_timestamp", datetime.date_to_timestamp, can_raise=True),
    Operation("timestamp_date", datetime.timestamp_to_date),
)


def _timestamp(typmod: int) -> Operation:
    return Operation(f"timestamp({typmod})", partial(datetime.round_timestamp, digits=typmod))


LENGTHS: Final[Mapping[str, Callable[[int], Operation | None]]] = MappingProxyType(
    {"timestamp": _timestamp, "timestamptz": _timestamp}
)
