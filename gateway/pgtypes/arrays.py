"""Constant arrays, for IN, ANY and ALL.

Source: src/backend/utils/adt/arrayfuncs.c (array_in).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from gateway.core.errors import ValueFormatError

__all__ = ["Array", "parse_array"]


@dataclass(frozen=True, slots=True)
class Array:
    """Items of an array, the last subscript running fastest; None is NULL."""

    items: tuple[Any, ...]


def parse_array(text: bytes, parse: Callable[[bytes], Any]) -> Array:
    """Read an array of any number of dimensions as its output function prints it.

    Raises:
        ValueFormatError: it cannot be parsed.
    """
    at = text.find(b"=") + 1 if text[:1] == b"[" else 0
    if text[at : at + 1] != b"{":
        _refuse()
    items: list[Any] = []
    depth = 0
    while at < len(text):
        byte = text[at : at + 1]
        if byte == b"{":
            depth += 1
        elif byte == b"}":
            depth -= 1
        elif byte == b'"':
            item, at = _quoted(text, at + 1)
            items.append(parse(item))
            continue
        elif byte != b",":
            end = at
            while text[end : end + 1] not in (b",", b"}", b""):
                end += 1
            item = text[at:end]
            items.append(None if item == b"NULL" else parse(item))
            at = end
            continue
        at += 1
        if not depth:
            break
    if depth or at != len(text):
        _refuse()
    return Array(tuple(items))


def _quoted(text: bytes, at: int) -> tuple[bytes, int]:
    """Return the element whose opening quote is before `at`, and where the text goes on."""
    item = bytearray()
    while at < len(text):
        if text[at] == 0x22:
            return bytes(item), at + 1
        if text[at] == 0x5C:
            at += 1
        item += text[at : at + 1]
        at += 1
    _refuse()


def _refuse() -> NoReturn:
    raise ValueFormatError("a value does not read as an array")
