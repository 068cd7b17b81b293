"""Avro's integers."""

from __future__ import annotations

from io import BytesIO

import fastavro
import pytest

from gateway.envelope.encoding.varint import LENGTHS, UNION_LENGTHS, encode_long, encode_text

BORDERS = sorted(
    {sign * ((1 << bits) + step) for bits in range(63) for step in (-1, 0, 1) for sign in (1, -1)}
    | {2**63 - 1, -(2**63)}
)


def by_fastavro(schema: object, datum: object) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, datum)  # type: ignore[arg-type]
    return out.getvalue()


# The examples of the Avro specification.
@pytest.mark.parametrize(
    ("number", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (2, "04"), (-64, "7f"), (64, "8001")],
)
def test_the_specifications_examples(number: int, encoded: str) -> None:
    assert encode_long(number).hex() == encoded


@pytest.mark.parametrize("number", BORDERS)
def test_a_long_is_encoded_as_fastavro_does(number: int) -> None:
    assert encode_long(number) == by_fastavro("long", number)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 4095, 8191])
def test_a_length_that_is_looked_up_is_the_encoded_length(length: int) -> None:
    assert LENGTHS[length] == by_fastavro("long", length)
    assert UNION_LENGTHS[length] == b"\x02" + by_fastavro("long", length)


def test_the_tables_of_lengths_end_where_the_generated_code_expects_it() -> None:
    assert len(LENGTHS) == len(UNION_LENGTHS) == 8192


def test_a_string_is_encoded_with_its_length_in_bytes() -> None:
    assert encode_text("Größe") == by_fastavro("string", "Größe")
