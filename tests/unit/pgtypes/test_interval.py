"""Intervals. Results are the manual's ("Date/Time Functions and Operators"), or a server's."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.errors import ValueFormatError
from gateway.pgtypes import interval_arithmetic as arithmetic
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.interval import (
    INFINITY,
    MINUS_INFINITY,
    Interval,
    format_interval,
    is_finite,
    parse_interval,
)
from gateway.pgtypes.nan import NAN

HOUR = 3_600_000_000
DAY = 24 * HOUR
PRINTED = [
    (b"00:00:00", (0, 0, 0)),
    (b"1 year", (12, 0, 0)),
    (b"1 year 2 mons 3 days 04:05:06.789", (14, 3, 14_706_789_000)),
    (b"-1 years -2 mons -3 days -04:05:06.789", (-14, -3, -14_706_789_000)),
    (b"1 mon -1 days +00:00:00.000001", (1, -1, 1)),
    (b"-1 mons +1 day -01:00:00", (-1, 1, -HOUR)),
    (b"10 days", (0, 10, 0)),
    (b"-00:00:01", (0, 0, -1_000_000)),
    (b"-178956970 years -8 mons", (-(2**31), 0, 0)),
    (b"2562047788:00:54.775807", (0, 0, 2**63 - 1)),
    (b"-2562047788:00:54.775808", (0, 0, -(2**63))),
]


def fields(value: Interval) -> tuple[int, int, int]:
    return value.months, value.days, value.usecs


@pytest.mark.parametrize(("text", "expected"), PRINTED)
def test_a_printed_interval_is_read_and_printed_again(
    text: bytes, expected: tuple[int, int, int]
) -> None:
    value = parse_interval(text)
    assert fields(value) == expected
    assert format_interval(value) == text


def test_infinities_are_themselves() -> None:
    assert parse_interval(b"infinity") is INFINITY
    assert parse_interval(b"-infinity") is MINUS_INFINITY
    assert format_interval(MINUS_INFINITY) == b"-infinity"
    assert not is_finite(INFINITY)


def test_before_17_an_interval_with_all_fields_at_their_ends_is_finite() -> None:
    text = b"178956970 years 7 mons 2147483647 days 2562047788:00:54.775807"
    value = parse_interval(text)
    assert is_finite(value)
    assert format_interval(value) == text


@pytest.mark.parametrize(
    "text", [b"", b"P1Y", b"1 year  2 mons", b"1 day 2", b" 1 day", b"@ 1 day", b"1 day 01:02"]
)
def test_another_style_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError, match="does not read as interval"):
        parse_interval(text)


@pytest.mark.parametrize(
    ("left", "right"),
    [(b"1 day", b"24:00:00"), (b"1 mon", b"30 days"), (b"1 year", b"360 days"),
     (b"1 mon -30 days", b"00:00:00")],
)  # fmt: skip
def test_intervals_of_the_same_span_are_equal(left: bytes, right: bytes) -> None:
    first, second = parse_interval(left), parse_interval(right)
    assert first == second
    assert hash(first) == hash(second)
    assert first <= second
    assert not first < second


def test_intervals_are_ordered_by_their_span() -> None:
    texts = [b"-infinity", b"-1 days", b"23:59:59", b"1 day", b"29 days", b"1 mon", b"infinity"]
    values = [parse_interval(text) for text in texts]
    assert all(first < second for first, second in pairwise(values))


@pytest.mark.parametrize(
    ("value", "factor", "expected"),
    [
        (b"00:00:01", 900.0, b"00:15:00"),
        (b"1 day", 21.0, b"21 days"),
        (b"01:00:00", 3.5, b"03:30:00"),
        (b"1 mon", 0.5, b"15 days"),
        (b"1 mon", 0.3, b"9 days"),
        (b"1 year 2 mons 3 days 04:05:06.789", -2.5, b"-2 years -11 mons -7 days -22:12:46.9725"),
        (b"2147483647 days 24:00:00", 0.0, b"00:00:00"),
        (b"178956970 years 7 mons", 1.0000000001, b"178956970 years 7 mons 6 days 10:37:07.7664"),
        (b"infinity", -1.0, b"-infinity"),
    ],
)
def test_fractions_of_a_product_cascade_down(value: bytes, factor: float, expected: bytes) -> None:
    assert format_interval(arithmetic.multiply(parse_interval(value), factor)) == expected


@pytest.mark.parametrize(
    ("value", "divisor", "expected"),
    [
        (b"01:00:00", 1.5, b"00:40:00"),
        (b"1 mon", 7.0, b"4 days 06:51:25.6896"),
        (b"1 day", float("inf"), b"00:00:00"),
        (b"-infinity", -2.0, b"infinity"),
    ],
)
def test_fractions_of_a_quotient_do_so_too(value: bytes, divisor: float, expected: bytes) -> None:
    assert format_interval(arithmetic.divide(parse_interval(value), divisor)) == expected


@pytest.mark.parametrize(
    "factor", [1e300, NAN, float("inf")], ids=["too large", "NaN", "0 * infinity"]
)
def test_a_product_without_a_value_raises(factor: float) -> None:
    value = Interval(0, 0, 0) if factor == float("inf") else Interval(1, 0, 0)
    with pytest.raises(EvaluationError, match=r"^interval out of range$"):
        arithmetic.multiply(value, factor)


def test_a_division_by_zero_raises() -> None:
    with pytest.raises(EvaluationError, match=r"^division by zero$"):
        arithmetic.divide(Interval(0, 1, 0), 0.0)


def test_a_product_with_infinity_depends_on_the_version() -> None:
    day = Interval(0, 1, 0)
    assert arithmetic.multiply(day, float("-inf"), major=17) is MINUS_INFINITY
    with pytest.raises(EvaluationError, match=r"^interval out of range$"):
        arithmetic.multiply(day, float("inf"), major=16)
    with pytest.raises(EvaluationError, match="major version"):
        arithmetic.multiply(day, float("inf"))


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (arithmetic.justify_days, b"1 year 65 days", b"1 year 2 mons 5 days"),
        (arithmetic.justify_hours, b"50:10:00", b"2 days 02:10:00"),
        (arithmetic.justify_interval, b"1 mon -01:00:00", b"29 days 23:00:00"),
        (arithmetic.justify_interval, b"-1 mons +1 day", b"-29 days"),
        (arithmetic.justify_hours, b"1 day -01:00:00", b"23:00:00"),
        (arithmetic.justify_days, b"infinity", b"infinity"),
    ],
)
def test_intervals_are_justified(function: object, value: bytes, expected: bytes) -> None:
    assert callable(function)
    assert format_interval(function(parse_interval(value))) == expected


def test_infinities_of_different_signs_do_not_add_up() -> None:
    assert arithmetic.add(INFINITY, Interval(0, 1, 0)) is INFINITY
    assert arithmetic.subtract(Interval(0, 1, 0), INFINITY) is MINUS_INFINITY
    with pytest.raises(EvaluationError, match=r"^interval out of range$"):
        arithmetic.add(INFINITY, MINUS_INFINITY)
    with pytest.raises(EvaluationError, match=r"^interval out of range$"):
        arithmetic.subtract(INFINITY, INFINITY)


def test_a_sum_that_looks_like_infinity_is_out_of_range_from_17_on() -> None:
    almost = Interval(2**31 - 1, 2**31 - 1, 2**63 - 2)
    microsecond = Interval(0, 0, 1)
    assert is_finite(arithmetic.add(almost, microsecond, major=16))
    with pytest.raises(EvaluationError, match=r"^interval out of range$"):
        arithmetic.add(almost, microsecond, major=17)
    with pytest.raises(EvaluationError, match="major version"):
        arithmetic.add(almost, microsecond)


YEAR, MONTH, DAY_FIELD, HOUR_FIELD, MINUTE, SECOND = 4, 2, 8, 1024, 2048, 4096


@pytest.mark.parametrize(
    ("field_bits", "precision", "expected"),
    [
        (YEAR, 0xFFFF, b"1 year"),
        (YEAR | MONTH, 0xFFFF, b"1 year 2 mons"),
        (DAY_FIELD, 0xFFFF, b"1 year 2 mons 3 days"),
        (DAY_FIELD | HOUR_FIELD, 0xFFFF, b"1 year 2 mons 3 days 04:00:00"),
        (HOUR_FIELD | MINUTE, 0xFFFF, b"1 year 2 mons 3 days 04:05:00"),
        (SECOND, 0, b"1 year 2 mons 3 days 04:05:07"),
        (0x7FFF, 1, b"1 year 2 mons 3 days 04:05:06.8"),
    ],
)
def test_fields_and_precision_cut_an_interval(
    field_bits: int, precision: int, expected: bytes
) -> None:
    typmod = field_bits << 16 | precision
    value = parse_interval(b"1 year 2 mons 3 days 04:05:06.789")
    assert arithmetic.scale_is_valid(typmod)
    assert format_interval(arithmetic.scale(value, typmod)) == expected


@pytest.mark.parametrize("typmod", [3, YEAR << 16 | 7, (YEAR | DAY_FIELD) << 16 | 0xFFFF])
def test_a_modifier_that_no_interval_has_is_noticed(typmod: int) -> None:
    assert not arithmetic.scale_is_valid(typmod)


def test_what_goes_beyond_whole_days_is_a_time() -> None:
    assert arithmetic.interval_to_time(Interval(5, 3, -2 * HOUR)) == 22 * HOUR
    assert arithmetic.interval_to_time(Interval(0, 0, DAY)) == 0
    with pytest.raises(EvaluationError, match=r"^cannot convert infinite interval to time$"):
        arithmetic.interval_to_time(INFINITY)


def test_intervals_are_constructed() -> None:
    value = arithmetic.make_interval(1, 2, 1, 3, 4, 5, 6.789)
    assert format_interval(value) == b"1 year 2 mons 10 days 04:05:06.789"
    with pytest.raises(EvaluationError, match=r"^interval out of range$"):
        arithmetic.make_interval(2**31 - 1, 0, 0, 0, 0, 0, 0.0, major=17)
    before = arithmetic.make_interval(2**31 - 1, 0, 0, 0, 0, 0, 0.0, major=16)
    assert format_interval(before) == b"-1 years"
