from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.datetimes.iso import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    END_TIMESTAMP,
    MIN_TIMESTAMP,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    add_days,
    date_as_timestamp,
    date_to_timestamp,
    days_between,
    format_date,
    format_timestamp,
    parse_date,
    parse_timestamp,
    parse_timestamptz,
    round_timestamp,
    timestamp_to_date,
)
from gateway.pgtypes.errors import EvaluationError

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
LAST_DATE = 2_145_031_948  # of PostgreSQL: '5874897-12-31'::date - '2000-01-01'


def usecs(*fields: int) -> int:
    return (datetime(*fields, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("text", "days"),
    [
        (b"2000-01-01", 0),
        (b"1999-12-31", -1),
        (b"2024-02-29", 8825),
        (b"0001-01-01", -730119),
        (b"0001-12-31 BC", -730120),
        (b"0044-03-15 BC", -746117),
        (b"4714-11-24 BC", -2451545),
        (b"10000-01-01", 2921940),
        (b"5874897-12-31", LAST_DATE),
        (b"infinity", DATE_INFINITY),
        (b"-infinity", DATE_MINUS_INFINITY),
    ],
)
def test_a_date_reads_as_days_and_prints_back(text: bytes, days: int) -> None:
    assert parse_date(text) == days
    assert format_date(days) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"2000-01-01 00:00:00", 0),
        (b"2024-05-06 07:08:09", usecs(2024, 5, 6, 7, 8, 9)),
        (b"2024-05-06 07:08:09.5", usecs(2024, 5, 6, 7, 8, 9, 500000)),
        (b"2024-05-06 07:08:09.000001", usecs(2024, 5, 6, 7, 8, 9, 1)),
        (b"9999-12-31 23:59:59.999999", usecs(9999, 12, 31, 23, 59, 59, 999999)),
        (b"4714-11-24 00:00:00 BC", MIN_TIMESTAMP),
        (b"294276-12-31 23:59:59.999999", END_TIMESTAMP - 1),
        (b"294277-01-01 00:00:00", END_TIMESTAMP),
        (b"infinity", TIMESTAMP_INFINITY),
        (b"-infinity", TIMESTAMP_MINUS_INFINITY),
    ],
)
def test_a_timestamp_reads_as_microseconds(text: bytes, expected: int) -> None:
    assert parse_timestamp(text) == expected
    if not text.endswith(b"infinity"):
        assert format_timestamp(expected, "") == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"2024-05-06 07:08:09+00", usecs(2024, 5, 6, 7, 8, 9)),
        (b"2024-05-06 07:08:09.25+00", usecs(2024, 5, 6, 7, 8, 9, 250000)),
        (b"2024-05-06 07:08:09+05:30", usecs(2024, 5, 6, 1, 38, 9)),
        (b"2024-05-06 07:08:09-08", usecs(2024, 5, 6, 15, 8, 9)),
        (b"1883-11-18 00:00:00-04:56:02", usecs(1883, 11, 18, 4, 56, 2)),
        (b"4714-11-24 00:00:00+00 BC", MIN_TIMESTAMP),
        (b"infinity", TIMESTAMP_INFINITY),
        (b"-infinity", TIMESTAMP_MINUS_INFINITY),
    ],
)
def test_a_timestamptz_reads_as_microseconds_in_utc(text: bytes, expected: int) -> None:
    assert parse_timestamptz(text) == expected
    if b"+00" in text:
        assert format_timestamp(expected, "+00") == text


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"2024-01-01 00:00:0",
        b"2024-02-30 00:00:00",
        b"2023-02-29 00:00:00",
        b"0000-01-01 00:00:00",
        b"2024-13-01 00:00:00",
        b"2024-00-01 00:00:00",
        b"2024-01-01 24:00:00",
        b"2024-01-01 00:60:00",
        b"2024-01-01 00:00:60",
        b"2024-01-01T00:00:00",
        b"2024-01-01 00:00:00.1_1",
        b"2024-01-01 00:00:00.",
        b"2024-01-01 00:00:00.1234567",
        b"+024-01-01 00:00:00",
        b"01/02/2024 00:00:00",
        b"Sat Jan 01 00:00:00 2024",
        b"300000-01-01 00:00:00",
        b"4714-11-23 23:59:59 BC",
        b"2024-01-01 00:00:00 AD",
    ],
)
def test_what_is_no_timestamp_in_iso_style_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        parse_timestamp(text)
    with pytest.raises(ValueFormatError):
        parse_timestamptz(text + b"+00")


@pytest.mark.parametrize(
    "text", [b"2024-01-01", b"2024-01-01 00:00:00", b"2024-01-01 00:00:00+16", b"now"]
)
def test_a_timestamptz_needs_a_numeric_offset(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        parse_timestamptz(text)


@pytest.mark.parametrize("text", [b"2024-1-01", b"2024-01-01 ", b"5874898-01-01", b"Infinity"])
def test_what_is_no_date_in_iso_style_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        parse_date(text)


def test_the_error_does_not_show_the_value() -> None:
    with pytest.raises(ValueFormatError) as caught:
        parse_date(b"secret")

    assert "secret" not in str(caught.value)


def test_adding_days_raises_out_of_range_and_leaves_infinity() -> None:
    assert add_days(DATE_INFINITY, -5) == DATE_INFINITY
    with pytest.raises(EvaluationError, match="date out of range"):
        add_days(LAST_DATE, 1)


def test_infinite_dates_cannot_be_subtracted() -> None:
    assert days_between(5, 3) == 2
    with pytest.raises(EvaluationError, match="cannot subtract infinite dates"):
        days_between(DATE_INFINITY, 3)


def test_a_late_date_is_below_infinity_but_no_timestamp() -> None:
    assert TIMESTAMP_INFINITY > date_as_timestamp(LAST_DATE) > END_TIMESTAMP
    with pytest.raises(EvaluationError, match="date out of range for timestamp"):
        date_to_timestamp(LAST_DATE)


@pytest.mark.parametrize(
    ("timestamp", "date"),
    [(-1, -1), (0, 0), (TIMESTAMP_INFINITY, DATE_INFINITY), (TIMESTAMP_MINUS_INFINITY, -(2**31))],
)
def test_a_timestamp_becomes_the_date_that_it_is_in(timestamp: int, date: int) -> None:
    assert timestamp_to_date(timestamp) == date


@pytest.mark.parametrize(
    ("value", "digits", "rounded"),
    [(1500, 3, 2000), (-1500, 3, -2000), (1499, 3, 1000), (7, 6, 7), (500_000, 0, 1_000_000)],
)
def test_rounding_a_timestamp_goes_half_away_from_the_epoch(
    value: int, digits: int, rounded: int
) -> None:
    assert round_timestamp(value, digits) == rounded
