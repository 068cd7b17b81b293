"""Ranges and multiranges as tuples that Python compares as PostgreSQL does.

A bound is a place on the line of its subtype: ``(-1,)`` and ``(1,)`` are the ends of the line, and
``(0, value, offset)`` is just before the value (-1: an exclusive upper bound), at it (0: any
inclusive bound) or just after it (1: an exclusive lower bound). A range is ``(lower, upper)``, the
empty range ``()``; a multirange is a tuple of ranges that neither touch nor overlap, in order.
Python's order, equality and hash of such tuples are range_cmp(), multirange_cmp() and their kin.

Values of a bound are those of `gateway.pgtypes`; a numeric keeps its scale, so where two bounds
are equal it matters which of them a function takes.

Source: src/backend/utils/adt/rangetypes.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gateway.errors import ValueFormatError
from gateway.pgtypes.datetime import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    add_days,
    parse_date,
    parse_timestamp,
    parse_timestamptz,
)
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.integers import BIGINT, INTEGER, parse_integer
from gateway.pgtypes.numeric import parse_numeric

__all__ = [
    "EMPTY",
    "SUBTYPES",
    "Bound",
    "Range",
    "Subtype",
    "adjacent",
    "bounds_adjacent",
    "contains",
    "contains_element",
    "difference",
    "intersection",
    "is_inclusive",
    "lower",
    "lower_inclusive",
    "lower_infinite",
    "make_range",
    "merge",
    "overlaps",
    "parse_range",
    "read_range",
    "union",
    "upper",
    "upper_inclusive",
    "upper_infinite",
]

Bound: TypeAlias = tuple[Any, ...]
Range: TypeAlias = tuple[Bound, ...]

EMPTY: Final[Range] = ()
LOWER_INFINITE: Final[Bound] = (-1,)
UPPER_INFINITE: Final[Bound] = (1,)

_BOUND: Final = rb"(\"(?:[^\"\\]|\"\"|\\.)*\"|[^\"\\()\[\],]*)"
_RANGE = re.compile(rb"([\[(])" + _BOUND + rb"," + _BOUND + rb"([\])])", re.DOTALL)
_ESCAPED = re.compile(rb'["\\](.)', re.DOTALL)
"""A quote that is doubled, or a backslash, and what it stands for."""
_FLAGS: Final = frozenset((b"[]", b"[)", b"(]", b"()"))


@dataclass(frozen=True, slots=True)
class Subtype:
    """What a range type ranges over.

    Attributes:
        parse: Text of a value -> value.
        successor: The next value of a discrete subtype, None for a continuous one. Raises
            `EvaluationError` when there is none.
    """

    parse: Callable[[bytes], Any]
    successor: Callable[[Any], Any] | None = None


def _next_date(date: int) -> int:
    # Infinities keep their bound as it is (daterange_canonical): see `make_range`.
    return add_days(date, 1)


SUBTYPES: Final = {
    "int4range": Subtype(parse_integer, lambda value: INTEGER.add(value, 1)),
    "int8range": Subtype(parse_integer, lambda value: BIGINT.add(value, 1)),
    "numrange": Subtype(parse_numeric),
    "daterange": Subtype(parse_date, _next_date),
    "tsrange": Subtype(parse_timestamp),
    "tstzrange": Subtype(parse_timestamptz),
}
"""By ``typname`` of the range type."""


# Construction


def make_range(
    low: Any, high: Any, flags: bytes | None = b"[)", *, subtype: Subtype | None = None
) -> Range:
    """The range from `low` to `high`, None being infinite; canonical for a discrete `subtype`.

    Raises:
        EvaluationError: the bounds are in the wrong order, the flags are none, or a bound is
            beyond the subtype's range.
    """
    if flags is None:
        raise EvaluationError("range constructor flags argument must not be null")
    if flags not in _FLAGS:
        raise EvaluationError("invalid range bound flags")
    left = flags[:1] == b"["
    right = flags[1:] == b"]"
    if low is not None and high is not None:
        if low > high:
            raise EvaluationError(
                "range lower bound must be less than or equal to range upper bound"
            )
        if low == high and not (left and right):
            return EMPTY
    if subtype is not None and subtype.successor is not None:
        return _canonical(low, high, left, right, subtype)
    return _between(
        LOWER_INFINITE if low is None else (0, low, 0 if left else 1),
        UPPER_INFINITE if high is None else (0, high, 0 if right else -1),
    )


def _canonical(low: Any, high: Any, left: bool, right: bool, subtype: Subtype) -> Range:
    """A range over discrete values: lower bound inclusive, upper bound exclusive."""
    assert subtype.successor is not None
    endless = (DATE_INFINITY, DATE_MINUS_INFINITY) if subtype.parse is parse_date else ()
    if low is not None and not left and low not in endless:
        low, left = subtype.successor(low), True
    if high is not None and right and high not in endless:
        high, right = subtype.successor(high), False
    return _between(
        LOWER_INFINITE if low is None else (0, low, 0 if left else 1),
        UPPER_INFINITE if high is None else (0, high, 0 if right else -1),
    )


def _between(low: Bound, high: Bound) -> Range:
    """The range between two bounds of which the lower is not greater; maybe empty."""
    if low[0] == high[0] == 0 and low[1] == high[1] and low[2] | high[2]:
        return EMPTY
    return low, high


# Text


def read_range(text: bytes, parse: Callable[[bytes], Any]) -> Range:
    """Read a range as its output function prints it; discrete ones are printed canonical.

    Raises:
        ValueFormatError: not a range, or a bound that `parse` does not read.
    """
    found, end = parse_range(text, 0, parse)
    if end != len(text):
        raise ValueFormatError("a value does not read as a range")
    return found


def parse_range(text: bytes, at: int, parse: Callable[[bytes], Any]) -> tuple[Range, int]:
    """Read the range that begins at `at`; also where the text goes on.

    Raises:
        ValueFormatError: not a range, or a bound that `parse` does not read.
    """
    match = _RANGE.match(text, at)
    if match is None:
        if text[at : at + 5] == b"empty":
            return EMPTY, at + 5
        raise ValueFormatError("a value does not read as a range")
    opening, low, high, closing = match.groups()
    return (
        (0, parse(_bound_text(low)), 0 if opening == b"[" else 1) if low else LOWER_INFINITE,
        (0, parse(_bound_text(high)), 0 if closing == b"]" else -1) if high else UPPER_INFINITE,
    ), match.end()


def _bound_text(text: bytes) -> bytes:
    """The text of a bound without quotes."""
    if text[:1] != b'"':
        return text
    inner = text[1:-1]
    return _ESCAPED.sub(rb"\1", inner) if b'"' in inner or b"\\" in inner else inner


# Bounds


def is_inclusive(bound: Bound) -> bool:
    """The bound is finite and belongs to the range."""
    return len(bound) == 3 and bound[2] == 0


def lower(range_: Range) -> Any:
    """The lower bound; None for an empty range and an infinite bound."""
    return range_[0][1] if range_ and len(range_[0]) == 3 else None


def upper(range_: Range) -> Any:
    """The upper bound; None for an empty range and an infinite bound."""
    return range_[1][1] if range_ and len(range_[1]) == 3 else None


def lower_inclusive(range_: Range) -> bool:
    """lower_inc()."""
    return bool(range_) and is_inclusive(range_[0])


def upper_inclusive(range_: Range) -> bool:
    """upper_inc()."""
    return bool(range_) and is_inclusive(range_[1])


def lower_infinite(range_: Range) -> bool:
    """lower_inf()."""
    return bool(range_) and len(range_[0]) == 1


def upper_infinite(range_: Range) -> bool:
    """upper_inf()."""
    return bool(range_) and len(range_[1]) == 1


def _as_lower(bound: Bound) -> Bound:
    """The lower bound that begins where the upper `bound` ends, itself excluded from that."""
    return (0, bound[1], 0 if bound[2] else 1)


def _as_upper(bound: Bound) -> Bound:
    """The upper bound that ends where the lower `bound` begins."""
    return (0, bound[1], 0 if bound[2] else -1)


# Predicates


def contains(range_: Range, other: Range) -> bool:
    """``@>`` of two ranges."""
    if not other:
        return True
    return bool(range_) and range_[0] <= other[0] and other[1] <= range_[1]


def contains_element(range_: Range, value: Any) -> bool:
    """``@>`` of a range and a value of its subtype."""
    if not range_:
        return False
    low, high = range_
    place = (0, value, 0)
    return low <= place <= high


def overlaps(left: Range, right: Range) -> bool:
    """``&&``."""
    return bool(left and right) and left[0] <= right[1] and right[0] <= left[1]


def bounds_adjacent(high: Bound, low: Bound) -> bool:
    """An upper and a lower bound at the same value, one of them inclusive."""
    return (len(high) == 3 and len(low) == 3 and (high[2] == 0) is not (low[2] == 0)) and bool(
        high[1] == low[1]
    )


def adjacent(left: Range, right: Range) -> bool:
    """``-|-``."""
    if not (left and right):
        return False
    return bounds_adjacent(left[1], right[0]) or bounds_adjacent(right[1], left[0])


# Set operations


def merge(left: Range, right: Range) -> Range:
    """range_merge(): the smallest range that includes both."""
    if not left:
        return right
    if not right:
        return left
    return (
        left[0] if left[0] < right[0] else right[0],
        left[1] if left[1] > right[1] else right[1],
    )


def union(left: Range, right: Range) -> Range:
    """``+``.

    Raises:
        EvaluationError: there is a gap between them.
    """
    if left and right and not overlaps(left, right) and not adjacent(left, right):
        raise EvaluationError("result of range union would not be contiguous")
    return merge(left, right)


def intersection(left: Range, right: Range) -> Range:
    """``*``."""
    if not overlaps(left, right):
        return EMPTY
    return _between(
        left[0] if left[0] >= right[0] else right[0],
        left[1] if left[1] <= right[1] else right[1],
    )


def difference(left: Range, right: Range) -> Range:
    """``-``.

    Raises:
        EvaluationError: what is left lies on both sides of `right`.
    """
    if not (left and right):
        return left
    if left[0] < right[0] and left[1] > right[1]:
        raise EvaluationError("result of range difference would not be contiguous")
    if left[0] > right[1] or left[1] < right[0]:
        return left
    if left[0] >= right[0] and left[1] <= right[1]:
        return EMPTY
    if left[1] <= right[1]:
        return _between(left[0], _as_upper(right[0]))
    return _between(_as_lower(right[1]), left[1])
