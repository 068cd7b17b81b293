"""Avro by the schemas in ``schemas/``, for what is not a row and so not on the hot path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from io import BytesIO
from typing import Any

import fastavro
from fastavro.types import Schema

from gateway.core.errors import ProtocolError
from gateway.envelope.bounds import check_datum
from schemas import load

__all__ = ["read_datum", "write_datum"]


def write_datum(name: str, datum: Mapping[str, Any]) -> bytes:
    """Encode `datum` by the schema `name`, without the wire format's prefix."""
    out = BytesIO()
    fastavro.schemaless_writer(out, _schema(name), datum)
    return out.getvalue()


def read_datum(name: str, data: bytes) -> dict[str, Any]:
    """Decode what `write_datum` makes, whoever has written it.

    Raises:
        ProtocolError: it is not one datum of the schema.
    """
    schema = _schema(name)
    check_datum(schema, data)
    try:
        datum = fastavro.schemaless_reader(BytesIO(data), schema, schema)
    except Exception as error:  # of fastavro, which has no class for all of them
        raise ProtocolError(f"{type(error).__name__}: {error}", tag=b"", offset=0) from None
    assert isinstance(datum, dict)
    return datum


@cache
def _schema(name: str) -> Schema:
    return fastavro.parse_schema(load(name))
