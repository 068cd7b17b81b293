"""Values of Avro as Python has them, and PostgreSQL's texts of them.

Dates and times that Python cannot represent are texts as PostgreSQL prints them: the infinities,
and what is before year 1 or after year 9999. fastavro would raise for these, so that it reads the
plain integers and they are converted here.

Source: EncodeDateOnly and EncodeDateTime in PostgreSQL's datetime.c, for DateStyle ISO.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from schemas.array_text import array_items

__all__ = ["converter", "from_text", "readable"]

_DAYS: Final = {2**31 - 1: "infinity", -(2**31): "-infinity"}
_MICROS: Final = {2**63 - 1: "infinity", -(2**63): "-infinity"}
_EPOCH: Final = datetime(1970, 1, 1)
_DAY_US: Final = 86_400_000_000
_CYCLE: Final = 146_097
"""Days of 400 years, after which the calendar repeats."""


def readable(schema: Any) -> Any:
    """Return an Avro schema by which dates and timestamps are read as integers."""
    if isinstance(schema, list):
        return [readable(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: readable(part) for name, part in schema.items() if name != "default"}
    if found.get("logicalType") in _CONVERTED:
        del found["logicalType"]
    return found


def converter(avro: Any) -> Callable[[Any], Any] | None:
    """Return the conversion of values that were read by `readable`; None if they stay."""
    if isinstance(avro, list):
        (inner,) = [converter(one) for one in avro if one != "null"]
        return None if inner is None else lambda value: None if value is None else inner(value)
    if not isinstance(avro, dict):
        return None
    match avro["type"]:
        case "array" if (item := converter(avro["items"])) is not None:
            return lambda value: [item(one) for one in value]
        case "record":
            parts = {f["name"]: c for f in avro["fields"] if (c := converter(f["type"]))}
            if parts:
                return lambda value: value | {name: c(value[name]) for name, c in parts.items()}
    return _CONVERTED.get(avro.get("logicalType"))


def from_text(text: str, avro: Any) -> Any:
    """Return the value of an Avro type that PostgreSQL printed.

    Raises:
        ValueError: it is a record or a map, or PostgreSQL prints no such text.
    """
    if isinstance(avro, list):
        (avro,) = [one for one in avro if one != "null"]
    kind, logical = (
        (avro["type"], avro.get("logicalType")) if isinstance(avro, dict) else (avro, "")
    )
    match logical, kind:
        case "date" | "timestamp-micros" | "local-timestamp-micros", _:
            with suppress(ValueError):  # otherwise it is a text as a value, too
                return (date if logical == "date" else datetime).fromisoformat(text)
            return text
        case "time-micros", _:
            return time.fromisoformat(text)
        case "decimal", _:
            return Decimal(text)
        case "uuid", _:
            return UUID(text)
        case _, "boolean":
            return text == "t"
        case _, "int" | "long":
            return int(text)
        case _, "double":
            return float(text)
        case _, "float":
            return struct.unpack("f", struct.pack("f", float(text)))[0]
        case _, "bytes":
            return bytes.fromhex(text.removeprefix("\\x"))
        case _, "string":
            return text
        case _, "array":
            items = array_items(text.encode())
            return [
                None if one is None else from_text(one.decode(), avro["items"]) for one in items
            ]
    raise ValueError(f"a text of Avro type {kind}")


def _date(days: int) -> date | str:
    try:
        return (_EPOCH + timedelta(days)).date()
    except OverflowError:
        return _DAYS.get(days) or "".join(_far_date(days))


def _timestamp(micros: int) -> datetime | str:
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return _MICROS.get(micros) or _far_timestamp(micros, "")


def _timestamptz(micros: int) -> datetime | str:
    try:
        return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=UTC)
    except OverflowError:
        return _MICROS.get(micros) or _far_timestamp(micros, "+00")


def _far_date(days: int) -> tuple[str, str]:
    """Return the text of a date, and its era."""
    cycles, within = divmod(days, _CYCLE)
    same = _EPOCH + timedelta(within)
    year = same.year + 400 * cycles
    shown, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04}-{same.month:02}-{same.day:02}", era


def _far_timestamp(micros: int, zone: str) -> str:
    days, of_day = divmod(micros, _DAY_US)
    day, era = _far_date(days)
    clock = (_EPOCH + timedelta(microseconds=of_day)).time().isoformat()
    return f"{day} {clock.rstrip('0') if '.' in clock else clock}{zone}{era}"


_CONVERTED: Final[dict[Any, Callable[[Any], Any]]] = {
    "date": _date,
    "timestamp-micros": _timestamptz,
    "local-timestamp-micros": _timestamp,
}
