"""Equal keys, equal bytes. That PostgreSQL agrees is shown in tests/oracle."""

from __future__ import annotations

import pytest

from gateway.core.errors import SchemaError, ValueFormatError
from gateway.envelope.canonical import (
    compile_canonical_key,
    partition_of,
)
from gateway.envelope.schema import describe
from gateway.pgoutput.messages import UNCHANGED, BinaryValue, ColumnValue
from tests.golden import equality
from tests.unit.envelope.columns import INT4, T1, TEXT, column

TYPES = {
    "numeric": 1700,
    "real": 700,
    "float8": 701,
    "double precision": 701,
    "character varying": 1043,
    "bpchar": 1042,
    "interval": 1186,
    "timestamptz": 1184,
    "jsonb": 3802,
    "text": 25,
    "numrange": 3906,
    "nummultirange": 4532,
    "numeric[]": 1231,
    "numrange[]": 3907,
    "nummultirange[]": 6151,
    "double precision[]": 1022,
    "real[]": 1021,
}


def canonical(type_name: str, text: bytes) -> bytes:
    schema = describe("public", "t", [column("c", (TYPES[type_name], type_name))], ("c",))
    return compile_canonical_key(schema, [0])((text,))


@pytest.mark.parametrize(
    ("type_name", "one", "other"),
    [
        ("numeric", b"1.0", b"1.00"),
        ("numeric", b"100", b"100.000"),
        ("numeric", b"0", b"0.00"),
        ("numeric", b"-1.50", b"-1.5"),
        ("numeric", b"NaN", b"NaN"),
        ("float8", b"-0", b"0"),
        ("bpchar", b"ab   ", b"ab"),
        ("interval", b"1 day", b"24:00:00"),
        ("interval", b"1 mon", b"30 days"),
        ("interval", b"1 year", b"12 mons"),
        ("interval", b"-1 days +24:00:00", b"00:00:00"),
        ("interval", b"1 mon -1 days", b"29 days"),
        ("interval", b"-00:00:00.5", b"-00:00:00.500000"),
        ("timestamptz", b"2024-01-01 12:00:00+00", b"2024-01-01 13:00:00+01"),
        ("jsonb", b'{"a": 1.0}', b'{"a": 1.00}'),
    ],
)
def test_values_that_are_equal_have_one_form(type_name: str, one: bytes, other: bytes) -> None:
    assert canonical(type_name, one) == canonical(type_name, other)


@pytest.mark.parametrize(
    ("type_name", "one", "other"),
    [
        ("numeric", b"1", b"10"),
        ("numeric", b"100", b"1"),
        ("numeric", b"1", b"-1"),
        ("text", b"ab ", b"ab"),
        ("text", b"1.0", b"1.00"),
        ("interval", b"1 day", b"23:59:59"),
        ("interval", b"infinity", b"-infinity"),
        ("jsonb", b'{"a": "1.0"}', b'{"a": "1.00"}'),
        ("jsonb", b'["\\"1.0"]', b'["\\"1.00"]'),
    ],
)
def test_values_that_differ_keep_apart(type_name: str, one: bytes, other: bytes) -> None:
    assert canonical(type_name, one) != canonical(type_name, other)


@pytest.mark.parametrize("pair", equality.read(), ids=lambda pair: "|".join(pair[:3]))
def test_keys_are_equal_when_postgresql_says_so(pair: equality.Pair) -> None:
    one, other = (canonical(pair.pg_type, text.encode()) for text in (pair.one, pair.other))

    assert (one == other) is pair.equal


def test_a_number_of_many_digits_takes_no_time_to_speak_of() -> None:
    digits = b"1" * 131_072

    for type_name in ("jsonb", "numeric[]"):
        assert canonical(type_name, b"[%b, 1.0]" % digits).endswith(digits + b", 1]")


def test_columns_are_kept_apart_by_their_lengths() -> None:
    schema = describe("public", "t", [column("a", TEXT), column("b", TEXT)], ("a", "b"))
    canonical_key = compile_canonical_key(schema, [0, 1])

    assert canonical_key((b"ab", b"c")) == b"\x00\x00\x00\x02ab\x00\x00\x00\x01c"
    assert canonical_key((b"a", b"bc")) == b"\x00\x00\x00\x01a\x00\x00\x00\x02bc"


def test_a_long_value_has_its_length() -> None:
    assert canonical("text", b"x" * 5000) == b"\x00\x00\x13\x88" + b"x" * 5000


def test_null_in_a_whole_row_is_not_the_empty_string() -> None:
    schema = describe("public", "t", [column("a", TEXT)], ())
    canonical_key = compile_canonical_key(schema, [0])

    assert canonical_key((None,)) == b"\xff\xff\xff\xff"
    assert canonical_key((b"",)) == b"\x00\x00\x00\x00"


def test_the_documents_worked_example() -> None:
    canonical_key = compile_canonical_key(describe("public", "t1", T1, ("a", "c")), [0, 1, 2])

    form = canonical_key((b"6", b"106", b"NSW"))

    assert form.hex(" ", 1) == "00 00 00 01 36 00 00 00 03 4e 53 57"
    # CRC-32 as gzip(1) writes it into its trailer for these twelve bytes.
    assert partition_of(form, 2**32) == 0x23244D32
    assert partition_of(form, 4) == 2


# "check" value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
def test_the_hash_is_crc_32_iso_hdlc() -> None:
    assert partition_of(b"123456789", 2**32) == 0xCBF43926


@pytest.mark.parametrize("value", [UNCHANGED, BinaryValue(b"x")])
def test_a_key_that_was_not_sent_or_is_binary_is_refused(value: ColumnValue) -> None:
    schema = describe("public", "t", [column("a", INT4)], ("a",))

    with pytest.raises(ValueFormatError, match=r"public\.t: "):
        compile_canonical_key(schema, [0])((value,))


def test_an_interval_in_another_style_is_refused() -> None:
    with pytest.raises(ValueFormatError) as caught:
        canonical("interval", b"P1DT2H")

    assert caught.value.hint is not None
    assert "IntervalStyle" in caught.value.hint


def test_a_table_without_a_key_has_no_canonical_key() -> None:
    with pytest.raises(SchemaError, match="has no key"):
        compile_canonical_key(describe("public", "t1", T1), [0, 1, 2])
