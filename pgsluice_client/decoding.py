"""Records of topics decoded, each with the schema that its ID names.

A reader that used one schema for all records would misread those of another: registries compare
Avro types alone, and two types of PostgreSQL can have the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, Final

import fastavro

from pgsluice_client.changes import Change, Column, Row
from pgsluice_client.errors import ReadError, UnsupportedTopicError
from pgsluice_client.values import converter, readable
from schemas.types import of_spark

__all__ = ["Decoder", "Record"]

_ID_BYTES: Final = 4
_FORMATS: Final = "it can be read with other clients (docs/envelope.md, Formats), or"
_FORMATS_HINT: Final = 'give the subscription [envelope] format = "pgsluice", with truncates'


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a table's topic, as Kafka has it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]


class Decoder:
    """Decoder of records and markers.

    Args:
        schema_of: Function from the ID of a schema to its text.
    """

    def __init__(self, schema_of: Callable[[int], str]) -> None:
        self._schema_of = schema_of
        self._schema = cache(self._parse)
        self._columns = cache(self._read_columns)

    def marker(self, wire: bytes) -> dict[str, Any]:
        """Return a marker of the subscription.

        Raises:
            ReadError: it is none.
        """
        _, datum = self._read(wire, "the marker topic")
        if "kind" not in datum:
            raise ReadError("the marker topic has a record that is no marker")
        return datum

    def changes(self, records: Sequence[Record]) -> tuple[Change, ...]:
        """Return the changes of one transaction, both halves of a key change as one.

        Args:
            records: Its records in their order, without tombstones.

        Raises:
            UnsupportedTopicError: a topic has another format than ``pgsluice``.
            ReadError: a record is not what docs/envelope.md says.
        """
        found: list[Change] = []
        left: Change | None = None
        for record in records:
            change = self._change(record)
            half = record.headers.get("rekey")
            if (half == b"new") != (left is not None):
                raise ReadError(f"{_place(record)}: half of a key change without the other")
            if half == b"old":
                left = change
                continue
            found.append(change if left is None else _moved(left, change))
            left = None
        if left is not None:
            raise ReadError(f"{left.schema}.{left.table}: half of a key change without the other")
        return tuple(found)

    def _change(self, record: Record) -> Change:
        assert record.value is not None
        value_id, value = self._read(record.value, _place(record))
        columns = self._columns(value_id, record.topic)
        source = value["source"]
        before, after = _row(value["before"], columns), _row(value["after"], columns)
        identity = self._schema(value_id)[0].get("pg_identity")
        if identity is None:
            key = None if record.key is None else self._key(record, columns)
        else:  # the key has other columns
            # The old row, where it was logged, has also large values that were not sent.
            row = after if value["op"] in "cr" else before or after
            of_row = [column for column in columns if column.field in identity]
            key = {one.name: row[one.name] for one in of_row} if row and of_row else None
        names = {column.field: column.name for column in columns}
        return Change(
            schema=source["schema"],
            table=source["table"],
            op=value["op"],
            key=key,
            old_key=key,
            before=before,
            after=after,
            unchanged=frozenset(names[name] for name in value["unchanged"]),
            begins_copy=value["op"] == "t" and source["snapshot"] == "first",
            lsn=record.headers["lsn"].decode(),
            seq=source["seq"],
            columns=columns,
        )

    def _key(self, record: Record, columns: tuple[Column, ...]) -> Row | None:
        assert record.key is not None
        key_id, key = self._read(record.key, _place(record))
        fields = self._schema(key_id)[0]["fields"]
        if any(isinstance(field["type"], list) for field in fields):
            return None  # the whole row, of which there can be several that are equal
        of_key = {field["name"] for field in fields}
        return _row(key, tuple(column for column in columns if column.field in of_key))

    def _read(self, wire: bytes, place: str) -> tuple[int, dict[str, Any]]:
        if wire[:1] != b"\0" or len(wire) <= _ID_BYTES:
            raise ReadError(f"{place}: not in Confluent's wire format")
        schema_id = int.from_bytes(wire[1 : 1 + _ID_BYTES])
        _, schema = self._schema(schema_id)
        datum = fastavro.schemaless_reader(BytesIO(wire[1 + _ID_BYTES :]), schema, None)
        assert isinstance(datum, dict)
        return schema_id, datum

    def _parse(self, schema_id: int) -> tuple[dict[str, Any], Any]:
        written = json.loads(self._schema_of(schema_id))
        if not isinstance(written, dict) or written.get("type") != "record":
            raise ReadError(f"schema {schema_id} is not that of a record")
        # The times of markers are all within what Python can represent.
        is_marker = written["name"] == "Marker"
        return written, fastavro.parse_schema(written if is_marker else readable(written))

    def _read_columns(self, schema_id: int, topic: str) -> tuple[Column, ...]:
        schema, _ = self._schema(schema_id)
        _check_format(schema, topic)
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        (row,) = [kind for kind in fields["before"] if isinstance(kind, dict)]
        return tuple(map(_column, row["fields"]))


def _check_format(schema: Mapping[str, Any], topic: str) -> None:
    if schema["name"] == "Row":
        what = 'the format "row", which has no truncates, no old rows and no copies'
    elif "connect.name" in schema:
        what = 'the format "debezium", whose dates and times have types of its own'
    elif schema.get("pg_truncates") is False:
        what = "no truncates ([envelope] without_truncates)"
    elif schema["name"] != "Envelope":
        what = f"records of another schema, {schema['name']}"
    else:
        return
    raise UnsupportedTopicError(f"topic {topic} has {what}", hint=f"{_FORMATS} {_FORMATS_HINT}")


def _column(field: Mapping[str, Any]) -> Column:
    (avro,) = [kind for kind in field["type"] if kind != "null"]
    pg_type = field.get("pg_type", "")
    return Column(
        name=field.get("pg_column", field["name"]),
        field=field["name"],
        number=field.get("pg_attnum"),
        type=pg_type,
        canonical=of_spark("string", field.get("pg_base_type", pg_type)).key
        if avro == "string"
        else "",
        avro=avro,
        missing=field.get("pg_missing"),
        convert=converter(avro),
    )


def _row(datum: Mapping[str, Any] | None, columns: tuple[Column, ...]) -> Row | None:
    if datum is None:
        return None
    row = {}
    for column in columns:
        value = datum[column.field]
        convert = column.convert
        row[column.name] = value if convert is None or value is None else convert(value)
    return row


def _moved(left: Change, arrived: Change) -> Change:
    if (left.schema, left.table) != (arrived.schema, arrived.table):
        raise ReadError(f"{left.schema}.{left.table}: half of a key change without the other")
    return Change(
        schema=arrived.schema,
        table=arrived.table,
        op="u",
        key=arrived.key,
        old_key=left.key,
        before=left.before,
        after=arrived.after,
        unchanged=arrived.unchanged,
        begins_copy=False,
        lsn=arrived.lsn,
        seq=arrived.seq,
        columns=arrived.columns,
    )


def _place(record: Record) -> str:
    return f"topic {record.topic}, partition {record.partition}, offset {record.offset}"
