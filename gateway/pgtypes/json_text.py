"""json: documents that stay the text they were written as, white space and repeated keys included.

A value is the text in UTF-8, which the server has found to be JSON when it was stored. Escapes
are looked at only when a function takes the document apart: then one that no text can hold fails,
wherever in the document it stands.

Source: src/backend/utils/adt/jsonfuncs.c (get_worker, json_strip_nulls), src/common/jsonapi.c.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.jsonb import MAX_DEPTH, exceeds_depth, print_jsonb
from gateway.pgtypes.jsonb_access import INT_MIN, parse_subscript

__all__ = [
    "array_length",
    "element",
    "element_text",
    "field",
    "field_text",
    "object_of_pairs",
    "path",
    "path_text",
    "read_json",
    "strip_nulls",
    "typeof",
]

_BLANKS = re.compile(r"[ \t\n\r]*")
_ESCAPE = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_INVALID: Final = "invalid input syntax for type json"
_UNSUPPORTED: Final = "unsupported Unicode escape sequence"
_TYPES: Final = {"{": b"object", "[": b"array", '"': b"string", "t": b"boolean", "f": b"boolean",
                 "n": b"null"}  # fmt: skip

# Numbers stay text: only where a value ends is asked, and of strings what they say.
_decoder: Final = json.JSONDecoder(parse_float=str, parse_int=str)
_scan: Final = _decoder.scan_once  # type: ignore[attr-defined]
_load: Final = _decoder.decode


def read_json(text: bytes) -> bytes:
    """A json stays the text that it is.

    Raises:
        ValueFormatError: nested more than `MAX_DEPTH` levels deep.
    """
    if len(text) > 2 * MAX_DEPTH and exceeds_depth(text):
        raise ValueFormatError(f"a json value is nested more than {MAX_DEPTH} levels deep")
    return text


def _skip(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    assert match is not None
    return match.end()


def _check_escapes(text: bytes) -> None:
    """Raise for the first escape that text cannot hold: NUL, half of a surrogate pair."""
    if b"\\u" not in text:
        return
    awaits_low, end = False, 0
    for match in _ESCAPE.finditer(text):
        code = -1 if match[1] is None else int(match[1], 16)
        if awaits_low and (match.start() != end or not 0xDC00 <= code <= 0xDFFF):
            raise EvaluationError(_INVALID)
        if 0xDC00 <= code <= 0xDFFF and not awaits_low:
            raise EvaluationError(_INVALID)
        if code == 0:
            raise EvaluationError(_UNSUPPORTED)
        awaits_low, end = 0xD800 <= code <= 0xDBFF, match.end()
    if awaits_low:
        raise EvaluationError(_INVALID)


def _unescaped(text: bytes) -> str:
    _check_escapes(text)
    return text.decode()


# Walking over containers


def _members(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """Key, start and end of the value of each member of the object that begins at `at`."""
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = scanstring(text, at + 1)
        start = _skip(text, _skip(text, at) + 1)
        end = _scan(text, start)[1]
        yield key, start, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _items(text: str, at: int) -> Iterator[tuple[int, int]]:
    """Start and end of each element of the array that begins at `at`."""
    at = _skip(text, at + 1)
    while text[at] != "]":
        end = _scan(text, at)[1]
        yield at, end
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


# Fields, elements and paths


class _Search:
    """Finds the last value at a path, in the order of the text, as get_worker() does."""

    def __init__(self, text: str, names: Sequence[str | None], indexes: list[int]) -> None:
        self.text, self.names, self.indexes = text, names, indexes
        self.found: tuple[int, int] | None = None

    def visit(self, start: int, end: int, level: int, *, on_path: bool) -> None:
        """Look into the value between `start` and `end`; `on_path`: so far all steps matched."""
        if level == len(self.names):
            if on_path:
                self.found = (start, end)
            return
        opening = self.text[start]
        if opening == "{":
            for key, at, to in _members(self.text, start):
                self.visit(at, to, level + 1, on_path=on_path and key == self.names[level])
        elif opening == "[":
            items = list(_items(self.text, start))
            # A negative step counts from the end of the first array that is met at its level,
            # whether that one is on the path or not; from then on it counts from the start.
            if INT_MIN < self.indexes[level] < 0 and -self.indexes[level] <= len(items):
                self.indexes[level] += len(items)
            for number, (at, to) in enumerate(items):
                matches = on_path and number == self.indexes[level]
                self.visit(at, to, level + 1, on_path=matches)


def _find(value: bytes, names: Sequence[str | None], indexes: list[int]) -> str | None:
    """The text of what is found at the path."""
    text = _unescaped(value)
    start = _skip(text, 0)
    end = _scan(text, start)[1]
    if not names:
        # Of a scalar the blanks before it belong to the result.
        return text[start if text[start] in "{[" else 0 : end]
    search = _Search(text, names, indexes)
    search.visit(start, end, 0, on_path=True)
    return None if search.found is None else text[slice(*search.found)]


def _encoded(found: str | None) -> bytes | None:
    return None if found is None else found.encode()


def _as_text(found: str | None) -> bytes | None:
    """What ``->>`` gives: a string without quotes and escapes, None for null."""
    if found is None:
        return None
    start = _skip(found, 0)
    if found[start] == '"':
        value: str = scanstring(found, start + 1)[0]
        return value.encode()
    return None if found[start:] == "null" else found.encode()


def _find_path(value: bytes, steps: Sequence[bytes | None]) -> str | None:
    names = [step.decode() for step in steps if step is not None]
    if len(names) < len(steps):
        return None
    subscripts = [parse_subscript(name.encode()) for name in names]
    return _find(value, names, [INT_MIN if n is None else n for n in subscripts])


def field(value: bytes, key: bytes) -> bytes | None:
    """``-> text``."""
    return _encoded(_find(value, (key.decode(),), [INT_MIN]))


def field_text(value: bytes, key: bytes) -> bytes | None:
    """``->> text``."""
    # Of a scalar no more than its value is needed, and that is found without walking.
    whole = _load(_unescaped(value))
    found = whole.get(key.decode()) if isinstance(whole, dict) else None
    if isinstance(found, str):  # numbers, too
        return found.encode()
    if found is None or isinstance(found, bool):
        return None if found is None else b"true" if found else b"false"
    return _as_text(_find(value, (key.decode(),), [INT_MIN]))


def element(value: bytes, index: int) -> bytes | None:
    """``-> integer``; a negative index counts from the end."""
    return _encoded(_find(value, (None,), [index]))


def element_text(value: bytes, index: int) -> bytes | None:
    """``->> integer``."""
    return _as_text(_find(value, (None,), [index]))


def path(value: bytes, steps: Sequence[bytes | None]) -> bytes | None:
    """``#>`` and json_extract_path()."""
    return _encoded(_find_path(value, steps))


def path_text(value: bytes, steps: Sequence[bytes | None]) -> bytes | None:
    """``#>>`` and json_extract_path_text()."""
    return _as_text(_find_path(value, steps))


# Others


def typeof(value: bytes) -> bytes:
    """json_typeof(): decided by the first character, so no escape is looked at."""
    text = value.lstrip(b" \t\n\r")[:1].decode()
    return _TYPES.get(text, b"number")


def array_length(value: bytes) -> int:
    """json_array_length().

    Raises:
        EvaluationError: it is not an array.
    """
    kind = typeof(value)
    if kind != b"array":
        raise EvaluationError(
            f"cannot get array length of a {'non-array' if kind == b'object' else 'scalar'}"
        )
    return len(_scan(value.decode(), _skip(value.decode(), 0))[0])


def strip_nulls(value: bytes, in_arrays: bool = False) -> bytes:
    """json_strip_nulls(): also drops white space and writes every string anew."""
    text = _unescaped(value)

    def strip(start: int, end: int) -> str:
        kept: list[str]
        match text[start]:
            case "{":
                members = list(_members(text, start))
                kept = [
                    f"{print_jsonb(key)}:{strip(at, to)}"
                    for key, at, to in members
                    if text[at:to] != "null"
                ]
                return f"{{{','.join(kept)}}}"
            case "[":
                items = list(_items(text, start))
                kept = [
                    strip(at, to) for at, to in items if not (in_arrays and text[at:to] == "null")
                ]
                return f"[{','.join(kept)}]"
            case '"':
                return print_jsonb(scanstring(text, start + 1)[0])
        return text[start:end]

    start = _skip(text, 0)
    return strip(start, _scan(text, start)[1]).encode()


def object_of_pairs(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> bytes:
    """json_object(): as written, keys may repeat.

    Raises:
        EvaluationError: a key is NULL.
    """
    pairs: list[str] = []
    for key, item in zip(keys, values, strict=True):
        if key is None:
            raise EvaluationError("null value not allowed for object key")
        shown: Any = None if item is None else item.decode()
        pairs.append(f"{print_jsonb(key.decode())} : {print_jsonb(shown)}")
    return f"{{{', '.join(pairs)}}}".encode()
