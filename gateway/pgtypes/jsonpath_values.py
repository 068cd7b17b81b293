"""What jsonpath does with single values: comparison, numeric methods, numbers from text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from math import isinf
from types import MappingProxyType
from typing import Any, Final, NoReturn

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonb import Json, print_jsonb
from gateway.pgtypes.numeric import (
    EXACT,
    MAX_DIGITS,
    MAX_SCALE,
    absolute,
    float_to_numeric,
    numeric_to_integer,
)
from gateway.pgtypes.numeric_functions import ceil, floor, truncate_to_integer

__all__ = ["CONVERSIONS", "METHODS", "compare", "convert", "truncated"]

METHODS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {"abs": absolute, "floor": floor, "ceiling": ceil}
)
_TRUTHS: Final = {"true": True, "false": False, "yes": True, "no": False, "on": True,
                  "off": False, "1": True, "0": False}  # fmt: skip
_MAX_EXPONENT: Final = (2**31 - 1) // 2
_MAX_BITS: Final = 435_412
"""Of an integer with MAX_DIGITS digits."""
_BLANKS: Final = r"[ \t\n\v\f\r]*"
_DIGITS: Final = r"[0-9](?:_?[0-9])*"
_INTEGER = re.compile(
    rf"{_BLANKS}([+-]?(?:0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|{_DIGITS}))"
    rf"{_BLANKS}"
)
_NUMBER = re.compile(
    rf"{_BLANKS}([+-]?)({_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE]([+-]?{_DIGITS}))?{_BLANKS}"
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


# Conversions: methods that read a text as a type's input function does


def convert(kind: str, item: Json) -> Json:
    """What the method `kind` of CONVERSIONS makes of `item`.

    Raises:
        ValueFormatError: it is not of a kind that the method takes, or does not say such a value.
    """
    return CONVERSIONS[kind](item)


def _refuse(kind: str) -> NoReturn:
    raise ValueFormatError(f"a value does not read as {kind}")


def _double(item: Json) -> Json:
    """A number that a double precision can hold stays as it is."""
    if not isinstance(item, Decimal | str):
        _refuse("double precision")
    text = item if isinstance(item, str) else f"{item:f}"
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
        _refuse("double precision")
    if isinf(number) or (number == 0 and not is_zero):
        _refuse("double precision")
    return item if isinstance(item, Decimal) else float_to_numeric(number, 15)


def _integer(item: Json, size: int) -> Json:
    """An integer of `size` bits, as numeric."""
    number = item if isinstance(item, Decimal) else None
    if isinstance(item, str) and (match := _INTEGER.fullmatch(item)):
        number = _whole(match[1])
    if number is None:
        _refuse("integer")
    low = -(2 ** (size - 1))
    try:
        return Decimal(numeric_to_integer(number, low, -low - 1, "integer"))
    except EvaluationError:
        _refuse("integer")


def _whole(text: str) -> Decimal | None:
    """The integer that digits with underscores say, in base 10 or with a prefix for another."""
    negative, digits = text[:1] == "-", text.lstrip("+-").replace("_", "")
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2].lower(), 10)
    if base == 10:
        found = Decimal(digits)
    else:
        number = int(digits, base)
        if number.bit_length() > _MAX_BITS:
            return None
        found = Decimal(number)
    return found.copy_negate() if negative and found else found


def _number(item: Json) -> Json:
    """A numeric."""
    if isinstance(item, Decimal):
        return item
    if not isinstance(item, str):
        _refuse("numeric")
    if match := _INTEGER.fullmatch(item):
        whole = _whole(match[1])
        return whole if whole is not None and whole.adjusted() < MAX_DIGITS else _refuse("numeric")
    match = _NUMBER.fullmatch(item)
    if match is None:
        _refuse("numeric")
    sign, mantissa, exponent = match.groups()
    shift = int((exponent or "0").replace("_", ""))
    if abs(shift) > MAX_DIGITS + MAX_SCALE + len(mantissa):
        # Too large or too small to be stored; a zero is neither, but its scale may be.
        if shift < 0 or shift > _MAX_EXPONENT or re.search("[1-9]", mantissa):
            _refuse("numeric")
        return Decimal(0)
    found = Decimal(f"{mantissa.replace('_', '')}e{shift}")
    places = found.as_tuple().exponent
    assert isinstance(places, int)
    if -places > MAX_SCALE or (found and found.adjusted() >= MAX_DIGITS):
        _refuse("numeric")
    if places > 0:
        found = found.quantize(Decimal(1), context=EXACT) if found else Decimal(0)
    return found.copy_negate() if sign == "-" and found else found


def _boolean(item: Json) -> Json:
    """A boolean; of numbers those that are written as an integer."""
    if isinstance(item, bool):
        return item
    if isinstance(item, Decimal):
        text = f"{item:f}"
        return bool(_integer(text, 32))
    if isinstance(item, str) and item.isascii():
        word = item.lower()
        for name, value in _TRUTHS.items():
            if word and name.startswith(word) and len(word) >= (2 if name[0] == "o" else 1):
                return value
    _refuse("boolean")


def _string(item: Json) -> Json:
    """The text of a scalar, not of null."""
    if isinstance(item, str):
        return item
    return print_jsonb(item) if isinstance(item, bool | Decimal) else _refuse("text")


CONVERSIONS: Final[Mapping[str, Callable[[Json], Json]]] = MappingProxyType(
    {
        "double": _double,
        "integer": partial(_integer, size=32),
        "bigint": partial(_integer, size=64),
        "number": _number,
        "decimal": _number,
        "boolean": _boolean,
        "string": _string,
    }
)
