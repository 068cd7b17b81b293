"""Expected values are the manual's, or were taken from PostgreSQL 16 and 18."""

from __future__ import annotations

import pytest

from gateway.errors import ValueFormatError
from gateway.pgtypes import bits
from gateway.pgtypes.errors import EvaluationError


def test_bit_strings_sort_by_bits_and_then_by_length() -> None:
    values = [b"1", b"01", b"0", b"", b"10", b"00000000", b"000000001", b"1000"]

    assert sorted(values) == [
        b"", b"0", b"00000000", b"000000001", b"01", b"1", b"10", b"1000",
    ]  # fmt: skip


@pytest.mark.parametrize("text", [b"2", b"01 ", b"x1", b"0b1"])
def test_what_is_no_bit_string_is_refused(text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        bits.parse_bits(text)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (bits.bitwise_and(b"10001", b"01101"), b"00001"),
        (bits.bitwise_or(b"10001", b"01101"), b"11101"),
        (bits.bitwise_xor(b"10001", b"01101"), b"11100"),
        (bits.bitwise_not(b"10001"), b"01110"),
        (bits.shift_left(b"10001", 3), b"01000"),
        (bits.shift_right(b"10001", 2), b"00100"),
        (bits.concatenate(b"10001", b"011"), b"10001011"),
        (bits.overlay(b"01010101010101010", b"11111", 2, 3), b"0111110101010101010"),
        (bits.substring(b"110010111111", 3, 2), b"00"),
        (bits.set_bit(b"101010101010101010", 6, 0), b"101010001010101010"),
    ],
)
def test_the_examples_of_the_manual(result: bytes, expected: bytes) -> None:
    assert result == expected


def test_numbers_of_bits_as_in_the_manual() -> None:
    assert bits.bit_count(b"10111") == 4
    assert bits.octet_length(b"1011111011") == 2
    assert bits.position(b"000001101011", b"010") == 8
    assert bits.get_bit(b"101010101010101010", 6) == 1
    assert bits.to_integer(b"1110") == 14


@pytest.mark.parametrize(
    ("value", "length", "expected"),
    [
        (44, 10, b"0000101100"),
        (44, 3, b"100"),
        (-44, 12, b"111111010100"),
        (-1, 40, b"1" * 40),
        (3, 0, b"1"),
        (2, -1, b"0"),
    ],
)
def test_an_integer_gives_its_last_bits_or_is_filled_with_its_sign(
    value: int, length: int, expected: bytes
) -> None:
    assert bits.from_integer(value, length) == expected


def test_as_many_bits_as_the_integer_has_are_twos_complement() -> None:
    assert bits.to_integer(b"1" * 32) == -1
    assert bits.to_integer(b"1" * 31) == 2**31 - 1
    assert bits.to_bigint(b"1" * 64) == -1
    assert bits.to_bigint(b"") == 0


def test_a_length_cuts_and_only_bit_is_filled() -> None:
    assert bits.to_bit(b"101", 2) == b"10"
    assert bits.to_bit(b"101", 5) == b"10100"
    assert bits.to_varbit(b"101", 2) == b"10"
    assert bits.to_varbit(b"101", 5) == b"101"


def test_a_negative_count_shifts_the_other_way() -> None:
    assert bits.shift_left(b"0110", -1) == b"0011"
    assert bits.shift_right(b"0110", -1) == b"1100"
    assert bits.shift_right(b"0110", 2**31 - 1) == bits.shift_left(b"0110", 2**31 - 1) == b"0000"


def test_positions_before_a_bit_string_count_for_the_length_of_its_part() -> None:
    assert bits.substring(b"10101", -1, 3) == b"1"
    assert bits.substring(b"10101", -10, 3) == b""
    assert bits.substring(b"10101", 2, 2**31 - 1) == b"0101"
    assert bits.substring(b"10101", 4) == b"01"


def test_nothing_is_found_in_an_empty_bit_string_not_even_an_empty_one() -> None:
    assert bits.position(b"", b"") == 0
    assert bits.position(b"1", b"") == 1


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (bits.bitwise_and, (b"1", b"11"), "cannot AND bit strings of different sizes"),
        (bits.bitwise_or, (b"1", b"11"), "cannot OR bit strings of different sizes"),
        (bits.bitwise_xor, (b"1", b"11"), "cannot XOR bit strings of different sizes"),
        (bits.get_bit, (b"101", 3), r"bit index 3 out of valid range \(0\.\.2\)"),
        (bits.set_bit, (b"101", -1, 1), r"bit index -1 out of valid range \(0\.\.2\)"),
        (bits.set_bit, (b"101", 0, 2), "new bit must be 0 or 1"),
        (bits.substring, (b"101", 1, -1), "negative substring length not allowed"),
        (bits.overlay, (b"101", b"1", 0), "negative substring length not allowed"),
        (bits.overlay, (b"101", b"1", 2**31 - 1, 1), "integer out of range"),
        (bits.to_integer, (b"0" * 33,), "integer out of range"),
        (bits.to_bigint, (b"0" * 65,), "bigint out of range"),
    ],
)
def test_what_the_server_refuses_raises_its_error(
    function: object, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(EvaluationError, match=f"^{message}$"):
        function(*arguments)  # type: ignore[operator]
