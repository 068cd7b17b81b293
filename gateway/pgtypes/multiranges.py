"""Multiranges: sets of values as tuples of ranges (see `gateway.pgtypes.ranges`).

The ranges of a multirange are not empty, neither touch nor overlap, and stand in order; so its
first lower and its last upper bound are those of the whole.

Source: src/backend/utils/adt/multirangetypes.c.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from gateway.errors import ValueFormatError
from gateway.pgtypes import ranges
from gateway.pgtypes.ranges import Range

__all__ = [
    "Multirange",
    "adjacent",
    "contains_element",
    "contains_multirange",
    "contains_range",
    "difference",
    "intersection",
    "make_multirange",
    "overlaps",
    "read_multirange",
    "span",
    "union",
]

Multirange: TypeAlias = tuple[Range, ...]


def read_multirange(text: bytes, parse: Callable[[bytes], Any]) -> Multirange:
    """Read a multirange as its output function prints it.

    Raises:
        ValueFormatError: not a multirange, or a bound that `parse` does not read.
    """
    found: list[Range] = []
    at = 1
    while text[at : at + 1] not in (b"}", b""):
        part, at = ranges.parse_range(text, at, parse)
        found.append(part)
        if text[at : at + 1] == b",":
            at += 1
    if text[:1] != b"{" or at != len(text) - 1:
        raise ValueFormatError("a value does not read as a multirange")
    return tuple(found)


def make_multirange(parts: Iterable[Range]) -> Multirange:
    """The multirange of any ranges: sorted, joined where they touch, without empty ones."""
    found: list[Range] = []
    for part in sorted(filter(None, parts)):
        if found and (ranges.overlaps(found[-1], part) or ranges.adjacent(found[-1], part)):
            found[-1] = ranges.merge(found[-1], part)
        else:
            found.append(part)
    return tuple(found)


def span(value: Multirange) -> Range:
    """range_merge(): the smallest range that includes all."""
    return (value[0][0], value[-1][1]) if value else ranges.EMPTY


# Predicates


def _at(value: Multirange, place: ranges.Bound) -> Range:
    """The last range that begins at or before `place`, or the empty range."""
    number = bisect_right(value, place, key=lambda part: part[0])
    return value[number - 1] if number else ranges.EMPTY


def contains_element(value: Multirange, element: Any) -> bool:
    """``@>`` of a multirange and a value of its subtype."""
    return ranges.contains_element(_at(value, (0, element, 0)), element)


def contains_range(value: Multirange, part: Range) -> bool:
    """``@>`` of a multirange and a range."""
    return not part or ranges.contains(_at(value, part[0]), part)


def contains_multirange(value: Multirange, other: Multirange) -> bool:
    """``@>`` of two multiranges."""
    return all(contains_range(value, part) for part in other)


def overlaps(left: Multirange, right: Multirange) -> bool:
    """``&&``; a range stands for the multirange of it."""
    if len(left) > len(right):
        left, right = right, left
    return any(ranges.overlaps(_at(right, part[1]), part) for part in left)


def adjacent(left: Multirange, right: Multirange) -> bool:
    """``-|-``: one ends where the other begins."""
    return ranges.adjacent(span(left), span(right))


# Set operations


def union(left: Multirange, right: Multirange) -> Multirange:
    """``+``."""
    if not left or not right:
        return left or right
    return make_multirange((*left, *right))


def intersection(left: Multirange, right: Multirange) -> Multirange:
    """``*``."""
    found = []
    a = b = 0
    while a < len(left) and b < len(right):
        if common := ranges.intersection(left[a], right[b]):
            found.append(common)
        # Who ends first is done; where both end together, both are.
        ends, others = left[a][1], right[b][1]
        a += ends <= others
        b += others <= ends
    return make_multirange(found)


def difference(left: Multirange, right: Multirange) -> Multirange:
    """``-``."""
    found = []
    for part in left:
        rest = part
        for other in right:
            if not rest or rest[1] < other[0]:
                break
            if not ranges.overlaps(rest, other):
                continue
            if rest[0] < other[0]:
                before, rest = _split(rest, other)
                found.append(before)
            else:
                rest = ranges.difference(rest, other)
        if rest:
            found.append(rest)
    return make_multirange(found)


def _split(range_: Range, other: Range) -> tuple[Range, Range]:
    """What of `range_` lies before and what lies after `other`."""
    before = ranges.difference(range_, (other[0], ranges.UPPER_INFINITE))
    after = ranges.difference(range_, (ranges.LOWER_INFINITE, other[1]))
    return before, after
