"""What is in a jsonb document: fields, elements, paths, containment, keys.

Source: src/backend/utils/adt/jsonfuncs.c, jsonb_op.c, jsonb_util.c (JsonbDeepContains).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonb import Json, Jsonb, as_text, is_scalar, type_of

__all__ = [
    "array_length",
    "contains",
    "element",
    "element_text",
    "exists",
    "exists_all",
    "exists_any",
    "field",
    "field_text",
    "parse_subscript",
    "path",
    "path_text",
    "typeof",
]

INT_MIN: Final = -(2**31)

_MISSING: Final = object()
_SUBSCRIPT = re.compile(rb"[ \t\n\v\f\r]*([+-]?[0-9]+)")


def parse_subscript(text: bytes) -> int | None:
    """The integer that a path element says, None when it says none (strtoint)."""
    match = _SUBSCRIPT.fullmatch(text)
    if match is None:
        return None
    digits = match[1]
    if len(digits) > 11 and len(digits.lstrip(b"+-0")) > 10:
        return None
    number = int(digits[:1] + digits[1:].lstrip(b"0") if len(digits) > 11 else digits)
    return number if INT_MIN <= number < 2**31 else None


def typeof(document: Jsonb) -> bytes:
    """jsonb_typeof()."""
    return type_of(document.value).encode()


def array_length(document: Jsonb) -> int:
    """jsonb_array_length().

    Raises:
        EvaluationError: it is not an array.
    """
    value = document.value
    if isinstance(value, list):
        return len(value)
    kind = "non-array" if isinstance(value, dict) else "scalar"
    raise EvaluationError(f"cannot get array length of a {kind}")


# One step


def _field(document: Jsonb, key: bytes) -> Json:
    value = document.value
    return value.get(key.decode(), _MISSING) if isinstance(value, dict) else _MISSING


def _element(document: Jsonb, index: int) -> Json:
    value = document.value
    if isinstance(value, dict):
        return _MISSING
    items = value if isinstance(value, list) else [value]  # a scalar counts as its own element
    return items[index] if -len(items) <= index < len(items) else _MISSING


def field(document: Jsonb, key: bytes) -> Jsonb | None:
    """``-> text``."""
    found = _field(document, key)
    return None if found is _MISSING else Jsonb(found)


def field_text(document: Jsonb, key: bytes) -> bytes | None:
    """``->> text``."""
    found = _field(document, key)
    return None if found is _MISSING else as_text(found)


def element(document: Jsonb, index: int) -> Jsonb | None:
    """``-> integer``; a negative index counts from the end."""
    found = _element(document, index)
    return None if found is _MISSING else Jsonb(found)


def element_text(document: Jsonb, index: int) -> bytes | None:
    """``->> integer``."""
    found = _element(document, index)
    return None if found is _MISSING else as_text(found)


# Paths


def _at_path(document: Jsonb, steps: Sequence[bytes | None]) -> Json:
    if None in steps:
        return _MISSING
    value = document.value
    for step in steps:
        assert step is not None
        if isinstance(value, dict):
            value = value.get(step.decode(), _MISSING)
        elif isinstance(value, list):
            index = parse_subscript(step)
            if index is None or not -len(value) <= index < len(value):
                return _MISSING
            value = value[index]
        else:
            return _MISSING
        if value is _MISSING:
            return _MISSING
    return value


def path(document: Jsonb, steps: Sequence[bytes | None]) -> Jsonb | None:
    """``#>`` and jsonb_extract_path()."""
    found = _at_path(document, steps)
    return None if found is _MISSING else Jsonb(found)


def path_text(document: Jsonb, steps: Sequence[bytes | None]) -> bytes | None:
    """``#>>`` and jsonb_extract_path_text()."""
    found = _at_path(document, steps)
    return None if found is _MISSING else as_text(found)


# Keys and containment


def exists(document: Jsonb, key: bytes) -> bool:
    """``?``: a key of the object, a string of the array, or the string itself."""
    value, wanted = document.value, key.decode()
    if isinstance(value, dict | list):
        return wanted in value
    return bool(value == wanted)


def exists_any(document: Jsonb, keys: Sequence[bytes | None]) -> bool:
    """``?|``; NULLs among the keys do not count."""
    return any(exists(document, key) for key in keys if key is not None)


def exists_all(document: Jsonb, keys: Sequence[bytes | None]) -> bool:
    """``?&``; NULLs among the keys do not count."""
    return all(exists(document, key) for key in keys if key is not None)


def contains(document: Jsonb, part: Jsonb) -> bool:
    """``@>``: an array at the top contains a scalar as if it were an array of it."""
    value, wanted = document.value, part.value
    if isinstance(value, dict) is not isinstance(wanted, dict):
        return False
    if is_scalar(wanted):
        items = [value] if is_scalar(value) else value
        return any(_equal_scalars(item, wanted) for item in items)
    return not is_scalar(value) and _contains(value, wanted)


def _equal_scalars(left: Json, right: Json) -> bool:
    return type(left) is type(right) and bool(left == right)


def _contains(value: Json, part: Json) -> bool:
    """Of two objects or two arrays. Without generators: nesting costs one frame a level."""
    if isinstance(part, dict):
        if len(value) < len(part):
            return False
        for key, wanted in part.items():
            item = value.get(key, _MISSING)
            if type(item) is not type(wanted):
                return False
            if not (item == wanted if is_scalar(wanted) else _contains(item, wanted)):
                return False
        return True
    for wanted in part:
        for item in value:
            if type(item) is type(wanted) and (
                item == wanted if is_scalar(wanted) else _contains(item, wanted)
            ):
                break
        else:
            return False
    return True
