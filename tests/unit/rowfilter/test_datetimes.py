"""Filters on dates, times and intervals: what depends on the server is refused at start-up."""

from __future__ import annotations

import pytest

from gateway.errors import FilterError
from gateway.rowfilter import compile_filter
from tests.unit.rowfilter.columns import column

KINDS = {
    "d": "date", "t": "time", "z": "timetz", "ts": "timestamp", "tz": "timestamptz",
    "i": "interval", "n": "int4", "x": "text",
}  # fmt: skip
COLUMNS = [column(name, kind) for name, kind in KINDS.items()]
ROW = (
    b"2024-02-29", b"12:34:56.5", b"23:59:59+05:30", b"2024-02-29 12:34:56", b"infinity",
    b"-1 years +2 days -03:04:05", b"3", b"UTC",
)  # fmt: skip


def passes(text: str, major: int | None) -> bool:
    return compile_filter(text, COLUMNS, major=major).bind(list(KINDS))(ROW)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("((ts AT TIME ZONE 'Europe/Berlin'::text) = tz)", "time zone depends on the server"),
        ("((ts AT TIME ZONE '+03'::text) = tz)", "time zone depends on the server"),
        ("((ts AT TIME ZONE x) = tz)", "time zone is not constant"),
        ("(age(tz, tz) = i)", "function age"),
        ("(EXTRACT(week FROM i) = (1)::numeric)", "depend on the version of the server"),
        ("(date_part(x, i) = (1)::double precision)", "depend on the version of the server"),
        ('("timestamp"(ts, n) = ts)', "type modifier must be constant"),
        ("(date_part(x, '5874897-12-31'::date) = (1)::double precision)", "date out of range"),
        (
            "((ts, i) OVERLAPS ('294276-12-31 00:00:00'::timestamp, '1 year'::interval))",
            "timestamp out of range",
        ),
    ],
)
def test_what_cannot_be_the_same_everywhere_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason):
        compile_filter(text, COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        "((tz AT TIME ZONE 'UTC'::text) = 'infinity'::timestamp)",
        "((ts AT TIME ZONE '-05:30'::text) = '2024-02-29 07:04:56+00'::timestamp with time zone)",
        "(EXTRACT(epoch FROM i) < 3.5)",
        "((i)::interval year = '-1 years'::interval)",
        "((t)::time(0) without time zone = '12:34:57'::time without time zone)",
        "(date_trunc('month'::text, ts) = '2024-02-01 00:00:00'::timestamp)",
        "((z > '18:29:59+00'::time with time zone) IS FALSE)",
        "((d + i) = '2023-03-01 20:55:55'::timestamp)",
    ],
)
def test_a_filter_on_dates_and_times_passes(text: str) -> None:
    assert passes(text, major=None)


def test_the_version_of_the_server_decides_on_quarters() -> None:
    text = "(EXTRACT(quarter FROM i) = ('-1'::integer)::numeric)"
    assert passes(text, major=18)
    assert not passes(text, major=17)
