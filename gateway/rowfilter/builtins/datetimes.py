"""date, timestamp and timestamptz: compared; days are counted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from gateway.pgtypes.datetimes import iso
from gateway.rowfilter.builtins.common import Family, comparisons
from gateway.rowfilter.expr import Operation

__all__ = ["FAMILY"]

_AS_TIMESTAMP: Final = Operation("(date as timestamp)", iso.date_as_timestamp)


def _comparisons() -> Iterator[Operation]:
    yield from comparisons("date_{}")
    yield from comparisons("timestamp_{}")  # of timestamptz, too
    yield from comparisons("date_{}_timestamp", adapters=(_AS_TIMESTAMP, None))
    yield from comparisons("timestamp_{}_date", adapters=(None, _AS_TIMESTAMP))


def _length(typmod: int) -> Operation:
    return Operation(f"timestamp({typmod})", partial(iso.round_timestamp, digits=typmod))


FAMILY: Final = Family(
    parsers={
        "date": iso.parse_date,
        "timestamp": iso.parse_timestamp,
        "timestamptz": iso.parse_timestamptz,
    },
    operations=(
        *_comparisons(),
        Operation("date_pli", iso.add_days, can_raise=True),
        Operation("date_mii", iso.subtract_days, can_raise=True),
        Operation("date_mi", iso.days_between, can_raise=True),
        Operation("date_timestamp", iso.date_to_timestamp, can_raise=True),
        Operation("timestamp_date", iso.timestamp_to_date),
    ),
    lengths={"timestamp": _length, "timestamptz": _length},
)
