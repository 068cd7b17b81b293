"""Values and descriptions of masked columns as they leave the gateway."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import pytest

from gateway.definitions.model import Column
from gateway.envelope.masking import masked_columns, row_mask
from gateway.envelope.schema import describe
from gateway.pgoutput.messages import UNCHANGED, BinaryValue, ColumnValue
from schemas.settings.masks import Mask

KEY = b"0123456789abcdef0123456789abcdef"
HASH, NULL = Mask("hash"), Mask("null")


def column(type_oid: int, type_name: str, *, kind: str = "b", base: int = 0) -> Column:
    return Column(
        "c", 1, type_oid, -1, type_name, base or type_oid, -1, kind, False, "", None
    )  # fmt: skip


TEXT = column(25, "text")


def masked(value: ColumnValue, mask: Mask, of: Column = TEXT, *, key: bytes = KEY) -> ColumnValue:
    (result,) = row_mask([of], [0], ((of.name, mask),), key)([value])
    return result


def hmac_of(text: bytes) -> bytes:
    """The definition, by Python's own modules."""
    return hmac.new(KEY, text, hashlib.sha256).hexdigest().encode()


def test_a_hash_is_hmac_sha_256_in_hexadecimal_digits() -> None:
    # RFC 4231, test case 2.
    found = masked(b"what do ya want for nothing?", HASH, key=b"Jefe")

    assert found == b"5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"


@pytest.mark.parametrize(
    ("of", "equal", "canonical"),
    [
        (TEXT, [b"a"], b"a"),
        (column(23, "integer"), [b"42"], b"42"),
        (column(1700, "numeric(10,2)"), [b"1.5", b"1.50"], b"1.5"),
        (column(701, "double precision"), [b"0", b"-0"], b"0"),
        (column(1042, "character(3)"), [b"a", b"a  "], b"a"),
        (
            column(1184, "timestamp with time zone"),
            [b"2000-01-01 00:00:01+00", b"2000-01-01 01:00:01+01"],
            b"1000000",
        ),
        (column(99999, "price", kind="d", base=1700), [b"2.0", b"2"], b"2"),
    ],
    ids=lambda value: value.type_name if isinstance(value, Column) else "",
)
def test_equal_values_have_one_hash(of: Column, equal: list[bytes], canonical: bytes) -> None:
    assert {masked(text, HASH, of) for text in equal} == {hmac_of(canonical)}


def test_another_key_makes_another_hash() -> None:
    assert masked(b"a", HASH, key=b"k" * 32) != masked(b"a", HASH)


def test_a_hash_without_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="without a key"):
        masked(b"a", HASH, key=b"")


@pytest.mark.parametrize(
    ("of", "text", "length", "shown"),
    [
        (TEXT, b"abcdef", 3, b"abc"),
        (TEXT, b"ab", 3, b"ab"),
        (TEXT, b"abc", 0, b""),
        (TEXT, "äöü€".encode(), 3, "äöü".encode()),
        (TEXT, b"\xff\xfeab", 3, b"\xff\xfea"),
        (column(1042, "character(5)"), b"a    ", 3, b"a"),
        (column(1184, "timestamp with time zone"), b"yesterday", 3, b"yes"),
    ],
)
def test_truncate_leaves_the_first_characters(
    of: Column, text: bytes, length: int, shown: bytes
) -> None:
    assert masked(text, Mask("truncate", length), of) == shown


@pytest.mark.parametrize("mask", [HASH, Mask("truncate", 2)])
def test_null_and_unchanged_stay(mask: Mask) -> None:
    assert masked(None, mask) is None
    assert masked(UNCHANGED, mask) is UNCHANGED


@pytest.mark.parametrize("value", [b"a", None, UNCHANGED, BinaryValue(b"a")])
def test_null_is_null_whatever_was_sent(value: ColumnValue) -> None:
    assert masked(value, NULL) is None


def test_a_value_in_binary_format_is_left_to_be_refused_without_its_bytes() -> None:
    found = masked(BinaryValue(b"\x00\x2a"), HASH, column(23, "integer"))

    assert isinstance(found, BinaryValue)
    assert found == b""


def test_a_value_that_does_not_read_is_hashed_as_it_is() -> None:
    of = column(1184, "timestamp with time zone")

    assert masked(b"yesterday", HASH, of) == hmac_of(b"yesterday")


def test_a_row_keeps_its_other_columns_and_the_tuple_itself_is_not_changed() -> None:
    row = [b"1", b"secret", b"x"]

    found = row_mask([replace(TEXT, name="s")], [1], (("s", NULL),), KEY)(row)

    assert found == [b"1", None, b"x"]
    assert row == [b"1", b"secret", b"x"]


@pytest.mark.parametrize(
    ("mask", "avro", "missing"),
    [
        (HASH, ["null", "string"], hmac_of(b"7").decode()),
        (NULL, ["null", "int"], None),
    ],
)
def test_the_schema_has_the_type_that_is_published_and_no_value_of_older_rows(
    mask: Mask, avro: list[str], missing: str | None
) -> None:
    of = replace(column(23, "integer"), missing="7", labels=("secret",))

    columns = masked_columns([of], (("c", mask),), KEY)
    value = describe("public", "t", columns).value_schema

    (field,) = value["fields"][0]["type"][1]["fields"]
    assert (field["type"], field["default"], field.get("pg_missing")) == (avro, None, missing)
    assert field["pg_type"] == ("text" if mask is HASH else "integer")
    assert field["pg_attnum"] == 1
    assert "pg_labels" not in field
