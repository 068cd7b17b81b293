"""Ranges and multiranges; expected values come from a server, or from sets of integers."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ValueFormatError
from gateway.pgtypes import multiranges, ranges
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.integers import parse_integer
from gateway.pgtypes.multiranges import Multirange, make_multirange, read_multirange
from gateway.pgtypes.numeric import parse_numeric
from gateway.pgtypes.ranges import EMPTY, SUBTYPES, Range, make_range, read_range

INT4, DATE = SUBTYPES["int4range"], SUBTYPES["daterange"]
LIMIT = 12


def ints(text: str) -> Range:
    return read_range(text.encode(), parse_integer)


def numbers(text: str) -> Range:
    return read_range(text.encode(), parse_numeric)


def test_bounds_are_read_with_their_quotes() -> None:
    def as_is(text: bytes) -> bytes:
        return text

    found = read_range(rb'["a ""b\\","(,)")', as_is)
    assert ranges.lower(found) == rb'a "b\\'.replace(rb"\\", b"\\")
    assert ranges.upper(found) == b"(,)"
    assert read_range(b'["",)', as_is) == ((0, b"", 0), (1,))


@pytest.mark.parametrize("text", ["", "[1,2", "1,2)", "[1;2)", "[1)", "[1,2)x", "[a,b)", '["1,2)'])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueFormatError):
        ints(text)


@pytest.mark.parametrize("text", ["", "{", "[1,2)", "{[1,2)", "{[1,2)}x", "{[1,2);[3,4)}", "}"])
def test_what_is_no_multirange_is_refused(text: str) -> None:
    with pytest.raises(ValueFormatError):
        read_multirange(text.encode(), parse_integer)


def test_the_order_is_that_of_range_cmp() -> None:
    texts = ["empty", "(,1)", "(,1]", "(,)", "[1,2)", "[1,2]", "[1,)", "(1,2)", "(1,)", "[2,2]"]

    found = [numbers(text) for text in texts]
    backwards = found[::-1]
    assert sorted(backwards) == found


def test_a_numeric_bound_keeps_its_scale() -> None:
    assert str(ranges.upper(numbers("[1.0,2.50)"))) == "2.50"
    assert numbers("[1.0,2.50)") == numbers("[1,2.5)")
    # Of equal bounds a union takes those of the right side, an intersection those of the left.
    assert str(ranges.lower(ranges.union(numbers("[1.0,2]"), numbers("[1.00,3]")))) == "1.00"
    assert str(ranges.lower(ranges.intersection(numbers("[1.0,2]"), numbers("[1.00,3]")))) == "1.0"


@pytest.mark.parametrize(
    ("low", "high", "flags", "text"),
    [
        (1, 5, b"[)", "[1,5)"),
        (1, 5, b"(]", "[2,6)"),
        (1, 2, b"()", "empty"),
        (1, 1, b"[]", "[1,2)"),
        (None, 5, b"[]", "(,6)"),
        (1, None, b"(]", "[2,)"),
        (None, None, b"[]", "(,)"),
    ],
)
def test_discrete_ranges_are_made_canonical(
    low: int | None, high: int | None, flags: bytes, text: str
) -> None:
    made = make_range(low, high, flags, subtype=INT4)
    # int4range(1, 2, '()') has no value, but its canonical form is [2,2): empty as well.
    assert made == (ints(text) if text != "empty" else EMPTY)


@pytest.mark.parametrize(
    ("low", "high", "flags", "message"),
    [
        (2, 1, b"[)", "range lower bound must be less than or equal to range upper bound"),
        (1, 2, None, "range constructor flags argument must not be null"),
        (1, 2, b"[", "invalid range bound flags"),
        (1, 2147483647, b"[]", "integer out of range"),
        (2147483647, None, b"(]", "integer out of range"),
    ],
)
def test_what_cannot_be_a_range(low: int, high: int, flags: bytes | None, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        make_range(low, high, flags, subtype=INT4)


def test_an_infinite_date_keeps_its_bound() -> None:
    infinity = DATE.parse(b"infinity")

    assert make_range(0, infinity, b"[]", subtype=DATE) == ((0, 0, 0), (0, infinity, 0))


# A range of integers from -LIMIT to LIMIT is the set of its values.

bounds = st.integers(-LIMIT, LIMIT) | st.none()
int_ranges = st.builds(
    lambda low, high: make_range(*sorted((low, high)), subtype=INT4),
    st.integers(-LIMIT, LIMIT),
    st.integers(-LIMIT, LIMIT),
) | st.builds(
    lambda low, flags: (
        make_range(low, None, flags, subtype=INT4)
        if flags[:1] == b"["
        else make_range(None, low, b"()", subtype=INT4)
    ),
    bounds,
    st.sampled_from([b"[)", b"()"]),
)
int_multiranges = st.lists(int_ranges, max_size=5).map(make_multirange)


def members(range_: Range) -> set[int]:
    values = range(-LIMIT - 2, LIMIT + 3)
    return {value for value in values if ranges.contains_element(range_, value)}


def all_members(value: Multirange) -> set[int]:
    return set().union(*map(members, value))


@given(int_ranges, int_ranges)
def test_ranges_are_sets(left: Range, right: Range) -> None:
    a, b = members(left), members(right)

    assert ranges.contains(left, right) is (a >= b)
    assert ranges.overlaps(left, right) is bool(a & b)
    assert members(ranges.intersection(left, right)) == a & b
    assert members(ranges.merge(left, right)) >= a | b
    try:
        assert members(ranges.union(left, right)) == a | b
    except EvaluationError:
        assert not a & b
    try:
        assert members(ranges.difference(left, right)) == a - b
    except EvaluationError:
        assert a - b


@given(int_multiranges, int_multiranges, int_ranges, st.integers(-LIMIT, LIMIT))
def test_multiranges_are_sets(
    left: Multirange, right: Multirange, part: Range, element: int
) -> None:
    a, b = all_members(left), all_members(right)

    assert all_members(multiranges.union(left, right)) == a | b
    assert all_members(multiranges.intersection(left, right)) == a & b
    assert all_members(multiranges.difference(left, right)) == a - b
    assert multiranges.contains_multirange(left, right) is (a >= b)
    assert multiranges.overlaps(left, right) is bool(a & b)
    assert multiranges.contains_range(left, part) is (a >= members(part))
    assert multiranges.contains_element(left, element) is (element in a)
    assert (left == right) is (a == b)


@given(int_multiranges)
def test_a_multirange_is_in_order_and_has_gaps(value: Multirange) -> None:
    for before, after in pairwise(value):
        assert before < after
        assert not ranges.overlaps(before, after)
        assert not ranges.adjacent(before, after)


def test_nan_and_infinity_are_bounds_like_others() -> None:
    value = numbers("[Infinity,NaN]")

    assert ranges.contains_element(value, Decimal("Infinity"))
    assert ranges.contains_element(value, parse_numeric(b"NaN"))
    assert not ranges.contains_element(value, Decimal(1))
    assert not ranges.upper_infinite(value)
