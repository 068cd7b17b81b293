"""Text of PostgreSQL's ranges and multiranges: the bounds of a range, the ranges of a multirange.

Source: range_out, range_deparse in rangetypes.c; multirange_out in multirangetypes.c.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["multirange_ranges", "range_bounds"]

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


def multirange_ranges(text: bytes) -> list[bytes]:
    """Return the ranges of a multirange in order, each as its own type prints it.

    Raises:
        ValueError: PostgreSQL does not print such text.
    """
    if text == b"{}":
        return []
    ranges: list[bytes] = []
    end = 0
    while text[end : end + 1] == (b"," if ranges else b"{"):
        if (found := _RANGE.match(text, end + 1)) is None:
            break
        ranges.append(found[0])
        end = found.end()
    if not ranges or text[end:] != b"}":
        raise ValueError("not a multirange")
    return ranges


def _bound(quoted: bytes | None, plain: bytes | None) -> bytes | None:
    return (plain or None) if quoted is None else _ESCAPED.sub(rb"\1\2", quoted)
