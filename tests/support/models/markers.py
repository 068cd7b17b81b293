"""Markers as other teams read them: with their schema."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro

import schemas


def decode_marker(data: bytes) -> dict[str, Any]:
    """The datum of any marker; times become `datetime.datetime`."""
    schema = fastavro.parse_schema(schemas.load("transaction"))
    datum = fastavro.schemaless_reader(BytesIO(data), schema, schema)
    assert isinstance(datum, dict)
    return datum
