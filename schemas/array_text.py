"""Text of PostgreSQL's one-dimensional arrays: the items of one.

Source: array_out in arrayfuncs.c.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["NotPlainError", "array_items"]

_ITEM: Final = re.compile(rb'(?:"((?:[^"\\]|\\.)*+)"|([^",{}\\]++))(,|\}\Z)', re.DOTALL)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)
_MARKS: Final = b'{}"\\'
"""Characters that no array has beside its own braces if it can be split at commas."""
_BEGIN, _END = b"{}"


class NotPlainError(ValueError):
    """An array of several dimensions, or with another lower bound than 1."""


def array_items(text: bytes) -> list[bytes | None]:
    """Return the items of an array in order, each as its own type prints it; None is NULL.

    Args:
        text: Text as PostgreSQL prints it, with commas between the items.

    Raises:
        NotPlainError: it has more dimensions, or begins with another subscript.
        ValueError: PostgreSQL does not print such text.
    """
    if (
        len(text.translate(None, _MARKS)) == len(text) - 2
        and text[0] == _BEGIN
        and text[-1] == _END
    ):
        parts = text[1:-1].split(b",")
        if b"" in parts:
            if len(text) == 2:
                return []
            raise ValueError("not an array")
        return [None if part == b"NULL" else part for part in parts]
    if text[:1] == b"[" or text[:2] == b"{{":
        raise NotPlainError("more than one dimension, or a lower bound other than 1")
    if text[:1] != b"{":
        raise ValueError("not an array")
    items: list[bytes | None] = []
    at = 1
    while at < len(text):
        found = _ITEM.match(text, at)
        if found is None:
            break
        quoted, plain, _ = found.groups()
        if quoted is not None:
            items.append(_ESCAPED.sub(rb"\1", quoted) if b"\\" in quoted else quoted)
        else:
            items.append(None if plain == b"NULL" else plain)
        at = found.end()
        if at == len(text) and text[at - 1 :] == b"}":
            return items
    raise ValueError("not an array")
