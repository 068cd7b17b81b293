"""What random filters found to differ from the server once; the server's answer is expected."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import pytest

from gateway.errors import FilterError
from gateway.rowfilter import FilterEvaluationError, compile_filter
from gateway.rowfilter.expr import IsNull
from gateway.rowfilter.interpret import interpret
from tests.unit.rowfilter.columns import C, column

COLUMNS: Final = (
    column("a", "int4"),
    column("b", "int8"),
    column("n", "numeric"),
    column("f", "float8"),
    column("r", "float4"),
    column("t", "text", C),
    column("ch", "char"),
    column("i", "interval"),
    column("ts", "timestamp"),
    column("ci", "cidr"),
    column("u", "uuid"),
)
NAMES: Final = [found.name for found in COLUMNS]


def answer(text: str, row: dict[str, bytes], major: int = 18) -> bool | str:
    """Whether the row passes, or the message of the error."""
    passes = compile_filter(text, COLUMNS, major=major).bind(NAMES)
    try:
        return passes([row.get(name) for name in NAMES])
    except FilterEvaluationError as error:
        return error.reason


@pytest.mark.parametrize(
    ("text", "row", "zero"),
    [
        pytest.param("((f)::numeric IS NULL)", {"f": -0.0}, Decimal("0"), id="float8"),
        pytest.param("((r)::numeric IS NULL)", {"r": -0.0}, Decimal("0"), id="float4"),
        pytest.param(
            "((n * '-2.5'::numeric) IS NULL)",
            {"n": Decimal("0.00")},
            Decimal("0.000"),
            id="product",
        ),
        pytest.param("((- n) IS NULL)", {"n": Decimal("0.00")}, Decimal("0.00"), id="negative"),
        pytest.param(
            "((n)::numeric(4,-2) IS NULL)", {"n": Decimal("-3.5")}, Decimal("0"), id="rounded"
        ),
    ],
)
def test_zero_of_numeric_has_no_sign(text: str, row: dict[str, object], zero: Decimal) -> None:
    expr = compile_filter(text, COLUMNS, major=18).expr
    assert isinstance(expr, IsNull)

    value = interpret(expr.argument)(row)

    assert isinstance(value, Decimal)
    assert value.as_tuple() == zero.as_tuple()


@pytest.mark.parametrize(("value", "passes"), [(b"-1", True), (b"100", False)])
def test_an_integer_is_cast_to_bit_without_a_length_by_its_last_bit(
    value: bytes, passes: bool
) -> None:
    assert answer('((a)::"bit" = \'1\'::"bit")', {"a": value}) is passes


def test_a_length_that_no_bit_string_has_is_taken_for_one() -> None:
    assert answer('("bit"(a, a) = \'1\'::"bit")', {"a": b"2147483647"}) is True


def test_the_comparison_of_char_gives_the_difference_of_the_bytes() -> None:
    assert answer("(btcharcmp(ch, 'a'::\"char\") = '-97'::integer)", {"ch": b""}) is True


@pytest.mark.parametrize("function", ["lpad", "rpad"])
def test_padding_with_nothing_is_never_too_long(function: str) -> None:
    text = f"({function}(t, 2147483647, ''::text) = 'a%b'::text)"
    assert answer(text, {"t": b"a%b"}) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "(regexp_substr(t, '('::text, 10, 2, 'g'::text) IS NULL)",
            'regexp_substr() does not support the "global" option',
        ),
        (
            "(regexp_split_to_array(t, '['::text, 'gi'::text) IS NULL)",
            'regexp_split_to_array() does not support the "global" option',
        ),
    ],
)
def test_options_are_looked_at_before_the_pattern(text: str, message: str) -> None:
    assert answer(text, {"t": b"a"}) == message


@pytest.mark.parametrize(
    "text",
    [
        "((LEAST(ci, '10.0.0.0/8'::cidr))::inet = ('10.0.0.0/8'::cidr)::inet)",
        "\nCASE ci\n    WHEN '192.168.1.0/24'::cidr THEN true\n    ELSE NULL::boolean\nEND",
        "(ARRAY[ci] = '{192.168.1.0/24}'::cidr[])",
    ],
)
def test_networks_are_compared_by_the_operators_of_inet(text: str) -> None:
    assert answer(text, {"ci": b"192.168.1.0/24"}) is True


def test_a_constant_escape_that_cannot_be_fails_also_beside_a_null() -> None:
    text = "(SUBSTRING(t SIMILAR 'aaa'::text ESCAPE 'éa'::text) IS NULL)"
    with pytest.raises(FilterError, match="invalid escape string"):
        compile_filter(text, COLUMNS, major=18)


@pytest.mark.parametrize(
    ("text", "row", "in_16", "in_18"),
    [
        pytest.param(
            "((ts - '2024-12-30 23:59:59'::timestamp without time zone) > '1 day'::interval)",
            {"ts": b"infinity"},
            "cannot subtract infinite timestamps",
            True,
            id="difference of infinities",
        ),
        pytest.param(
            "((i * f) < '1 day'::interval)",
            {"i": b"24:00:00", "f": b"-Infinity"},
            "interval out of range",
            True,
            id="infinite multiple",
        ),
        pytest.param(
            "((i)::interval(2) > '1 day'::interval)",
            {"i": b"2562047788:00:54.775807"},
            False,
            "interval out of range",
            id="rounded over the limit",
        ),
    ],
)
def test_intervals_end_where_the_servers_version_has_it(
    text: str, row: dict[str, bytes], in_16: bool | str, in_18: bool | str
) -> None:
    assert answer(text, row, major=16) == in_16
    assert answer(text, row, major=18) == in_18


def test_the_time_of_a_version_7_uuid_is_known_from_18_on() -> None:
    row = {"u": b"019535d9-3df7-79fb-b466-fa907fa17f9e"}
    text = "(uuid_extract_timestamp(u) = '2025-02-24 02:46:24.503+00'::timestamp with time zone)"
    assert answer(text, row, major=18) is True


def test_make_interval_before_17_is_refused_rather_than_guessed() -> None:
    with pytest.raises(FilterError, match=r"make_interval\(\) is not supported here"):
        compile_filter("(make_interval(a) IS NULL)", COLUMNS, major=16)
    assert answer("(make_interval(a) IS NULL)", {"a": b"1"}, major=18) is False


@pytest.mark.parametrize(
    ("text", "row", "message"),
    [
        pytest.param(
            "(int8pl_inet(int8(n), inetmi_int8('::1'::inet, b)) IS NULL)",
            {"n": b"99999999999999999999.5", "b": b"40"},
            "result is out of range",
            id="int8pl_inet",
        ),
        pytest.param(
            "(interval_pl_timetz((ts - '-infinity'::timestamp without time zone),"
            " ('01:02:03+00'::time with time zone AT TIME ZONE i)) IS NULL)",
            {"ts": b"2024-01-01 00:00:00", "i": b"-1 years -1 mons"},
            "interval time zone must not include months or days",
            id="interval_pl_timetz",
        ),
    ],
)
def test_a_function_in_sql_that_swaps_its_arguments_evaluates_the_second_first(
    text: str, row: dict[str, bytes], message: str
) -> None:
    assert answer(text, row, major=16) == message


def test_a_constant_with_a_modifier_that_cannot_be_fails_although_a_column_would_not() -> None:
    called = "(\"timestamp\"({}, '-2147483648'::integer) IS NULL)"
    constant = called.format("'2024-03-31 01:30:00'::timestamp without time zone")
    with pytest.raises(FilterError, match="timestamp precision must be between 0 and 6"):
        compile_filter(constant, COLUMNS, major=16)
    assert answer(called.format("ts"), {"ts": b"2024-03-31 01:30:00"}) is False
