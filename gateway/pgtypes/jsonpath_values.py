"""What jsonpath does with single values: comparison, numeric methods, numbers from text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isinf
from types import MappingProxyType
from typing import Any, Final

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonb import Json
from gateway.pgtypes.numeric import absolute, float_to_numeric, numeric_to_integer
from gateway.pgtypes.numeric_functions import ceil, floor, truncate_to_integer

__all__ = ["METHODS", "compare", "read_double", "truncated"]

METHODS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {"abs": absolute, "floor": floor, "ceiling": ceil}
)
_DECIMAL = re.compile(
    r"[ \t\n\v\f\r]*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[ \t\n\v\f\r]*"
)
_HEXADECIMAL = re.compile(
    r"[ \t\n\v\f\r]*([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)"
    r"(?:[pP][+-]?[0-9]+)?)[ \t\n\v\f\r]*"
)


def compare(kind: str, left: Json, right: Json) -> bool | None:
    """A predicate of two items; None: unknown.

    Source: compareItems(), executeStartsWith(), executeLikeRegex().
    """
    if kind == "starts":
        both = isinstance(left, str) and isinstance(right, str)
        return left.startswith(right) if both else None
    if kind == "regex":
        return right.matches(left) if isinstance(left, str) else None
    if isinstance(left, list | dict) or isinstance(right, list | dict):
        # A container is not comparable, not even with itself; with null it is just different.
        if left is None or right is None:
            return kind == "!="
        return None
    if type(left) is not type(right):
        return kind == "!=" if left is None or right is None else None
    if left is None:
        return kind in ("==", "<=", ">=")
    match kind:
        case "==":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
    return bool(left >= right)


def truncated(number: Decimal) -> int | None:
    """The integer part, None beyond the range of integer."""
    try:
        return numeric_to_integer(truncate_to_integer(number), -(2**31), 2**31 - 1, "integer")
    except EvaluationError:
        return None


def read_double(value: Decimal | str) -> Any:
    """The number that .double() makes of a number, which stays as it is, or of a text.

    Raises:
        ValueFormatError: no double precision says the same, or none at all.
    """
    text = value if isinstance(value, str) else f"{value:f}"
    if match := _DECIMAL.fullmatch(text):
        number = float(match[1])
        is_zero = not re.search("[1-9]", re.split("[eE]", match[1])[0])
    elif match := _HEXADECIMAL.fullmatch(text):
        try:
            number = float.fromhex(match[1])
        except OverflowError:
            number = float("inf")
        is_zero = not re.search("[1-9a-fA-F]", re.split("[pP]", match[1][2:])[0].lstrip("xX"))
    else:
        raise ValueFormatError("a value does not read as double precision")
    if isinf(number) or (number == 0 and not is_zero):
        raise ValueFormatError("a value is out of range for type double precision")
    return value if isinstance(value, Decimal) else float_to_numeric(number, 15)
