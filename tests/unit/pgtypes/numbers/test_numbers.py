"""Expected values were taken from PostgreSQL 16 and 18 (psql), not from this code."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.numbers import floats, numeric
from gateway.pgtypes.numbers.integers import BIGINT, INTEGER, SMALLINT, IntegerType, parse_integer
from gateway.pgtypes.numbers.nan import NAN


def test_nan_equals_itself_and_is_greater_than_everything() -> None:
    assert NAN == floats.parse_float8(b"NaN") == numeric.parse_numeric(b"NaN")
    assert float("inf") < NAN
    assert NAN >= NAN
    assert float("inf") < NAN
    assert Decimal("Infinity") < NAN
    assert not NAN < NAN
    assert not NAN > NAN
    assert NAN <= NAN
    assert not Decimal(1) >= NAN
    assert Decimal(1) != NAN
    assert repr(NAN) == "NAN"
    assert NAN in {Decimal(1), NAN}


@pytest.mark.parametrize("text", [b"", b"-", b"1_0", b" 1", b"+1", b"1.0", b"\xef\xbc\x91"])
def test_what_is_no_integer_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        parse_integer(text)


@pytest.mark.parametrize(
    ("left", "right", "quotient", "rest"),
    [(7, 2, 3, 1), (-7, 2, -3, -1), (7, -2, -3, 1), (-7, -2, 3, -1), (-(2**31), 7, -306783378, -2)],
)
def test_integer_division_truncates_towards_zero(
    left: int, right: int, quotient: int, rest: int
) -> None:
    assert INTEGER.divide(left, right) == quotient
    assert INTEGER.modulo(left, right) == rest


def test_the_least_integer_divided_by_minus_one_is_out_of_range_but_its_rest_is_zero() -> None:
    assert INTEGER.modulo(-(2**31), -1) == 0
    with pytest.raises(EvaluationError, match="integer out of range"):
        INTEGER.divide(-(2**31), -1)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (SMALLINT, "smallint out of range"),
        (INTEGER, "integer out of range"),
        (BIGINT, "bigint out of range"),
    ],
    ids=["smallint", "integer", "bigint"],
)
def test_a_result_beyond_the_type_raises(kind: IntegerType, message: str) -> None:
    assert kind.subtract(kind.high, 1) == kind.high - 1
    with pytest.raises(EvaluationError, match=message):
        kind.add(kind.high, 1)
    with pytest.raises(EvaluationError, match=message):
        kind.multiply(kind.high, 2)
    with pytest.raises(EvaluationError, match=message):
        kind.subtract(kind.low, 1)


def test_the_least_integer_has_no_positive_counterpart() -> None:
    with pytest.raises(EvaluationError, match="integer out of range"):
        INTEGER.negate(INTEGER.low)
    with pytest.raises(EvaluationError, match="integer out of range"):
        INTEGER.absolute(INTEGER.low)


@pytest.mark.parametrize("operation", [INTEGER.divide, INTEGER.modulo])
def test_integer_division_by_zero_raises(operation: Callable[[int, int], int]) -> None:
    with pytest.raises(EvaluationError, match="division by zero"):
        operation(1, 0)


@pytest.mark.parametrize(
    ("left", "right", "quotient"),
    [
        ("1", "3", "0.33333333333333333333"),
        ("2", "3", "0.66666666666666666667"),
        ("-2", "3", "-0.66666666666666666667"),
        ("10", "2", "5.0000000000000000"),
        ("1.50", "7", "0.21428571428571428571"),
        ("100000", "3", "33333.333333333333"),
        ("1", "100000000", "0.0000000100000000000000000000"),
        ("123456789.123", "10000", "12345.6789123000000000"),
        ("0", "5", "0.00000000000000000000"),
        ("Infinity", "-5", "-Infinity"),
        ("5", "Infinity", "0"),
    ],
)
def test_numeric_division_has_the_scale_of_postgresql(left: str, right: str, quotient: str) -> None:
    result = numeric.divide(Decimal(left), Decimal(right))

    assert isinstance(result, Decimal)
    assert f"{result:f}" == quotient


@pytest.mark.parametrize(
    ("left", "right", "rest"),
    [("7.5", "2", "1.5"), ("-7.5", "2", "-1.5"), ("7.5", "-2.00", "1.50"), ("5", "Infinity", "5")],
)
def test_numeric_modulo_has_the_sign_of_the_left_side(left: str, right: str, rest: str) -> None:
    assert str(numeric.modulo(Decimal(left), Decimal(right))) == rest


@pytest.mark.parametrize("operation", [numeric.divide, numeric.modulo])
@pytest.mark.parametrize("left", ["1", "Infinity"])
def test_numeric_division_by_zero_raises(operation: object, left: str) -> None:
    with pytest.raises(EvaluationError, match="division by zero"):
        operation(Decimal(left), Decimal("0.0"))  # type: ignore[operator]


INFINITY = Decimal("Infinity")


@pytest.mark.parametrize(
    "result",
    [
        numeric.add(INFINITY, -INFINITY),
        numeric.subtract(INFINITY, INFINITY),
        numeric.multiply(INFINITY, Decimal(0)),
        numeric.multiply(Decimal("0.0"), -INFINITY),
        numeric.divide(INFINITY, INFINITY),
        numeric.modulo(INFINITY, Decimal(1)),
        numeric.add(NAN, Decimal(1)),
        numeric.multiply(NAN, Decimal(1)),
        numeric.divide(Decimal(1), NAN),
        numeric.modulo(Decimal(1), NAN),
        numeric.negate(NAN),
        numeric.absolute(NAN),
        numeric.apply_typmod(NAN, 655366),
    ],
)
def test_numeric_operations_without_a_number_as_result_give_nan(result: object) -> None:
    assert result is NAN


def test_sums_and_products_of_numerics_are_exact() -> None:
    tiny, huge = Decimal("1e-16383"), Decimal("9" * 131072)

    assert numeric.subtract(numeric.add(huge, tiny), huge) == tiny
    with pytest.raises(EvaluationError, match="value overflows numeric format"):
        numeric.multiply(huge, Decimal(10))


NUMERIC_5_2 = ((5 << 16) | 2) + 4


def test_a_typmod_rounds_half_away_from_zero_and_raises_when_too_large() -> None:
    assert str(numeric.apply_typmod(Decimal("-1.005"), NUMERIC_5_2)) == "-1.01"
    assert str(numeric.apply_typmod(Decimal(7), NUMERIC_5_2)) == "7.00"
    for value in (Decimal("999.995"), INFINITY):
        with pytest.raises(EvaluationError, match="numeric field overflow"):
            numeric.apply_typmod(value, NUMERIC_5_2)


def test_a_numeric_becomes_an_integer_half_away_from_zero() -> None:
    bounds = {"low": INTEGER.low, "high": INTEGER.high, "name": INTEGER.name}

    assert numeric.numeric_to_integer(Decimal("2.5"), **bounds) == 3  # type: ignore[arg-type]
    assert numeric.numeric_to_integer(Decimal("-2.5"), **bounds) == -3  # type: ignore[arg-type]
    for value, message in (
        (Decimal("2147483647.5"), "integer out of range"),
        (Decimal("1e40"), "integer out of range"),
        (NAN, "cannot convert NaN to integer"),
        (INFINITY, "cannot convert infinity to integer"),
    ):
        with pytest.raises(EvaluationError, match=message):
            numeric.numeric_to_integer(value, **bounds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0.1", 0.10000000149011612),
        (b"3.4028235e+38", 3.4028234663852886e38),
        (b"1e-45", 1.401298464324817e-45),
        (b"16777217", 16777216.0),
        # Just above half way between two singles; rounding to double first would lose that.
        (b"1.00000017881393432617187500001", 1.0000002384185791),
        (b"1.00000017881393421514957253748", 1.0000001192092896),
        (b"-Infinity", float("-inf")),
    ],
)
def test_a_real_is_rounded_once(text: bytes, value: float) -> None:
    assert floats.parse_float4(text) == value


@pytest.mark.parametrize("text", [b"1e39", b"1e400", b"x"])
def test_what_no_real_can_hold_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        floats.parse_float4(text)


@pytest.mark.parametrize("text", [b"1e309", b"x"])
def test_what_no_double_precision_can_hold_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        floats.parse_float8(text)


@pytest.mark.parametrize("text", [b"", b"x", b"\xef\xbc\x91"])
def test_what_is_no_numeric_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        numeric.parse_numeric(text)
