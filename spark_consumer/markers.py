"""The markers of ``<subscription>.transaction``: where a batch may end, and what it must hold.

A PROGRESS marker that names offsets is the last record of a Kafka transaction. Reading every topic
partition up to the `Range.next` of any one of them gives whole source transactions over all tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from spark_consumer.decode import prefixed
from spark_consumer.errors import ContractError
from spark_consumer.names import part
from spark_consumer.registry import Schemas
from spark_consumer.small import gather
from spark_consumer.survey import AVRO_OPTIONS, schema_id, schema_number

__all__ = [
    "Claim",
    "Copy",
    "Cut",
    "Marker",
    "Owner",
    "Range",
    "cut_markers",
    "read_markers",
]

Owner: TypeAlias = tuple[str, str, str]
"""Whose topics they are: system identifier, database and slot."""


@dataclass(frozen=True, slots=True)
class Range:
    """What one Kafka transaction has put into a topic partition.

    Attributes:
        first: Offset of the first record.
        next: The offset behind the last record.
        previous: `next` of the Kafka transaction before; 0 when there was none.
        records: How many there are, tombstones too.
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
        offset: Its place in the marker topic.
        end_lsn: Everything up to here has been published.
        commit_time: Of the source, microseconds since 1970; None where it is not known.
        ranges: By topic; empty when the position moved without a record.
        writer: Who wrote it; None when it does not say.
    """

    offset: int
    end_lsn: int
    commit_time: int | None = None
    ranges: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    writer: Owner | None = None

    def records(self) -> int:
        """How many records its Kafka transaction has in tables' topics."""
        return sum(one.records for ranges in self.ranges.values() for one in ranges)


@dataclass(frozen=True, slots=True)
class Copy:
    """A COPY marker: a copy of a table has come to another state.

    Attributes:
        offset: Its place in the marker topic.
        table: ``schema.table``.
        state: ``pending``, ``copying``, ``ready``; ``held``: the gateway publishes nothing of it
            until it is copied; ``missing``, ``gone``: it is not published any more.
        reason: Why it is held, or missing.
        writer: Who wrote the marker; None when it does not say.
    """

    offset: int
    table: str
    state: str
    reason: str = ""
    writer: Owner | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A CLAIM marker: somebody says that the subscription's topics are theirs.

    Attributes:
        offset: Its place in the marker topic.
        writer: Who.
        taken_from: Whose they were before, where they were taken over on purpose.
    """

    offset: int
    writer: Owner | None
    taken_from: Owner | None


@dataclass(frozen=True, slots=True)
class Cut:
    """Markers whose records are applied together, and the copies' states at the last of them."""

    markers: tuple[Marker, ...]
    copies: tuple[Copy, ...] = ()

    @property
    def end(self) -> Marker:
        """The last marker: what the tables are after the cut."""
        return self.markers[-1]

    def begun(self) -> int | None:
        """The first commit time that is known, microseconds since 1970."""
        return next((one.commit_time for one in self.markers if one.commit_time), None)

    def topics(self) -> list[str]:
        """The topics that have records in it, in the order of their names."""
        return sorted({topic for marker in self.markers for topic in marker.ranges})

    def records(self) -> int:
        """How many records it has."""
        return sum(marker.records() for marker in self.markers)

    def halves(self) -> tuple[Cut, Cut]:
        """The same in two cuts; it must have more than one marker."""
        middle = len(self.markers) // 2
        first, second = self.markers[:middle], self.markers[middle:]
        border = first[-1].offset
        return (
            Cut(first, tuple(copy for copy in self.copies if copy.offset < border)),
            Cut(second, tuple(copy for copy in self.copies if copy.offset > border)),
        )


def cut_markers(read: Sequence[Marker | Copy], max_records: int | None) -> Iterator[Cut]:
    """Cut markers so that no cut has more than `max_records`, unless one marker alone has.

    What comes after the last PROGRESS belongs to a Kafka transaction whose end has not been read.
    """
    markers: list[Marker] = []
    copies: list[Copy] = []
    # States that wait for the PROGRESS that ends their Kafka transaction.
    waiting: list[Copy] = []
    records = 0
    for one in read:
        if isinstance(one, Copy):
            waiting.append(one)
            continue
        held = one.records()
        if markers and max_records is not None and records + held > max_records:
            yield Cut(tuple(markers), tuple(copies))
            markers, copies, records = [], [], 0
        markers.append(one)
        copies += waiting
        waiting = []
        records += held
    if markers:
        yield Cut(tuple(markers), tuple(copies))


def read_markers(records: DataFrame, schemas: Schemas) -> list[Marker | Copy | Claim]:
    """Read the PROGRESS, COPY and CLAIM markers of a frame of the marker topic, in its order.

    Args:
        records: value and offset, as Spark's Kafka source gives them.
        schemas: the writer schemas.

    Raises:
        ContractError: what is there is no marker.
        TransientConsumerError: the registry does not answer.
    """
    number, body = prefixed("value")
    cut = records.select("topic", "offset", number.alias("value_id"), body.alias("body"))
    # Read once: it is looked at twice, and Spark counts what it reads as the batch's rows.
    cut = gather(cut, records.sparkSession)
    ids = [row.value_id for row in cut.select("value_id").distinct().collect()]
    frames = []
    for found in ids:
        if not found:
            raise ContractError("a marker is not in the wire format (magic byte 0, id, Avro)")
        value_id = schema_number(found)
        schema = json.dumps(schemas.schema(value_id))
        decoded = cut.where(F.col("value_id") == schema_id(value_id)).select(
            "topic", "offset", from_avro("body", schema, AVRO_OPTIONS).alias("m")
        )
        kind = decoded.schema["m"].dataType
        if "offsets" not in getattr(kind, "fieldNames", list)():
            raise ContractError(
                f"schema {value_id} is not that of a marker with offsets",
                hint="is the gateway of the same version as the Spark job?",
            )
        signed = "writer" in kind.fieldNames()  # type: ignore[attr-defined]
        frames.append(
            decoded.where("m.kind IN ('PROGRESS', 'COPY', 'CLAIM')").select(
                "offset",
                F.expr("m.kind AS kind"),
                F.expr("m.end_lsn AS end_lsn"),
                F.expr("unix_micros(m.commit_time) AS commit_time"),
                F.expr("m.offsets AS offsets"),
                F.expr("m.copy.schema AS schema"),
                F.expr("m.copy.table AS table"),
                F.expr("m.copy.state AS state"),
                F.expr("m.copy.reason AS reason"),
                F.expr(_owner("writer") if signed else f"CAST(NULL AS {_OWNER}) AS writer"),
                F.expr(_owner("taken_from") if signed else f"CAST(NULL AS {_OWNER}) AS taken_from"),
            )
        )
    if not frames:
        return []
    rows = reduce(DataFrame.unionByName, frames).collect()
    return [_marker(row) for row in sorted(rows, key=lambda row: row["offset"])]


_OWNER = "STRUCT<system_identifier: STRING, database: STRING, slot: STRING>"


def _owner(name: str) -> str:
    parts = ", ".join(f"m.{name}.{part}" for part in ("system_identifier", "database", "slot"))
    return f"IF(m.{name} IS NULL, NULL, struct({parts})) AS {name}"


def _marker(row: Any) -> Marker | Copy | Claim:
    writer, taken_from = (
        None if row[name] is None else (row[name][0], row[name][1], row[name][2])
        for name in ("writer", "taken_from")
    )
    if row["kind"] == "CLAIM":
        return Claim(row["offset"], writer, taken_from)
    if row["kind"] == "COPY":
        if row["schema"] is None or row["table"] is None:
            raise ContractError(f"the COPY marker at offset {row['offset']} names no table")
        table = f"{part(row['schema'])}.{part(row['table'])}"
        return Copy(row["offset"], table, row["state"], row["reason"] or "", writer)
    ranges: dict[str, tuple[Range, ...]] = {}
    for one in row["offsets"]:
        ranges[one["topic"]] = (*ranges.get(one["topic"], ()), _range(one))
    return Marker(row["offset"], row["end_lsn"], row["commit_time"], ranges, writer)


def _range(one: Any) -> Range:
    return Range(
        partition=one["partition"],
        first=one["first_offset"],
        next=one["next_offset"],
        previous=one["previous_offset"],
        records=one["records"],
    )
