"""Identity of rows: equal texts for keys, and for whole rows, that PostgreSQL regards as equal.

1.0 and 1.00, `1 day` and `24:00:00`, -0 and 0, NaN and NaN are equal; schemas/types.toml says which
form the texts of a type have. Types that are not listed there are equal if they print alike.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from pgsluice_client.changes import Column
from schemas.interval_text import interval_parts

__all__ = ["CANONICAL", "identity"]

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\.\d+')
_ODD_NUMBER: Final = re.compile(r"\.\d+|(?<!e)-0(?![\d.])")
_DAY_US: Final = 86_400_000_000


def identity(values: Mapping[str, Any], columns: Iterable[Column]) -> str:
    """Return the same text for rows that are equal in some columns."""
    found = [_canonical(values[column.name], column.canonical) for column in columns]
    return json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _canonical(value: Any, kind: str) -> Any:
    match value:
        case None | bool() | int():
            return value
        case float():
            return "NaN" if math.isnan(value) else value or 0.0
        case str():
            return CANONICAL[kind](value) if kind else value
        case Decimal():
            return _numeric(f"{value:f}")
        case bytes():
            return value.hex()
        case list():
            return [_canonical(one, "") for one in value]
        case dict():
            return {name: _canonical(one, "") for name, one in value.items()}
        case _:
            return str(value)


def _numeric(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _numbers(text: str) -> str:
    return _ODD_NUMBER.sub(lambda one: _numeric(one[0]) if one[0][0] == "." else "0", text)


def _bpchar(text: str) -> str:
    return text.rstrip(" ")


def _interval(text: str) -> Any:
    """Return the number by which PostgreSQL compares intervals, or the text of an infinite one."""
    try:
        months, days, micros = interval_parts(text.encode())
    except ValueError:
        return text
    return (months * 30 + days) * _DAY_US + micros


def _jsonb(text: str) -> str:
    return _TOKEN.sub(lambda one: one[0] if one[0][0] == '"' else _numeric(one[0]), text)


def _text(text: str) -> str:
    return text


CANONICAL: Final[Mapping[str, Callable[[str], Any]]] = {
    "text": _text,
    "printed": _text,
    "float": _text,  # it is never a text
    "timestamptz": _text,  # the gateway's sessions are in UTC
    "numeric": _numeric,
    "numbers": _numbers,
    "bpchar": _bpchar,
    "interval": _interval,
    "jsonb": _jsonb,
}
"""Canonical forms of texts, by their names in schemas/types.toml."""
