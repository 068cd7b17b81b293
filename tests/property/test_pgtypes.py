"""Formats and matching against independent implementations."""

from __future__ import annotations

import re
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.datetimes import iso as times
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.numbers import floats, numeric
from gateway.pgtypes.text import strings

numbers = st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12),
                      max_value=10**12)  # fmt: skip


@given(st.dates())
def test_dates_of_python_read_as_its_day_numbers(value: date) -> None:
    days = (value - date(2000, 1, 1)).days

    assert times.parse_date(value.isoformat().encode()) == days


@given(st.datetimes())
def test_timestamps_of_python_read_as_its_microseconds(value: datetime) -> None:
    usecs = (value - datetime(2000, 1, 1)) // timedelta(microseconds=1)

    assert times.parse_timestamp(value.isoformat(" ").encode()) == usecs
    aware = value.replace(tzinfo=UTC).isoformat(" ").removesuffix(":00") + ":30"
    assert times.parse_timestamptz(aware.encode()) == usecs - 30 * 60 * 1_000_000


@given(st.integers(times.MIN_DATE, times.END_DATE - 1))
def test_every_date_prints_and_reads_back(days: int) -> None:
    assert times.parse_date(times.format_date(days)) == days


@given(st.binary(max_size=30))
def test_bytes_that_are_no_time_are_refused_and_never_crash(text: bytes) -> None:
    for parse in (times.parse_date, times.parse_timestamp, times.parse_timestamptz):
        try:
            parse(text)
        except ValueFormatError:
            continue


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_real_reads_back_from_its_shortest_digits(value: float) -> None:
    assert floats.parse_float4(repr(value).encode()) == value


@given(st.floats(width=32, min_value=2.0**-60, max_value=2.0**60), st.integers(-1, 1))
def test_a_real_beside_the_middle_of_two_is_rounded_to_the_nearer(value: float, side: int) -> None:
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    above = struct.unpack("<f", struct.pack("<I", bits + 1))[0]
    middle = (Fraction(value) + Fraction(above)) / 2 + side * Fraction(1, 10**200)
    text = f"{numeric.EXACT.divide(Decimal(middle.numerator), Decimal(middle.denominator)):f}"[:400]
    assume(side != 0)

    assert floats.parse_float4(text.encode()) == (above if side > 0 else value)


@given(numbers, numbers)
def test_numeric_arithmetic_is_exact(left: Decimal, right: Decimal) -> None:
    assert Fraction(str(numeric.add(left, right))) == Fraction(left) + Fraction(right)
    assert Fraction(str(numeric.multiply(left, right))) == Fraction(left) * Fraction(right)


@given(numbers, numbers)
def test_numeric_division_is_rounded_half_away_from_zero(left: Decimal, right: Decimal) -> None:
    assume(right)
    quotient = numeric.divide(left, right)
    assert isinstance(quotient, Decimal)

    error = abs(Fraction(quotient)) - abs(Fraction(left) / Fraction(right))
    unit = Fraction(1, 10 ** numeric.scale_of(quotient))

    assert -unit / 2 < error <= unit / 2


@given(numbers, numbers)
def test_numeric_modulo_is_what_truncated_division_leaves(left: Decimal, right: Decimal) -> None:
    assume(right)
    rest = numeric.modulo(left, right)
    whole = int(Fraction(left) / Fraction(right))

    assert Fraction(str(rest)) == Fraction(left) - whole * Fraction(right)


@given(st.text("aé%_\\b", max_size=8), st.text("aé%_\\b", max_size=8))
def test_like_equals_a_regular_expression(text: str, pattern: str) -> None:
    stripped = pattern.replace("\\\\", "")
    assume(not stripped.endswith("\\"))
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    wild = {"%": ".*", "_": "."}
    expression = "".join(wild.get(part) or re.escape(part[-1]) for part in parts)
    expected = re.fullmatch(expression, text, re.DOTALL) is not None

    assert strings.match_like(text.encode(), pattern.encode()) is expected
    assert strings.compile_like(pattern.encode())(text.encode()) is expected


@given(st.text("aé%_\\", max_size=6), st.text("aé%_\\", max_size=6))
def test_a_prepared_pattern_equals_the_walk(text: str, pattern: str) -> None:
    found: list[bool | str] = []
    for match in (strings.match_like, lambda t, p: strings.compile_like(p)(t)):
        try:
            found.append(match(text.encode(), pattern.encode()))
        except EvaluationError as error:
            found.append(error.message)

    assert found[0] == found[1]


@given(st.binary())
def test_bytea_reads_from_hex(value: bytes) -> None:
    assert strings.parse_bytea(b"\\x" + value.hex().encode()) == value
