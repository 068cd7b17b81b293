"""Parts of text: positions count characters, from 1. Text is UTF-8 in bytes.

Source: src/backend/utils/adt/varlena.c, oracle_compat.c; manual, "String Functions and Operators".
"""

from __future__ import annotations

from typing import Final

from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "left",
    "length",
    "position",
    "replace",
    "right",
    "substring",
    "trim_both",
    "trim_left",
    "trim_right",
]

_INT_MIN: Final = -(2**31)
_NEGATIVE_LENGTH: Final = "negative substring length not allowed"


def length(value: bytes) -> int:
    """The number of characters."""
    return len(value) if value.isascii() else len(value.decode())


def bounds(start: int, size: int | None) -> tuple[int, int | None]:
    """The slice that a substring from `start` of `size` is; places before the first count.

    Raises:
        EvaluationError: `size` is negative.
    """
    if size is None:
        return max(start - 1, 0), None
    if size < 0:
        raise EvaluationError(_NEGATIVE_LENGTH)
    return max(start - 1, 0), max(start - 1 + size, 0)


def substring(value: bytes, start: int, size: int | None = None) -> bytes:
    """``substring(value FROM start FOR size)``."""
    first, last = bounds(start, size)
    return value[first:last] if value.isascii() else value.decode()[first:last].encode()


def left(value: bytes, count: int) -> bytes:
    """The first characters; all but the last ones if `count` is negative."""
    return value.decode()[:count].encode()


def right(value: bytes, count: int) -> bytes:
    """The last characters; all but the first ones if `count` is negative."""
    text = value.decode()
    if count == _INT_MIN:  # text_right() overflows when it turns the sign
        return value
    return text[-count if count < 0 else max(len(text) - count, 0) :].encode()


def position(value: bytes, part: bytes) -> int:
    """Return the position of the first `part`, 0 if there is none."""
    at = value.find(part)
    return 0 if at < 0 else length(value[:at]) + 1


def trim_both(value: bytes, characters: bytes = b" ") -> bytes:
    """Without any of `characters` at both ends."""
    return value.decode().strip(characters.decode()).encode() if characters else value


def trim_left(value: bytes, characters: bytes = b" ") -> bytes:
    """Without any of `characters` at the start."""
    return value.decode().lstrip(characters.decode()).encode() if characters else value


def trim_right(value: bytes, characters: bytes = b" ") -> bytes:
    """Without any of `characters` at the end."""
    return value.decode().rstrip(characters.decode()).encode() if characters else value


def replace(value: bytes, old: bytes, new: bytes) -> bytes:
    """`value` with `new` for every `old`, from the left."""
    return value.replace(old, new) if old else value
