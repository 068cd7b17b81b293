"""Kafka records as the topic contract describes them, made with fastavro: no gateway code."""

from __future__ import annotations

import io
import json
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro
from pyspark.sql import DataFrame, SparkSession

import schemas

KAFKA_COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long,"
    " headers array<struct<key: string, value: binary>>"
)


@dataclass(frozen=True)
class Record:
    """A Kafka record before it has a place in its topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    partition: int = 0


class StaticSchemas:
    """A schema registry in memory: gives ids, and gives schemas back."""

    def __init__(self) -> None:
        self._schemas: list[dict[str, Any]] = []

    def register(self, schema: dict[str, Any]) -> int:
        if schema not in self._schemas:
            self._schemas.append(schema)
        return self._schemas.index(schema) + 1

    def schema(self, schema_id: int) -> dict[str, Any]:
        from spark_consumer.errors import ContractError

        if not 0 < schema_id <= len(self._schemas):
            raise ContractError(f"the schema registry has no schema with id {schema_id}")
        return self._schemas[schema_id - 1]


class VariantSchemas(StaticSchemas):
    """A registry in memory, as a job with json = "variant" reads it."""

    def schema(self, schema_id: int) -> dict[str, Any]:
        from spark_consumer.kafka.schema_contract import parsed_schema

        return parsed_schema(schema_id, json.dumps(super().schema(schema_id)), "variant")


@dataclass(frozen=True)
class Col:
    """A column: Avro field and type, PostgreSQL type, its name where it differs, its number, and
    what rows have in it that were there before it."""

    field: str
    avro: Any
    pg_type: str
    name: str | None = None
    number: int | None = None
    missing: str | None = None


def namespace(schema: str, table: str) -> str:
    """The records' namespace: names escaped as column names are."""
    parts = [
        re.sub("[^A-Za-z0-9_]", lambda match: f"_x{ord(match[0]):04X}_", name)
        for name in (schema, table)
    ]
    return ".".join(["pgsluice", *parts])


def value_schema(schema: str, table: str, columns: Sequence[Col]) -> dict[str, Any]:
    envelope = schemas.load("envelope")
    envelope["namespace"] = namespace(schema, table)
    fields: list[dict[str, Any]] = []
    for column in columns:
        entry: dict[str, Any] = {
            "name": column.field,
            "type": ["null", column.avro],
            "default": None,
            "pg_type": column.pg_type,
        }
        if column.name is not None:
            entry["pg_column"] = column.name
        if column.number is not None:
            entry["pg_attnum"] = column.number
        if column.missing is not None:
            entry["pg_missing"] = column.missing
        fields.append(entry)
    envelope["fields"][0]["type"][1]["fields"] = fields
    return envelope


def key_schema(
    schema: str, table: str, columns: Sequence[Col], *, nullable: bool = False
) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Key",
        "namespace": namespace(schema, table),
        "fields": [
            {"name": c.field, "type": ["null", c.avro] if nullable else c.avro} for c in columns
        ],
    }


def encode(schema_id: int, schema: dict[str, Any], datum: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), dict(datum))
    return struct.pack(">bI", 0, schema_id) + buffer.getvalue()


def header_lsn(lsn: int) -> str:
    return f"{lsn >> 32:08X}/{lsn & 0xFFFFFFFF:08X}"


@dataclass
class TableTopic:
    """Writes the records of one subscriber table.

    Attributes:
        key: Fields of the key; None for no key, empty for the whole row.
        identity: Fields that identify a row where the key has other ones.
        partitions: Number of partitions of the topic; a key's records are all in one.
    """

    registry: Any
    topic: str
    columns: list[Col]
    key: list[str] | None
    schema: str = "public"
    table: str = "t"
    records: list[Record] = field(default_factory=list)
    partitions: int = 1
    identity: list[str] | None = None

    def change(
        self,
        op: str,
        commit_lsn: int,
        seq: int,
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        unchanged: Iterable[str] = (),
        rekey: str | None = None,
        snapshot: str = "false",
    ) -> None:
        """Append one record; a `d` with a key is followed by its tombstone."""
        row = before if op == "d" else after
        headers = [("lsn", header_lsn(commit_lsn)), ("commit_lsn", header_lsn(commit_lsn))]
        headers += [("xid", str(commit_lsn)), ("seq", str(seq)), ("op", op)]
        if rekey is not None:
            headers.append(("rekey", rekey))
        encoded = [(name, text.encode()) for name, text in headers]
        key = None if row is None or self.key is None else self._key(row)
        identity = "n" if self.key is None else "d" if self.key else "f"
        value = self._value(
            {
                "before": before,
                "after": after,
                "op": op,
                "unchanged": list(unchanged),
                "source": {
                    "version": "0", "connector": "pgsluice", "name": "g", "db": "d",
                    "schema": self.schema, "table": self.table, "identity": identity,
                    "ts_ms": 0, "snapshot": snapshot, "commit_lsn": commit_lsn,
                    "lsn": commit_lsn, "seq": seq,
                },
            }
        )  # fmt: skip
        places = [self._partition(row)] if op != "t" else list(range(self.partitions))
        for place in places:
            self.records.append(Record(self.topic, key, value, encoded, place))
        if op == "d" and self.key and self.identity is None:
            self.records.append(Record(self.topic, key, None, encoded, *places))

    def rekey(
        self,
        commit_lsn: int,
        seq: int,
        *,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        unchanged: Iterable[str] = (),
    ) -> None:
        """Append both halves of a key change."""
        self.change("d", commit_lsn, seq, before=before, rekey="old")
        self.change(
            "c", commit_lsn, seq + 1, before=before, after=after, unchanged=unchanged, rekey="new"
        )

    def truncate(self, commit_lsn: int, seq: int, snapshot: str = "false") -> None:
        self.change("t", commit_lsn, seq, snapshot=snapshot)

    def _partition(self, row: Mapping[str, Any] | None) -> int:
        """By the key's values; numbers in text that are equal are in one partition."""
        if row is None or self.partitions == 1:
            return 0
        names = self.key or [column.field for column in self.columns]
        texts = [re.sub(r"(\.[0-9]*?)0*$", r"\1", str(row.get(name))).rstrip(".") for name in names]
        return zlib.crc32("|".join(texts).encode()) % self.partitions

    def _key(self, row: Mapping[str, Any]) -> bytes:
        names = self.key or [column.field for column in self.columns]
        columns = [column for column in self.columns if column.field in names]
        nullable = not self.key or self.identity is not None
        schema = key_schema(self.schema, self.table, columns, nullable=nullable)
        return encode(
            self.registry.register(schema), schema, {name: row.get(name) for name in names}
        )

    def _value(self, datum: Mapping[str, Any]) -> bytes:
        schema = value_schema(self.schema, self.table, self.columns)
        if self.identity is not None:
            schema["pg_identity"] = self.identity
        return encode(self.registry.register(schema), schema, datum)


def frame(spark: SparkSession, records: Iterable[tuple[int, Record]]) -> DataFrame:
    """Records with their offsets, as Spark's Kafka source gives them."""
    rows = []
    for offset, record in records:
        # Null where there are none: KafkaRecordToRowConverter.
        headers = [(name, bytearray(value)) for name, value in record.headers] or None
        key = None if record.key is None else bytearray(record.key)
        value = None if record.value is None else bytearray(record.value)
        rows.append((key, value, record.topic, record.partition, offset, headers))
    return spark.createDataFrame(rows, KAFKA_COLUMNS)
