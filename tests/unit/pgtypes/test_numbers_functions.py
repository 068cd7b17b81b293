"""Expected values were taken from PostgreSQL 16 and 18 (psql), not from this code."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from gateway.pgtypes import float_functions, hashes, numeric, numeric_functions, numeric_powers
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.integers import BIGINT, INTEGER
from gateway.pgtypes.nan import NAN
from gateway.pgtypes.numeric import Numeric

INFINITY = Decimal("Infinity")


def shown(value: Numeric) -> str:
    assert isinstance(value, Decimal)
    return f"{value:f}"


def test_common_divisors_and_multiples_of_integers_are_never_negative() -> None:
    assert INTEGER.greatest_common_divisor(-12, 18) == 6
    assert INTEGER.least_common_multiple(-12, 18) == 36
    assert BIGINT.least_common_multiple(0, 5) == 0
    for arguments in ((INTEGER.low, 0), (INTEGER.low, INTEGER.low)):
        with pytest.raises(EvaluationError, match="integer out of range"):
            INTEGER.greatest_common_divisor(*arguments)
    with pytest.raises(EvaluationError, match="bigint out of range"):
        BIGINT.least_common_multiple(BIGINT.high, BIGINT.high - 1)


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (float_functions.round_half_even, 2.5, 2.0),
        (float_functions.round_half_even, -0.5, -0.0),
        (float_functions.ceil, -0.5, -0.0),
        (float_functions.floor, -0.5, -1.0),
        (float_functions.truncate, -1.5, -1.0),
        (float_functions.round_half_even, 4503599627370497.0, 4503599627370497.0),
        (float_functions.floor, float("-inf"), float("-inf")),
        (float_functions.square_root, 2.0, 1.4142135623730951),
        (float_functions.degrees, 0.5, 28.64788975654116),
        (float_functions.radians, 45.0, 0.7853981633974483),
        (float_functions.sign, -0.0, 0.0),
    ],
)
def test_functions_of_double_precision(function: object, value: float, expected: float) -> None:
    result = function(value)  # type: ignore[operator]

    assert result == expected
    assert math.copysign(1, result) == math.copysign(1, expected)


def test_the_sign_of_nan_is_zero_in_double_precision_and_nan_in_numeric() -> None:
    assert float_functions.sign(NAN) == 0.0
    assert numeric_functions.sign(NAN) is NAN
    assert float_functions.ceil(NAN) is float_functions.square_root(NAN) is NAN


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (numeric_functions.ceil(Decimal("-0.4")), "0"),
        (numeric_functions.ceil(Decimal("0.0001")), "1"),
        (numeric_functions.floor(Decimal("-0.0001")), "-1"),
        (numeric_functions.round_to_integer(Decimal("-2.5")), "-3"),
        (numeric_functions.truncate_to_integer(Decimal("-2.5")), "-2"),
        (numeric_functions.round_to_scale(Decimal("42.4382"), 2), "42.44"),
        (numeric_functions.round_to_scale(Decimal("1234.56"), -1), "1230"),
        (numeric_functions.round_to_scale(Decimal(7), 3), "7.000"),
        (numeric_functions.round_to_scale(Decimal("9e131071"), -(2**31)), "0"),
        (numeric_functions.truncate_to_scale(Decimal("-42.4399"), 2), "-42.43"),
        (numeric_functions.truncate_to_scale(Decimal("1299"), -2), "1200"),
        (numeric_functions.trim_scale(Decimal("8.4100")), "8.41"),
        (numeric_functions.trim_scale(Decimal("1000.00")), "1000"),
        (numeric_functions.divide_truncating(Decimal("-9.5"), Decimal(4)), "-2"),
        (numeric_functions.greatest_common_divisor(Decimal("12.5"), Decimal("-7.50")), "2.50"),
        (numeric_functions.least_common_multiple(Decimal("1.5"), Decimal("-2.00")), "6.00"),
        (numeric_functions.factorial(5), "120"),
        (numeric_functions.square_root(Decimal(2)), "1.414213562373095"),
        (numeric_functions.square_root(Decimal("16.00")), "4.000000000000000"),
        (numeric_functions.square_root(Decimal("1e-20")), "0.0000000001000000000000000"),
    ],
)
def test_functions_of_numeric_have_the_digits_of_the_server(result: Numeric, expected: str) -> None:
    assert shown(result) == expected


@pytest.mark.parametrize(
    "result",
    [
        numeric.multiply(Decimal(0), Decimal("-3.5")),
        numeric.negate(Decimal("0.00")),
        numeric.float_to_numeric(-0.0, 15),
        numeric.apply_typmod(Decimal("-0.4"), (3 << 16) + 4),
        numeric_functions.truncate_to_scale(Decimal("-0.04"), 1),
    ],
)
def test_zero_has_no_sign(result: Numeric) -> None:
    assert not shown(result).startswith("-")


def test_scales_are_unknown_for_what_is_not_finite() -> None:
    assert numeric_functions.scale(Decimal("8.4100")) == 4
    assert numeric_functions.min_scale(Decimal("8.4100")) == 2
    assert numeric_functions.scale(NAN) is numeric_functions.min_scale(INFINITY) is None
    assert numeric_functions.trim_scale(INFINITY) == INFINITY


@pytest.mark.parametrize(
    ("operand", "low", "high", "count", "bucket"),
    [
        ("5.35", "0.024", "10.06", 5, 3),
        ("0", "1", "10", 5, 0),
        ("10", "1", "10", 5, 6),
        ("5", "10", "0", 4, 3),
        ("Infinity", "1", "10", 5, 6),
        ("-Infinity", "10", "1", 5, 6),
    ],
)
def test_buckets_of_equal_width(operand: str, low: str, high: str, count: int, bucket: int) -> None:
    a, b, c = (Decimal(text) for text in (operand, low, high))

    assert numeric_functions.width_bucket(a, b, c, count) == bucket
    assert float_functions.width_bucket(float(a), float(b), float(c), count) == bucket


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 0.0, 1.0, 0), "count must be greater than zero"),
        ((1.0, 1.0, 1.0, 5), "lower bound cannot equal upper bound"),
        ((1.0, 0.0, float("inf"), 5), "lower and upper bounds must be finite"),
        ((1.0, NAN, 0.0, 5), "operand, lower bound, and upper bound cannot be NaN"),
        ((1.0, 0.0, 1.0, 2**31 - 1), "integer out of range"),
    ],
)
def test_buckets_that_cannot_be_raise(arguments: tuple[object, ...], message: str) -> None:
    decimals = [Decimal(a) if isinstance(a, float) else a for a in arguments]

    with pytest.raises(EvaluationError, match=message):
        float_functions.width_bucket(*arguments)  # type: ignore[arg-type]
    with pytest.raises(EvaluationError, match=message):
        numeric_functions.width_bucket(*decimals)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (numeric_powers.exponential(Decimal("1.0")), "2.7182818284590452"),
        (numeric_powers.natural_logarithm(Decimal("2.0")), "0.6931471805599453"),
        (numeric_powers.common_logarithm(Decimal(100)), "2.0000000000000000"),
        (numeric_powers.logarithm(Decimal("2.0"), Decimal("64.0")), "6.0000000000000000"),
        (numeric_powers.power(Decimal(9), Decimal(3), major=16), "729.00000000000000"),
        (numeric_powers.power(Decimal("2.5"), Decimal(3), major=16), "15.625000000000000"),
        (numeric_powers.power(Decimal("2.5"), Decimal(3), major=15), "15.6250000000000000"),
        (numeric_powers.power(Decimal(2), Decimal("0.5"), major=16), "1.4142135623730950"),
    ],
)
def test_powers_and_logarithms(result: Numeric, expected: str) -> None:
    assert shown(result) == expected


def test_powers_of_what_is_not_finite_follow_posix() -> None:
    def power(base: Numeric, exponent: Numeric) -> Numeric:
        return numeric_powers.power(base, exponent, major=16)

    assert power(NAN, Decimal(0)) == power(Decimal(1), NAN) == 1
    assert power(NAN, Decimal(1)) is NAN
    assert power(-INFINITY, Decimal(3)) == -INFINITY
    assert power(-INFINITY, Decimal(2)) == INFINITY
    assert power(Decimal("0.5"), -INFINITY) == INFINITY
    assert power(Decimal(-1), INFINITY) == 1
    assert power(INFINITY, Decimal(-1)) == 0


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (numeric_functions.divide_truncating, (Decimal(1), Decimal(0)), "division by zero"),
        (numeric_functions.factorial, (-1,), "factorial of a negative number is undefined"),
        (numeric_functions.factorial, (32178,), "value overflows numeric format"),
        (numeric_functions.round_to_scale, (Decimal("9.9e131071"), -131071),
         "value overflows numeric format"),
        (numeric_functions.square_root, (-INFINITY,),
         "cannot take square root of a negative number"),
        (float_functions.square_root, (-1.0,), "cannot take square root of a negative number"),
        (float_functions.degrees, (1e308,), "value out of range: overflow"),
        (numeric_powers.exponential, (Decimal(6000),), "value overflows numeric format"),
        (numeric_powers.natural_logarithm, (Decimal(0),), "cannot take logarithm of zero"),
        (numeric_powers.natural_logarithm, (Decimal(-1),),
         "cannot take logarithm of a negative number"),
        (numeric_powers.logarithm, (Decimal(1), Decimal(2)), "division by zero"),
    ],
)  # fmt: skip
def test_what_the_server_refuses_raises_its_error(
    function: object, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(EvaluationError, match=f"^{message}$"):
        function(*arguments)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("base", "exponent", "message"),
    [
        ("0", "-1", "zero raised to a negative power is undefined"),
        ("-2", "0.5", "a negative number raised to a non-integer power yields a complex result"),
        ("10", "200000", "value overflows numeric format"),
        ("1.5", "1000000.5", "value overflows numeric format"),
    ],
)
def test_powers_that_cannot_be_raise(base: str, exponent: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=f"^{message}$"):
        numeric_powers.power(Decimal(base), Decimal(exponent), major=18)


def test_the_hash_of_a_bigint_is_that_of_the_same_integer() -> None:
    assert hashes.hash_integer(1) == hashes.hash_bigint(1) == -1905060026
    assert hashes.hash_integer(-1) == hashes.hash_bigint(-1) == 385747274
    assert hashes.hash_bigint(2**40) == 1851357687
    assert hashes.hash_integer_extended(1, 0) == -3670598878359251130
    assert hashes.hash_bigint_extended(-1, -(2**63)) == 6394124543670130617


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (numeric_functions.divide_truncating(INFINITY, Decimal(-2)), -INFINITY),
        (numeric_functions.divide_truncating(-INFINITY, INFINITY), NAN),
        (numeric_functions.divide_truncating(Decimal(5), INFINITY), Decimal(0)),
        (numeric_functions.divide_truncating(NAN, Decimal(0)), NAN),
        (numeric_functions.greatest_common_divisor(INFINITY, Decimal(2)), NAN),
        (numeric_functions.greatest_common_divisor(NAN, Decimal(2)), NAN),
        (numeric_functions.least_common_multiple(NAN, Decimal(2)), NAN),
        (numeric_functions.least_common_multiple(Decimal(2), -INFINITY), NAN),
        (numeric_functions.square_root(INFINITY), INFINITY),
        (numeric_functions.square_root(NAN), NAN),
        (numeric_functions.increment(NAN), NAN),
        (numeric_functions.increment(Decimal("1.5")), Decimal("2.5")),
        (numeric_functions.ceil(-INFINITY), -INFINITY),
        (numeric_functions.round_to_scale(NAN, 2), NAN),
        (numeric_powers.exponential(NAN), NAN),
        (numeric_powers.exponential(-INFINITY), Decimal(0)),
        (numeric_powers.exponential(INFINITY), INFINITY),
        (numeric_powers.exponential(Decimal("-6000.0")), Decimal(0)),
        (numeric_powers.natural_logarithm(NAN), NAN),
        (numeric_powers.natural_logarithm(INFINITY), INFINITY),
        (numeric_powers.logarithm(NAN, Decimal(2)), NAN),
        (numeric_powers.logarithm(INFINITY, Decimal(2)), Decimal(0)),
        (numeric_powers.logarithm(Decimal(2), INFINITY), INFINITY),
        (numeric_powers.logarithm(INFINITY, INFINITY), NAN),
    ],
)
def test_functions_of_what_is_not_finite(result: Numeric, expected: Numeric) -> None:
    assert result == expected


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (numeric_powers.exponential(Decimal("0.001")), "1.0010005001667083"),
        (numeric_powers.exponential(Decimal("-50.25")), "0.0000000000000000000001502111891943152"),
        (
            numeric_powers.exponential(Decimal("100.5")),
            "44319559098458954160107061979564816895899481.9",
        ),
        (numeric_powers.natural_logarithm(Decimal("0.95")), "-0.051293294387550533"),
        (numeric_powers.natural_logarithm(Decimal("1.0")), "0.0000000000000000"),
        (
            numeric_powers.natural_logarithm(Decimal("123456789012345678901234567890")),
            "66.985688719142977",
        ),
        (numeric_powers.logarithm(Decimal("0.5"), Decimal(8)), "-3.0000000000000000"),
    ],
)
def test_exponentials_and_logarithms_of_any_size(result: Numeric, expected: str) -> None:
    assert shown(result) == expected


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [
        ("-2.5", "3", "-15.625000000000000"),
        ("-8", "-2", "0.01562500000000000"),
        ("0", "0", "1.0000000000000000"),
        ("0", "0.5", "0.0000000000000000"),
        ("0", "5", "0.0000000000000000"),
        ("2", "-1", "0.5000000000000000"),
        ("1.5", "2", "2.2500000000000000"),
        ("7.1", "1", "7.1000000000000000"),
        ("-2", "4", "16.000000000000000"),
        ("0.95", "0.001", "0.9999487080210910"),
        ("-1", "2147483649", "-1.0000000000000000"),
        ("10", "-2000", f"0.{'0' * 1000}"),
        ("0.1", "2000.5", f"0.{'0' * 1000}"),
    ],
)
def test_powers_of_any_kind(base: str, exponent: str, expected: str) -> None:
    assert shown(numeric_powers.power(Decimal(base), Decimal(exponent), major=18)) == expected


@pytest.mark.parametrize(
    ("base", "value", "message"),
    [
        (-INFINITY, Decimal(2), "cannot take logarithm of a negative number"),
        (Decimal(0), INFINITY, "cannot take logarithm of zero"),
        (Decimal(2), Decimal(0), "cannot take logarithm of zero"),
    ],
)
def test_logarithms_that_do_not_exist_raise(base: Decimal, value: Decimal, message: str) -> None:
    with pytest.raises(EvaluationError, match=f"^{message}$"):
        numeric_powers.logarithm(base, value)


def test_zero_powers_of_infinity_and_roots_of_minus_infinity() -> None:
    assert numeric_powers.power(-INFINITY, Decimal(0), major=18) == 1
    assert numeric_powers.power(Decimal(0), INFINITY, major=18) == 0
    assert numeric_powers.power(-INFINITY, Decimal(-3), major=18) == 0
    with pytest.raises(EvaluationError, match="complex result"):
        numeric_powers.power(-INFINITY, Decimal("0.5"), major=18)


@pytest.mark.parametrize(("base", "exponent"), [("1.5", "1000000"), ("123456.7", "2147483647")])
def test_integer_powers_that_are_too_large_raise(base: str, exponent: str) -> None:
    with pytest.raises(EvaluationError, match="value overflows numeric format"):
        numeric_powers.power(Decimal(base), Decimal(exponent), major=15)


def test_a_tiny_integer_power_is_zero_at_the_scale_of_the_version() -> None:
    for major, scale in ((15, 16), (16, 1000)):
        result = numeric_powers.power(Decimal("0.00001"), Decimal(1000), major=major)
        assert shown(result) == f"0.{'0' * scale}"
