"""Parts of text: positions count characters, from 1. Text is UTF-8 in bytes.

Source: src/backend/utils/adt/varlena.c, oracle_compat.c; manual, "String Functions and Operators".
"""

from __future__ import annotations

from typing import Final

from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "clip",
    "left",
    "length",
    "overlay",
    "pad_left",
    "pad_right",
    "position",
    "repeat",
    "replace",
    "reverse",
    "right",
    "split",
    "split_part",
    "substring",
    "translate",
    "trim_both",
    "trim_left",
    "trim_right",
]

_INT_MIN: Final = -(2**31)
_MAX_ALLOCATION: Final = 0x3FFFFFFF
"""MaxAllocSize: no value is longer than this, in bytes, its four bytes of length included."""
_NEGATIVE_LENGTH: Final = "negative substring length not allowed"
_TOO_LARGE: Final = "requested length too large"


def length(value: bytes) -> int:
    """The number of characters."""
    return len(value) if value.isascii() else len(value.decode())


def clip(value: bytes, size: int) -> bytes:
    """The first `size` characters."""
    if len(value) <= size:
        return value
    return value[:size] if value.isascii() else value.decode()[:size].encode()


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


def overlay(value: bytes, new: bytes, start: int, size: int | None = None) -> bytes:
    """``overlay(value PLACING new FROM start FOR size)``; `size` is the length of `new`.

    Raises:
        EvaluationError: `start` is not positive, or the end is out of range.
    """
    if start <= 0:
        raise EvaluationError(_NEGATIVE_LENGTH)
    end = start + (length(new) if size is None else size)
    if not _INT_MIN <= end < 2**31:
        raise EvaluationError("integer out of range")
    return substring(value, 1, start - 1) + new + substring(value, end)


def position(value: bytes, part: bytes) -> int:
    """Where `part` is first found, 0 when it is not."""
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


def _padding(text: str, size: int, fill: str) -> tuple[str, str]:
    """`text` cut to `size`, and what is missing."""
    text = text[: max(size, 0)]
    size = max(size, 0) if fill else len(text)
    if 4 * size + 4 > _MAX_ALLOCATION:
        raise EvaluationError(_TOO_LARGE)
    missing = size - len(text)
    return text, (fill * (missing // len(fill) + 1))[:missing] if missing else ""


def pad_left(value: bytes, size: int, fill: bytes = b" ") -> bytes:
    """Filled up from the left with `fill` to `size` characters, or cut to as many.

    Raises:
        EvaluationError: it would be too long.
    """
    text, padding = _padding(value.decode(), size, fill.decode())
    return (padding + text).encode()


def pad_right(value: bytes, size: int, fill: bytes = b" ") -> bytes:
    """Filled up from the right with `fill` to `size` characters, or cut to as many.

    Raises:
        EvaluationError: it would be too long.
    """
    text, padding = _padding(value.decode(), size, fill.decode())
    return (text + padding).encode()


def repeat(value: bytes, count: int) -> bytes:
    """`value` as often as `count` says.

    Raises:
        EvaluationError: it would be too long.
    """
    count = max(count, 0)
    if len(value) * count + 4 > _MAX_ALLOCATION:
        raise EvaluationError(_TOO_LARGE)
    return value * count


def replace(value: bytes, old: bytes, new: bytes) -> bytes:
    """`value` with `new` for every `old`, from the left."""
    return value.replace(old, new) if old else value


def translate(value: bytes, old: bytes, new: bytes) -> bytes:
    """Each character of `old` becomes the one of `new` in its place, or nothing."""
    target = new.decode()
    table: dict[int, str | None] = {}
    for place, character in enumerate(old.decode()):
        table.setdefault(ord(character), target[place] if place < len(target) else None)
    return value.decode().translate(table).encode()


def reverse(value: bytes) -> bytes:
    """From the last character to the first."""
    return value.decode()[::-1].encode()


def split_part(value: bytes, separator: bytes, number: int) -> bytes:
    """The field `number`, counted from 1, or from -1 at the end; empty when there is none.

    Raises:
        EvaluationError: `number` is 0.
    """
    if number == 0:
        raise EvaluationError("field position must not be zero")
    fields = value.split(separator) if separator else [value]
    place = number - 1 if number > 0 else len(fields) + number
    return fields[place] if 0 <= place < len(fields) else b""


def split(
    value: bytes | None, separator: bytes | None, null: bytes | None = None
) -> list[bytes | None] | None:
    """``string_to_array``: the fields, or all characters if `separator` is None.

    A field that equals `null` becomes None.
    """
    if value is None:
        return None
    fields: list[bytes]
    if not value:
        fields = []
    elif separator is None:
        fields = [character.encode() for character in value.decode()]
    else:
        fields = value.split(separator) if separator else [value]
    return [None if field == null else field for field in fields]
