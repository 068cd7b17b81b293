"""Expected values were taken from PostgreSQL 16 and 18."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gateway.errors import ValueFormatError
from gateway.pgtypes import identifiers
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.nan import NAN


def test_an_lsn_is_its_number_of_bytes() -> None:
    assert identifiers.parse_lsn(b"16/B374D848") == 0x16_B374D848
    assert identifiers.parse_lsn(b"0/00000005") == 5
    assert identifiers.subtract_lsns(0x1_00000000, 5) == Decimal(4294967291)


def test_a_number_is_added_to_an_lsn_rounded() -> None:
    assert identifiers.add_to_lsn(1, Decimal("0.5")) == 2
    assert identifiers.add_to_lsn(1, Decimal("18446744073709551614.4")) == 2**64 - 1
    assert identifiers.subtract_from_lsn(7, Decimal(7)) == 0


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (identifiers.add_to_lsn, (1, NAN), "cannot add NaN to pg_lsn"),
        (identifiers.subtract_from_lsn, (1, NAN), "cannot subtract NaN from pg_lsn"),
        (identifiers.add_to_lsn, (1, Decimal("Infinity")), "cannot convert infinity to pg_lsn"),
        (identifiers.subtract_from_lsn, (1, Decimal(2)), "pg_lsn out of range"),
        (identifiers.numeric_to_lsn, (NAN,), "cannot convert NaN to pg_lsn"),
        (identifiers.integer_to_char, (128,), '"char" out of range'),
    ],
)
def test_what_the_server_refuses_raises_its_error(
    function: object, arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(EvaluationError, match=f"^{message}$"):
        function(*arguments)  # type: ignore[operator]


def test_a_tid_is_a_block_and_an_offset() -> None:
    assert identifiers.parse_tid(b"(4294967295,7)") == (4294967295, 7)


@pytest.mark.parametrize(
    ("text", "value", "number"),
    [(b"", 0, 0), (b"a", 97, 97), (b"\\200", 128, -128), (b"\x80", 128, -128), (b"\\", 92, 92)],
)
def test_a_char_is_one_byte_printed_in_either_way(text: bytes, value: int, number: int) -> None:
    assert identifiers.parse_char(text) == value
    assert identifiers.char_to_integer(value) == number
    assert identifiers.integer_to_char(number) == value


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (b"c232ab00-9414-11ec-b3c8-9f6bdeced846", 1),
        (b"5c146b14-3c52-4afd-938a-375d0df1fbf6", 4),
        (b"017f22e2-79b0-7cc3-98c4-dc0c0c07398f", 7),
        (b"00000000-0000-0000-0000-000000000000", None),
    ],
)
def test_the_version_of_a_uuid(text: bytes, version: int | None) -> None:
    assert identifiers.uuid_version(text) == version


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (identifiers.parse_lsn, b"16"),
        (identifiers.parse_lsn, b"x/1"),
        (identifiers.parse_tid, b"1,2"),
        (identifiers.parse_tid, b"(1)"),
        (identifiers.parse_char, b"ab"),
        (identifiers.parse_char, b"\\x41"),
    ],
)
def test_what_does_not_read_is_refused(parse: object, text: bytes) -> None:
    with pytest.raises(ValueFormatError):
        parse(text)  # type: ignore[operator]
