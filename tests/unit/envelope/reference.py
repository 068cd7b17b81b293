"""The encoders once more, slow and readable: text -> Python value -> fastavro.

They say in few lines what the generated functions of `gateway.envelope.encoding.encoders` mean, and
the property tests hold these to them, byte for byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro

from gateway.envelope.encoding.conversions import (
    avro_date,
    avro_hstore,
    avro_interval,
    avro_sparsevec,
    avro_time,
    avro_timestamp,
    avro_timestamptz,
    avro_vector,
)
from gateway.envelope.schema import Field, TableSchema
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from schemas.array_text import array_items
from schemas.range_text import multirange_ranges, range_bounds

__all__ = ["encode_key_slowly", "encode_row_slowly", "python_value", "row_datum"]


def python_value(field: Field, value: ColumnValue) -> object:
    """Return what fastavro takes for a value; dates and times are integers since 1970."""
    if value is None or value is UNCHANGED:
        return None
    if field.type.array and field.item is not None:
        return [python_value(field.item, one) for one in array_items(value)]
    if field.type.ranges and field.item is not None:
        return [python_value(field.item, one) for one in multirange_ranges(value)]
    if field.item is not None:
        lower, upper, *included = range_bounds(value) or (None, None, False, False)
        bounds = (python_value(field.item, one) for one in (lower, upper))
        return dict(zip(field.type.fields, (*bounds, *included, value == b"empty"), strict=True))
    match field.type.avro, field.type.logical:
        case "boolean", _:
            return {b"t": True, b"f": False}[value]
        case "int", "date":
            return avro_date(value)
        case "long", "local-timestamp-micros":
            return avro_timestamp(value)
        case "long", "time-micros":
            return avro_time(value)
        case "long", "timestamp-micros":
            return avro_timestamptz(value)
        case "int" | "long", "":
            return int(value)
        case "float" | "double", _:
            return float(value)
        case "bytes", "decimal":
            return Decimal(value.decode())
        case "bytes", _:
            return bytes.fromhex(value.decode().removeprefix("\\x"))
        case "string", _:
            return value.decode()
        case "map", _:
            pairs = ((key.decode(), one) for key, one in avro_hstore(value))
            return {key: None if one is None else one.decode() for key, one in pairs}
        case "array", _:
            return avro_vector(value)
        case "record", _ if field.type.conversion == "sparsevec":
            return dict(zip(field.type.fields, avro_sparsevec(value), strict=True))
        case "record", _:
            return dict(zip(field.type.fields, avro_interval(value), strict=True))
        case other:
            raise AssertionError(other)


def row_datum(
    schema: TableSchema, indexes: Sequence[int], row: Sequence[ColumnValue]
) -> dict[str, object]:
    """Return the record ``Value`` of a tuple as a dict."""
    return {
        field.name: python_value(field, row[index])
        for field, index in zip(schema.fields, indexes, strict=True)
    }


def encode_row_slowly(
    schema: TableSchema, indexes: Sequence[int], row: Sequence[ColumnValue]
) -> bytes:
    """Do what `gateway.envelope.encoding.encoders.compile_row_encoder` prepares."""
    record = schema.value_schema["fields"][0]["type"][1]
    named = {**record, "namespace": schema.value_schema["namespace"]}
    return _write(named, row_datum(schema, indexes, row))


def encode_key_slowly(
    schema: TableSchema, indexes: Sequence[int], row: Sequence[ColumnValue]
) -> bytes:
    """Do what `gateway.envelope.encoding.encoders.compile_key_encoder` prepares."""
    assert schema.key_schema is not None
    datum = row_datum(schema, indexes, row)
    return _write(schema.key_schema, {f.name: datum[f.name] for f in schema.key_fields})


def _write(schema: dict[str, Any], datum: dict[str, object]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), datum)
    return out.getvalue()
