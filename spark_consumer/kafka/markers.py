"""Markers of ``<subscription>.transaction``: possible cuts, and the records before each.

A PROGRESS marker that names offsets is the last record of a Kafka transaction. Reading every topic
partition until the `Range.next` of any one of them gives whole source transactions over all tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from spark_consumer.display import shown
from spark_consumer.errors import ConsumerError, ContractError
from spark_consumer.kafka.batch_profile import AVRO_OPTIONS, schema_id, schema_number
from spark_consumer.kafka.decode import prefixed
from spark_consumer.kafka.registry import Schemas
from spark_consumer.names import part
from spark_consumer.spark.failures import every_table
from spark_consumer.spark.tuning import gather

__all__ = [
    "Claim",
    "Copy",
    "Damaged",
    "Marker",
    "Owner",
    "Range",
    "Reading",
    "read_markers",
]

Owner: TypeAlias = tuple[str, str, str]
"""Owner of topics: system identifier, database and slot."""


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one Kafka transaction in a topic partition.

    Attributes:
        partition: Number of the partition.
        first: Offset of the first record.
        next: Offset after the last record.
        previous: `next` of the previous Kafka transaction; 0 if there was none.
        records: Number of records, tombstones included.
    """

    partition: int
    first: int
    next: int
    previous: int
    records: int


@dataclass(frozen=True, slots=True)
class Marker:
    """A PROGRESS marker.

    Attributes:
        offset: Offset of the marker.
        end_lsn: LSN until which everything has been published.
        commit_time: Commit time at the source, microseconds since 1970; None if not known.
        ranges: Ranges by topic; empty if only the LSN advanced.
        writer: Writer of the marker; None if the marker does not name it.
    """

    offset: int
    end_lsn: int
    commit_time: int | None = None
    ranges: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    writer: Owner | None = None

    def records(self) -> int:
        """Return the number of records of its Kafka transaction in tables' topics."""
        return sum(one.records for ranges in self.ranges.values() for one in ranges)


@dataclass(frozen=True, slots=True)
class Copy:
    """A COPY marker: state change of a table's copy.

    Attributes:
        offset: Offset of the marker.
        table: ``schema.table``.
        state: New state: ``pending``, ``copying``, ``ready``; ``held``: the table is not published
            until it is copied; ``missing``, ``gone``: it is no longer published.
        reason: Reason for which the table is held, or missing.
        writer: Writer of the marker; None if the marker does not name it.
    """

    offset: int
    table: str
    state: str
    reason: str = ""
    writer: Owner | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A CLAIM marker: a gateway claims the subscription's topics.

    Attributes:
        offset: Offset of the marker.
        writer: Gateway that claims the topics.
        taken_from: Previous owner, if the topics were taken over on purpose.
    """

    offset: int
    writer: Owner | None
    taken_from: Owner | None


@dataclass(frozen=True, slots=True)
class Damaged:
    """A record of the marker topic that is no marker, so was not written by a gateway.

    Attributes:
        offset: Offset of the record.
        reason: Defect of the record.
    """

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Markers of a frame of the marker topic.

    Attributes:
        found: Markers in the order of the topic, until the first record that cannot be read.
        error: Reason for which that record cannot be read; None if all can.
    """

    found: list[Marker | Copy | Claim | Damaged]
    error: ConsumerError | None = None


def read_markers(records: DataFrame, schemas: Schemas) -> Reading:
    """Read the PROGRESS, COPY and CLAIM markers of a frame of the marker topic, in its order.

    A record that no gateway writes is `Damaged`. One whose schema is unknown, or is not that of a
    marker, may be the gateway's own: reading stops there until it can be decoded.

    Args:
        records: Frame of value and offset, from Spark's Kafka source.
        schemas: Writer schemas by ID.

    Raises:
        TransientConsumerError: the registry does not answer.
    """
    number, body = prefixed("value")
    whole = F.expr("length(value) > 5 AND substring(value, 1, 1) = X'00'")
    cut = records.select("offset", F.when(whole, number).alias("value_id"), body.alias("body"))
    # Read once, for two queries: Spark counts what it reads as the batch's rows.
    cut = gather(cut, records.sparkSession)
    # Frames that Spark evaluates on the driver, without a job, like what is made of them.
    rows = cut.select("offset", "value_id").collect()
    ids = sorted((row["offset"], row["value_id"]) for row in rows if row["value_id"] is not None)
    first = {bytes(value_id): offset for offset, value_id in reversed(ids)}
    frames = []
    if len(ids) < len(rows):
        damaged = cut.where("value_id IS NULL")
        frames.append(damaged.select("offset", *(F.lit(None).alias(name) for name in _TYPES)))
    end, why = None, None
    # In this order: after the first schema that cannot be read, no other one is fetched.
    for index, (value_id, offset) in enumerate(sorted(first.items(), key=lambda one: one[1])):
        try:
            if index == _MOST_SCHEMAS:
                raise ContractError(
                    f"the topic has more than {_MOST_SCHEMAS} schemas",
                    hint="is it written by something else than the gateway?",
                )
            frames.append(_decoded(cut, schema_number(value_id), schemas))
        except ContractError as error:
            end, why = offset, _at(offset, error)
            break
    if not frames:
        return Reading([], why)
    wanted = reduce(DataFrame.union, frames)
    if end is not None:
        wanted = wanted.where(F.col("offset") < end)
    rows = wanted.collect()
    found = [_marker(row) for row in sorted(rows, key=lambda row: int(row["offset"]))]
    return Reading([one for one in found if one is not None], why)


_MOST_SCHEMAS: Final = 64
"""Most schemas in markers that are read together; a new gateway version may add one."""
_LONGEST_SCHEMA: Final = 64 * 1024
_OWNER: Final = "struct<system_identifier:string,database:string,slot:string>"
_TYPES: Final[Mapping[str, str]] = {
    "kind": "string",
    "end_lsn": "bigint",
    "commit_time": "bigint",
    "offsets": "array<struct<topic:string,partition:int,first_offset:bigint,next_offset:bigint,"
    "previous_offset:bigint,records:bigint>>",
    "schema": "string",
    "table": "string",
    "state": "string",
    "reason": "string",
    "writer": _OWNER,
    "taken_from": _OWNER,
}
"""Fields of a marker that are read, with Spark's types; other types might fail in every task."""


def _at(offset: int, error: ConsumerError) -> ContractError:
    return ContractError(
        f"marker at offset {offset}: {error.message}",
        hint=f"{error.hint or 'see docs/spark.md.'} If another than the gateway has written it,"
        f" remove it from the topic (kafka-delete-records, offset {offset + 1}): all before it is"
        " applied",
    )


def _decoded(cut: DataFrame, value_id: int, schemas: Schemas) -> DataFrame:
    """Return the offsets and `_TYPES` of the records of one schema; null where not decodable."""
    schema = schemas.schema(value_id)
    refused = ContractError(
        f"schema {value_id} is not that of a marker with offsets",
        hint="is the gateway of the same version as the Spark job?",
    )
    named = {one["name"] for one in schema["fields"]}
    text = json.dumps(schema)
    if len(text) > _LONGEST_SCHEMA:
        raise refused
    options = {**AVRO_OPTIONS, "mode": "PERMISSIVE"}
    try:
        decoded = (
            cut.where(F.col("value_id") == schema_id(value_id))
            .select("offset", from_avro("body", text, options).alias("m"))
            .select(
                "offset",
                F.expr("m.kind AS kind"),
                F.expr("m.end_lsn AS end_lsn"),
                F.expr("unix_micros(m.commit_time) AS commit_time"),
                F.expr(f"transform(m.offsets, one -> struct({_RANGE})) AS offsets"),
                F.expr("m.copy.schema AS schema"),
                F.expr("m.copy.table AS table"),
                F.expr("m.copy.state AS state"),
                F.expr("m.copy.reason AS reason"),
                *(_owner(name, there=name in named) for name in ("writer", "taken_from")),
            )
        )
        types = dict(decoded.dtypes)
    except (PySparkException, Py4JError) as error:
        # No record is read here: Spark has analyzed the schema, and names and types in it.
        if every_table(error) is not None:
            raise
        raise refused from error
    if any(types[name] != kind for name, kind in _TYPES.items()):
        raise refused
    return decoded.where("kind IS NULL OR kind IN ('PROGRESS', 'COPY', 'CLAIM')")


_RANGE: Final = ", ".join(
    f"one.{name}"
    for name in (
        "topic",
        "partition",
        "first_offset",
        "next_offset",
        "previous_offset",
        "records",
    )
)


def _owner(name: str, *, there: bool) -> Expr:
    if not there:
        return F.expr(f"CAST(NULL AS {_OWNER}) AS {name}")
    parts = ", ".join(f"m.{name}.{one}" for one in ("system_identifier", "database", "slot"))
    return F.expr(f"IF(m.{name} IS NULL, NULL, struct({parts})) AS {name}")


def _marker(row: Any) -> Marker | Copy | Claim | Damaged | None:
    offset = int(row["offset"])
    if row["kind"] is None or row["end_lsn"] is None:
        return Damaged(offset, "it is not in the wire format, or is not what its Avro schema says")
    writer, taken_from = (
        None if row[name] is None or None in tuple(row[name]) else tuple(row[name])
        for name in ("writer", "taken_from")
    )
    if row["kind"] == "CLAIM":
        return Claim(offset, writer, taken_from)
    if row["kind"] == "COPY":
        if row["schema"] is None or row["table"] is None or row["state"] is None:
            return Damaged(offset, "it is a COPY that names no table")
        table = f"{part(row['schema'])}.{part(row['table'])}"
        return Copy(offset, table, row["state"], shown(row["reason"] or ""), writer)
    ranges: dict[str, tuple[Range, ...]] = {}
    for one in row["offsets"] or ():
        if one is None or None in tuple(one):
            return Damaged(offset, "it is a PROGRESS with offsets that say nothing")
        ranges[one["topic"]] = (*ranges.get(one["topic"], ()), _range(one))
    return Marker(offset, row["end_lsn"], row["commit_time"], ranges, writer)


def _range(one: Any) -> Range:
    return Range(
        partition=one["partition"],
        first=one["first_offset"],
        next=one["next_offset"],
        previous=one["previous_offset"],
        records=one["records"],
    )
