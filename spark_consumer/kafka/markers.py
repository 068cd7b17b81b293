"""Markers of ``<subscription>.transaction``: possible cuts, and the records before each.

A PROGRESS marker that names offsets is the last record of a Kafka transaction. Reading every topic
partition until the `Range.next` of any one of them gives whole source transactions over all tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame

from schemas import load
from schemas.topic_names import topic_part
from spark_consumer.display import shown
from spark_consumer.errors import ConsumerError, ContractError
from spark_consumer.kafka.registry import Schemas

__all__ = [
    "Claim",
    "Copy",
    "Damaged",
    "Marker",
    "MarkerRecord",
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


MarkerRecord: TypeAlias = Marker | Copy | Claim | Damaged
"""A record of the marker topic that the job follows, or refuses as damaged."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Markers of a frame of the marker topic.

    Attributes:
        found: Markers in the order of the topic, until the first record that cannot be read.
        error: Reason for which that record cannot be read; None if all can.
    """

    found: list[MarkerRecord]
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
    rows: Any = records.select("offset", "value")._jdf.collectAsList()
    markers: Any = records.sparkSession._jvm.pgsluice.markers.Markers(rows, _NEEDED)  # type: ignore[union-attr]
    end, why = _MOST_OFFSET, None
    # In this order: after the first schema that cannot be read, no other one is fetched.
    for index, (schema_id, offset) in enumerate(json.loads(markers.schemas())):
        try:
            if index == _MOST_SCHEMAS:
                raise ContractError(
                    f"the topic has more than {_MOST_SCHEMAS} schemas",
                    hint="is it written by something else than the gateway?",
                )
            _prepare(markers, schema_id, schemas)
        except ContractError as error:
            end, why = offset, _at(offset, error)
            break
    return Reading([_marker(one) for one in json.loads(markers.decoded(end))], why)


_MOST_OFFSET: Final = (1 << 63) - 1
_MOST_SCHEMAS: Final = 64
"""Most schemas in markers that are read together; a new gateway version may add one."""
_LONGEST_SCHEMA: Final = 64 * 1024
_LATER: Final = ("writer", "taken_from")
"""Fields that markers of earlier gateways do not have."""


_READ: Final[Mapping[str, Sequence[str]]] = {
    "Marker": ("kind", "end_lsn", "commit_time", "offsets", "copy", *_LATER),
    "Writer": ("system_identifier", "database", "slot"),
    "CopyState": ("schema", "table", "state", "reason"),
}


def _needed(schema: Any) -> Any:
    """Return the schema that a marker's has to fit, or a part of it: the fields that are read."""
    if isinstance(schema, list):
        return [_needed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _needed(part) for name, part in schema.items()}
    if schema["type"] == "record":
        read = _READ.get(schema["name"])
        made["fields"] = [
            # Every one but `_LATER` must be there.
            {name: _needed(part) for name, part in one.items() if name != "default" or later}
            for one in schema["fields"]
            if read is None or one["name"] in read
            for later in [one["name"] in _LATER]
        ]
    if schema["type"] == "enum":
        # Those of later gateways are known, too: kinds are skipped, states are shown as they are.
        made["default"] = schema["symbols"][0]
    return made


_NEEDED: Final = json.dumps(_needed(load("transaction")))


def _at(offset: int, error: ConsumerError) -> ContractError:
    return ContractError(
        f"marker at offset {offset}: {error.message}",
        hint=f"{error.hint or 'see docs/spark.md.'} If another than the gateway has written it,"
        f" remove it from the topic (kafka-delete-records, offset {offset + 1}): all before it is"
        " applied",
    )


def _prepare(markers: Any, schema_id: int, schemas: Schemas) -> None:
    text = json.dumps(schemas.schema(schema_id))
    if len(text) > _LONGEST_SCHEMA or not markers.prepare(schema_id, text):
        raise ContractError(
            f"schema {schema_id} is not that of a marker with offsets",
            hint="is the gateway of the same version as the Spark job?",
        )


def _marker(one: dict[str, Any]) -> MarkerRecord:
    offset = one["offset"]
    if "kind" not in one:
        return Damaged(offset, "it is not in the wire format, or is not what its Avro schema says")
    writer, taken_from = (_owner(one.get(name)) for name in _LATER)
    if one["kind"] == "CLAIM":
        return Claim(offset, writer, taken_from)
    if one["kind"] == "COPY":
        copy = one.get("copy")
        if copy is None:
            return Damaged(offset, "it is a COPY that names no table")
        table = f"{topic_part(copy['schema'])}.{topic_part(copy['table'])}"
        return Copy(offset, table, copy["state"], shown(copy["reason"] or ""), writer)
    ranges: dict[str, tuple[Range, ...]] = {}
    for each in one["offsets"]:
        ranges[each["topic"]] = (*ranges.get(each["topic"], ()), _range(each))
    return Marker(offset, one["end_lsn"], one.get("commit_time"), ranges, writer)


def _owner(found: Mapping[str, str] | None) -> Owner | None:
    return None if found is None else (found["system_identifier"], found["database"], found["slot"])


def _range(one: Any) -> Range:
    return Range(
        partition=one["partition"],
        first=one["first_offset"],
        next=one["next_offset"],
        previous=one["previous_offset"],
        records=one["records"],
    )
