"""Avro data that claims to be more than it is."""

from __future__ import annotations

from dataclasses import replace
from importlib import resources
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

import schemas
from gateway.core.errors import ProtocolError, ValueFormatError
from gateway.definitions.model import Element
from gateway.envelope.bounds import MOST_BYTES, DatumBounds
from gateway.envelope.encoding.encoders import compile_row_encoder
from gateway.envelope.encoding.varint import encode_long
from gateway.envelope.schema import describe
from schemas.types import MOST_ITEMS
from tests.unit.envelope.columns import NATIVE, column

NAMES = ["progress", "progress-key", "transaction", "envelope", "error", "message"]


def parsed(schema: Any) -> Any:
    return fastavro.parse_schema(schema)


def golden(name: str) -> bytes:
    return bytes.fromhex(resources.files(schemas).joinpath(f"{name}.hex").read_text("ascii"))


@pytest.mark.parametrize("name", NAMES)
def test_golden_records_pass_and_every_part_of_them_does_not(name: str) -> None:
    schema, data = parsed(schemas.load(name)), golden(name)

    DatumBounds(schema).check(data)
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            DatumBounds(schema).check(data[:end])
    with pytest.raises(ProtocolError, match="1 bytes more"):
        DatumBounds(schema).check(data + b"\0")


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        pytest.param({"type": "array", "items": "null"}, encode_long(1 << 40), id="nulls"),
        pytest.param(
            {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}},
            encode_long(1 << 40),
            id="empty fixed",
        ),
        pytest.param(
            {"type": "array", "items": "null"},
            b"".join(encode_long(1_000_000) for _ in range(3)) + b"\0",
            id="many blocks of nulls",
        ),
        pytest.param("string", encode_long(1 << 60), id="length"),
        pytest.param("bytes", encode_long(-5), id="negative length"),
        pytest.param(["null", "long"], encode_long(2), id="union"),
        pytest.param(["null", "long"], encode_long(-1), id="negative branch"),
        pytest.param({"type": "enum", "name": "e", "symbols": ["a"]}, encode_long(1), id="enum"),
        pytest.param("long", b"\xff" * 20, id="number without end"),
        pytest.param({"type": "map", "values": "null"}, encode_long(1 << 40), id="map"),
        pytest.param("bytes", bytes(MOST_BYTES + 1), id="size"),
        pytest.param(
            {
                "type": "record",
                "name": "r",
                "fields": [{"name": "next", "type": ["null", "r"]}],
            },
            encode_long(1) * 10_000 + b"\0",
            id="depth",
        ),
    ],
)
def test_a_claim_that_the_bytes_do_not_bear_out_is_refused(schema: Any, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        DatumBounds(parsed(schema)).check(data)


@pytest.mark.parametrize(
    ("name", "oid", "item", "values"),
    [
        pytest.param("integer[]", 23, b"7", 1, id="array"),
        pytest.param("interval[]", 1186, b"01:00:00", 4, id="array of records"),
        pytest.param("int4range[]", 3904, b'"[1,5)"', 6, id="array of ranges"),
        pytest.param("hstore", 0, b'"a"=>NULL', 1, id="map"),
    ],
)
def test_a_value_of_as_many_items_as_the_gateway_carries_is_read(
    name: str, oid: int, item: bytes, values: int
) -> None:
    kind = name.removesuffix("[]")
    element = Element(oid, -1, kind, "b") if oid else None
    schema = describe(
        "s", "t", [replace(column("c", (65_000, name)), element=element)], types=NATIVE
    )
    encode = compile_row_encoder(schema, [0])
    text = b", ".join([item] * MOST_ITEMS)
    if element is not None:
        text = b"{%s}" % b",".join([item] * (MOST_ITEMS // values))
    row = schema.value_schema["fields"][0]["type"][1]

    DatumBounds(parsed({**row, "namespace": "s"})).check(encode([text]))
    with pytest.raises(ValueFormatError, match="which readers refuse"):
        encode([text[:-1] + b"," + item + b"}" if element else text + b", " + item])


@given(data=st.binary(max_size=200))
def test_what_passes_is_read_and_written_again_by_fastavro(data: bytes) -> None:
    schema = parsed(schemas.load("progress"))
    try:
        DatumBounds(schema).check(data)
    except ProtocolError:
        return
    try:
        datum = fastavro.schemaless_reader(BytesIO(data), schema, schema)
    except UnicodeDecodeError:
        return
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    assert fastavro.schemaless_reader(BytesIO(out.getvalue()), schema, schema) == datum
