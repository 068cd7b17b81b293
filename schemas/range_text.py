"""Text of PostgreSQL's ranges: the bounds of one.

Source: range_out, range_deparse in rangetypes.c.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["range_bounds"]

_BOUND: Final = rb'(?:"((?:[^"\\]++|""|\\.)*+)"|([^",()\[\]\\]*+))'
_RANGE: Final = re.compile(rb"([\[(])" + _BOUND + rb"," + _BOUND + rb"([\])])", re.DOTALL)
_ESCAPED: Final = re.compile(rb'"(")|\\(.)', re.DOTALL)


def range_bounds(text: bytes) -> tuple[bytes | None, bytes | None, bool, bool] | None:
    """Return the lower and the upper bound, and whether each is included; None for ``empty``.

    A bound is as its own type prints it, or None where the range has no end.

    Raises:
        ValueError: PostgreSQL does not print such text.
    """
    if text == b"empty":
        return None
    if (found := _RANGE.fullmatch(text)) is None:
        raise ValueError("not a range")
    begin, *parts, end = found.groups()
    lower, upper = (_bound(*parts[at : at + 2]) for at in (0, 2))
    return lower, upper, begin == b"[", end == b"]"


def _bound(quoted: bytes | None, plain: bytes | None) -> bytes | None:
    return (plain or None) if quoted is None else _ESCAPED.sub(rb"\1\2", quoted)
