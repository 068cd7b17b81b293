"""Functions of dates and times. Results are the manual's ("Date/Time Functions and Operators")."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest

from gateway.errors import ValueFormatError
from gateway.pgtypes import datetime_zones, timeofday
from gateway.pgtypes import timestamp_arithmetic as arithmetic
from gateway.pgtypes.datetime import (
    TIMESTAMP_INFINITY,
    format_date,
    format_timestamp,
    format_timestamptz,
    parse_date,
    parse_timestamp,
    parse_timestamptz,
)
from gateway.pgtypes.datetime_fields import (
    DATE,
    TIME,
    TIMESTAMP,
    TIMETZ,
    Kind,
    date_part,
    extract,
)
from gateway.pgtypes.datetime_periods import overlaps
from gateway.pgtypes.datetime_trunc import date_bin, trunc
from gateway.pgtypes.datetime_uuid import uuid_timestamp
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.interval import INFINITY, format_interval, parse_interval
from gateway.pgtypes.interval_fields import interval_kind, trunc_function
from gateway.pgtypes.timeofday import TimeTz, parse_time, parse_timetz

INTERVAL = interval_kind(18)
PARSERS: dict[int, Any] = {
    id(DATE): parse_date,
    id(TIME): parse_time,
    id(TIMETZ): parse_timetz,
    id(TIMESTAMP): parse_timestamp,
    id(INTERVAL): parse_interval,
}


@pytest.mark.parametrize(
    ("kind", "unit", "value", "expected"),
    [
        (TIMESTAMP, b"century", b"2000-12-16 12:21:13", "20"),
        (TIMESTAMP, b"century", b"2001-02-16 20:38:40", "21"),
        (DATE, b"century", b"0001-01-01", "1"),
        (DATE, b"century", b"0001-12-31 BC", "-1"),
        (INTERVAL, b"century", b"2001 years", "20"),
        (TIMESTAMP, b"day", b"2001-02-16 20:38:40", "16"),
        (INTERVAL, b"day", b"40 days 00:01:00", "40"),
        (TIMESTAMP, b"decade", b"2001-02-16 20:38:40", "200"),
        (TIMESTAMP, b"dow", b"2001-02-16 20:38:40", "5"),
        (TIMESTAMP, b"doy", b"2001-02-16 20:38:40", "47"),
        (TIMESTAMP, b"epoch", b"2001-02-16 20:38:40.12", "982355920.120000"),
        (INTERVAL, b"epoch", b"5 days 03:00:00", "442800.000000"),
        (DATE, b"epoch", b"1970-01-02", "86400"),
        (TIMESTAMP, b"hour", b"2001-02-16 20:38:40", "20"),
        (TIMESTAMP, b"isodow", b"2001-02-18 20:38:40", "7"),
        (DATE, b"isoyear", b"2006-01-01", "2005"),
        (DATE, b"isoyear", b"2006-01-02", "2006"),
        (DATE, b"julian", b"2006-01-01", "2453737"),
        (TIMESTAMP, b"julian", b"2006-01-01 12:00:00", "2453737.50000000000000000000"),
        (TIME, b"microseconds", b"17:12:28.5", "28500000"),
        (TIMESTAMP, b"millennium", b"2001-02-16 20:38:40", "3"),
        (INTERVAL, b"millennium", b"2001 years", "2"),
        (TIME, b"milliseconds", b"17:12:28.5", "28500.000"),
        (TIMESTAMP, b"MINUTE", b"2001-02-16 20:38:40", "38"),
        (INTERVAL, b"month", b"2 years 3 mons", "3"),
        (TIMESTAMP, b"quarter", b"2001-02-16 20:38:40", "1"),
        (INTERVAL, b"quarter", b"1 year 6 mons", "3"),
        (TIMESTAMP, b"second", b"2001-02-16 20:38:40", "40.000000"),
        (TIMETZ, b"second", b"17:12:28.5+00", "28.500000"),
        (TIMETZ, b"timezone_hour", b"17:12:28.5-05:30", "-5"),
        (TIMETZ, b"timezone_minute", b"17:12:28.5-05:30", "-30"),
        (TIMETZ, b"epoch", b"00:00:00-01", "3600.000000"),
        (TIMESTAMP, b"week", b"2001-02-16 20:38:40", "7"),
        (DATE, b"week", b"2005-01-01", "53"),
        (DATE, b"year", b"0044-03-15 BC", "-44"),
        (TIMESTAMP, b"year", b"-infinity", "-Infinity"),
        (DATE, b"epoch", b"infinity", "Infinity"),
        (INTERVAL, b"hour", b"infinity", "Infinity"),
    ],
)
def test_fields_are_numerics_with_their_scale(
    kind: Kind, unit: bytes, value: bytes, expected: str
) -> None:
    found = extract(kind)(unit, PARSERS[id(kind)](value))
    assert isinstance(found, Decimal)
    assert str(found) == expected


@pytest.mark.parametrize(
    ("kind", "value"),
    [(DATE, b"infinity"), (TIMESTAMP, b"-infinity"), (INTERVAL, b"infinity")],
)
def test_fields_that_go_round_are_null_in_infinity(kind: Kind, value: bytes) -> None:
    assert extract(kind)(b"month", PARSERS[id(kind)](value)) is None


def test_date_part_gives_a_float() -> None:
    value = parse_timestamp(b"2001-02-16 20:38:40.12")
    assert date_part(TIMESTAMP)(b"epoch", value) == 982355920.12
    assert type(date_part(TIMESTAMP)(b"hour", value)) is float


@pytest.mark.parametrize(
    ("kind", "unit", "value", "message"),
    [
        (TIMESTAMP, b"foo", b"2000-01-01 00:00:00",
         "unit not recognized for type timestamp without time zone"),
        (TIMESTAMP, b"timezone", b"2000-01-01 00:00:00",
         "unit not supported for type timestamp without time zone"),
        (TIME, b"day", b"00:00:00", "unit not supported for type time without time zone"),
        (TIME, b"now", b"00:00:00", "unit not recognized for type time without time zone"),
        (DATE, b"hour", b"infinity", "unit not supported for type date"),
        (INTERVAL, b"dow", b"1 day", "unit not supported for type interval"),
    ],
)  # fmt: skip
def test_units_that_there_are_not_raise(
    kind: Kind, unit: bytes, value: bytes, message: str
) -> None:
    with pytest.raises(EvaluationError, match=f"^{message}$"):
        extract(kind)(unit, PARSERS[id(kind)](value))


def test_quarters_of_negative_intervals_depend_on_the_version() -> None:
    value = parse_interval(b"-4 mons")
    assert extract(interval_kind(18))(b"quarter", value) == -2
    assert extract(interval_kind(17))(b"quarter", value) == 0
    with pytest.raises(EvaluationError, match="major version"):
        extract(interval_kind(None))(b"quarter", value)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        (b"millennium", b"2001-01-01 00:00:00"),
        (b"century", b"2001-01-01 00:00:00"),
        (b"decade", b"2000-01-01 00:00:00"),
        (b"year", b"2001-01-01 00:00:00"),
        (b"quarter", b"2001-01-01 00:00:00"),
        (b"month", b"2001-02-01 00:00:00"),
        (b"week", b"2001-02-12 00:00:00"),
        (b"day", b"2001-02-16 00:00:00"),
        (b"hour", b"2001-02-16 20:00:00"),
        (b"milliseconds", b"2001-02-16 20:38:40.123"),
    ],
)
def test_timestamps_are_truncated(unit: bytes, expected: bytes) -> None:
    value = parse_timestamp(b"2001-02-16 20:38:40.123456")
    assert format_timestamp(trunc(unit, value)) == expected


def test_a_year_before_the_first_timestamp_is_out_of_range() -> None:
    with pytest.raises(EvaluationError, match=r"^timestamp out of range$"):
        trunc(b"decade", parse_timestamp(b"4714-12-01 00:00:00 BC"))


def test_intervals_are_truncated() -> None:
    value = parse_interval(b"2 days 03:40:00")
    assert format_interval(trunc_function(b"hour")(value)) == b"2 days 03:00:00"
    assert trunc_function(b"day")(INFINITY) is INFINITY


def test_timestamps_are_binned() -> None:
    stride = parse_interval(b"00:15:00")
    origin = parse_timestamp(b"2001-01-01 00:02:30")
    value = parse_timestamp(b"2020-02-11 15:44:17")
    assert format_timestamp(date_bin(stride, value, origin)) == b"2020-02-11 15:32:30"
    with pytest.raises(EvaluationError, match=r"^stride must be greater than zero$"):
        date_bin(parse_interval(b"00:00:00"), value, origin)


@pytest.mark.parametrize(
    ("value", "span", "expected"),
    [
        (b"2001-09-28 01:00:00", b"23:00:00", b"2001-09-29 00:00:00"),
        (b"2024-01-31 12:00:00", b"1 mon", b"2024-02-29 12:00:00"),
        (b"2024-03-31 00:00:00", b"-1 mons", b"2024-02-29 00:00:00"),
        (b"2023-01-31 00:00:00", b"1 mon 1 day", b"2023-03-01 00:00:00"),
        (b"0001-01-01 00:00:00", b"-1 mons", b"0001-12-01 00:00:00 BC"),
        (b"infinity", b"-1 days", b"infinity"),
        (b"2000-01-01 00:00:00", b"-infinity", b"-infinity"),
    ],
)
def test_months_then_days_then_time_are_added(value: bytes, span: bytes, expected: bytes) -> None:
    found = arithmetic.add_interval(parse_timestamp(value), parse_interval(span))
    assert format_timestamp(found) == expected


@pytest.mark.parametrize("span", [b"300000 years", b"-2147483648 days", b"2562047788:00:54.775807"])
def test_a_timestamp_does_not_leave_its_range(span: bytes) -> None:
    with pytest.raises(EvaluationError, match=r"^timestamp out of range$"):
        arithmetic.add_interval(0, parse_interval(span))


def test_timestamps_are_subtracted() -> None:
    left, right = (
        parse_timestamp(text) for text in (b"2001-09-29 03:00:00", b"2001-07-27 12:00:00")
    )
    assert format_interval(arithmetic.subtract(left, right)) == b"63 days 15:00:00"


def test_the_difference_to_infinity_depends_on_the_version() -> None:
    assert arithmetic.subtract(TIMESTAMP_INFINITY, 0, major=17) is INFINITY
    with pytest.raises(EvaluationError, match=r"^cannot subtract infinite timestamps$"):
        arithmetic.subtract(TIMESTAMP_INFINITY, 0, major=16)
    with pytest.raises(EvaluationError, match="major version"):
        arithmetic.subtract(TIMESTAMP_INFINITY, 0)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (b"2001-04-10 00:00:00", b"1957-06-13 00:00:00", b"43 years 9 mons 27 days"),
        (b"1957-06-13 00:00:00", b"2001-04-10 00:00:00", b"-43 years -9 mons -27 days"),
        (b"2024-03-01 00:00:00", b"2024-01-31 00:00:00", b"1 mon 1 day"),
        (b"2000-01-01 00:00:00", b"1999-12-31 23:59:59.5", b"00:00:00.5"),
    ],
)
def test_ages_have_years_and_months(left: bytes, right: bytes, expected: bytes) -> None:
    found = arithmetic.age(parse_timestamp(left), parse_timestamp(right))
    assert format_interval(found) == expected


def test_dates_and_times_are_constructed() -> None:
    assert format_date(arithmetic.make_date(2013, 7, 15)) == b"2013-07-15"
    assert format_date(arithmetic.make_date(-44, 3, 15)) == b"0044-03-15 BC"
    assert timeofday.format_time(timeofday.make_time(8, 15, 23.5)) == b"08:15:23.5"
    made = arithmetic.make_timestamp(2013, 7, 15, 8, 15, 23.5)
    assert format_timestamp(made) == b"2013-07-15 08:15:23.5"
    seconds = arithmetic.to_timestamp(1284352323.0)
    assert format_timestamptz(seconds) == b"2010-09-13 04:32:03+00"


@pytest.mark.parametrize(
    ("year", "month", "day", "message"),
    [
        (0, 1, 1, "date field value out of range"),
        (2023, 2, 29, "date field value out of range"),
        (-4714, 11, 23, "date out of range"),
        (5_874_898, 1, 1, "date out of range"),
    ],
)
def test_dates_that_there_are_not_raise(year: int, month: int, day: int, message: str) -> None:
    with pytest.raises(EvaluationError, match=f"^{message}$"):
        arithmetic.make_date(year, month, day)


def test_23_59_60_is_24_o_clock() -> None:
    assert timeofday.make_time(23, 59, 60.0) == 86_400_000_000
    with pytest.raises(EvaluationError, match=r"^time field value out of range$"):
        timeofday.make_time(24, 0, 0.000001)


@pytest.mark.parametrize(
    ("periods", "expected"),
    [
        ((b"2001-02-16", b"2001-12-21", b"2001-10-30", b"2002-10-30"), True),
        ((b"2001-10-29", b"2001-10-30", b"2001-10-30", b"2001-10-31"), False),
        ((b"2001-10-30", b"2001-10-30", b"2001-10-30", b"2001-10-31"), True),
        ((b"2001-12-21", b"2001-02-16", b"2002-10-30", b"2001-10-30"), True),
        ((b"2001-02-16", None, b"2001-10-30", b"2002-10-30"), None),
        ((None, None, b"2001-10-30", b"2002-10-30"), None),
        ((None, b"2001-11-16", b"2001-10-30", b"2002-10-30"), True),
    ],
)
def test_periods_overlap(periods: tuple[bytes | None, ...], expected: bool | None) -> None:
    assert overlaps(*(None if day is None else parse_date(day) for day in periods)) is expected


def test_a_timetz_is_ordered_by_its_instant_then_by_its_zone() -> None:
    texts = [b"11:59:59+00", b"13:00:00+01", b"12:00:00+00", b"00:00:00-12", b"12:00:00-00:00:01"]
    values = [parse_timetz(text) for text in texts]
    assert all(first < second for first, second in pairwise(values))
    assert values[1] != values[2]
    assert [timeofday.format_timetz(value) for value in values] == texts


@pytest.mark.parametrize("text", [b"24:00:00.000001", b"12:60:00", b"1:00:00", b"12:00", b"noon"])
def test_what_is_no_time_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError, match="does not read as time"):
        parse_time(text)


def test_times_go_round_at_midnight() -> None:
    found = timeofday.add_interval(parse_time(b"23:00:00"), parse_interval(b"1 day 02:00:00"))
    assert timeofday.format_time(found) == b"01:00:00"
    with pytest.raises(EvaluationError, match=r"^cannot add infinite interval to time$"):
        timeofday.add_interval(0, INFINITY)


def test_times_are_rounded_up_to_24_o_clock() -> None:
    assert timeofday.round_time(parse_time(b"23:59:59.95"), 1) == 86_400_000_000
    assert timeofday.round_timetz(parse_timetz(b"01:02:03.456+01"), 1) == TimeTz(123_500_000, -3600)


@pytest.mark.parametrize(
    ("zone", "seconds"),
    [
        (b"UTC", 0), (b"gmt", 0), (b"Etc/GMT+5", -18_000), (b"Etc/GMT-14", 50_400),
        (b"+05:30", -19_800), (b"-5:30", 19_800), (b"-03:30:15", 12_615),
        (b"+03", None), (b"EST", None), (b"Europe/Berlin", None), (b"Etc/GMT+13", None),
        (b"UTC+3", None), (b"+168:00", None), (b"", None),
    ],
)  # fmt: skip
def test_zones_that_mean_the_same_everywhere_are_known(zone: bytes, seconds: int | None) -> None:
    assert datetime_zones.fixed_offset(zone) == seconds


def test_days_begin_where_the_zone_is() -> None:
    value = parse_timestamptz(b"2001-02-16 20:38:40+00")
    found = datetime_zones.trunc_in_zone(4 * 3600, b"day")(value)
    assert format_timestamptz(found) == b"2001-02-16 20:00:00+00"
    assert format_timestamp(datetime_zones.utc_to_local(-25_200, value)) == b"2001-02-16 13:38:40"
    assert datetime_zones.local_to_utc(-25_200, value - 25_200_000_000) == value


@pytest.mark.parametrize(
    ("value", "major", "expected"),
    [
        # RFC 9562, A.1 and A.6.
        (b"c232ab00-9414-11ec-b3c8-9f6bdeced846", 17, b"2022-02-22 19:22:22+00"),
        (b"017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 18, b"2022-02-22 19:22:22+00"),
        (b"017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 17, None),
        (b"ffffffff-ffff-4fff-bfff-ffffffffffff", None, None),
    ],
)
def test_a_uuid_may_have_a_time(value: bytes, major: int | None, expected: bytes | None) -> None:
    found = uuid_timestamp(value, major=major)
    assert (None if found is None else format_timestamptz(found)) == expected
