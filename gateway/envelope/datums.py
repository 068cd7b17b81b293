"""Avro by the schemas in ``schemas/``, for what is not a row and so not on the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from io import BytesIO
from typing import Any

import fastavro
from fastavro.types import Schema

from gateway.core.errors import ProtocolError
from gateway.envelope.bounds import DatumBounds
from schemas import load

__all__ = ["parsed_schema", "read_datum", "write_datum"]


def write_datum(name: str, datum: Mapping[str, Any]) -> bytes:
    """Encode `datum` by the schema `name`, without the wire format's prefix."""
    out = BytesIO()
    fastavro.schemaless_writer(out, parsed_schema(name), datum)
    return out.getvalue()


def read_datum(name: str, data: bytes) -> dict[str, Any]:
    """Decode what `write_datum` makes, whoever has written it.

    Raises:
        ProtocolError: it is not one datum of the schema.
    """
    schema = parsed_schema(name)
    _bounds(name).check(data)
    try:
        datum = fastavro.schemaless_reader(BytesIO(data), schema, schema)
    except Exception as error:  # of fastavro, which has no class for all of them
        raise ProtocolError(f"{type(error).__name__}: {error}", tag=b"", offset=0) from None
    assert isinstance(datum, dict)
    return datum


@cache
def _bounds(name: str) -> DatumBounds:
    return DatumBounds(parsed_schema(name))


@cache
def parsed_schema(name: str) -> Schema:
    """Return the schema `name` of ``schemas/``, parsed once."""
    return fastavro.parse_schema(load(name))
