"""Profile of a wire frame by topic, from one pass over it; the driver's decisions rest on it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import fastavro
from pyspark.sql import Column as Expr
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro

from spark_consumer.errors import ContractError
from spark_consumer.kafka.avro_values import AVRO_OPTIONS
from spark_consumer.kafka.registry import Schemas

__all__ = [
    "IS_CHANGE",
    "IS_MOVE",
    "IS_REMOVAL",
    "Group",
    "PartitionProfile",
    "Piece",
    "TopicProfile",
    "begins_copy",
    "copy_beginnings",
    "lone_beginnings",
    "malformed",
    "of_piece",
    "schema_id",
    "schema_number",
    "survey",
    "surveyed",
]

_MOST_KINDS: Final = 100_000
_MOST_SCHEMAS: Final = 1_000
"""Most schemas in a topic's records that are read together; an ALTER TABLE adds two at most."""

# Columns of a wire frame's record; see `Piece`.
IS_CHANGE: Final = "value_id IS NOT NULL AND op <> 't'"
IS_MOVE: Final = "value_id IS NOT NULL AND op = 'c' AND rekey <=> 'new'"
IS_REMOVAL: Final = f"value_id IS NOT NULL AND op IN ('u', 'd') OR {IS_MOVE}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one topic that have the same two schemas.

    Attributes:
        key_id: Schema id of the keys; None where there is no key.
        value_id: Schema id of the values.
        changes: Number of records that are not truncates.
        removals: Number of those that need an old row: u, d, and the new half of a rekey.
        moves: Number of those that are new halves of a rekey.
    """

    key_id: int | None
    value_id: int
    changes: int
    removals: int
    moves: int


@dataclass(frozen=True, slots=True)
class PartitionProfile:
    """Profile of one partition in a frame.

    Attributes:
        first: First offset.
        last: Last offset, tombstones included.
        records: Number of records, tombstones included.
        truncate: Offset of the last `t`, or None.
        truncate_id: Value schema's id of that `t`, or None.
        lone: Value schema's id and Avro body of the `t` when there is but one, or None.
    """

    first: int
    last: int
    records: int
    truncate: int | None
    truncate_id: int | None
    lone: tuple[int, bytes] | None


@dataclass(frozen=True, slots=True)
class TopicProfile:
    """Profile of one topic in a frame.

    Attributes:
        partitions: Profiles by number of the partition.
        bytes: Size of the Avro bodies of all keys and values.
        pieces: Records by schema ids, without tombstones.
    """

    topic: str
    partitions: Mapping[int, PartitionProfile]
    bytes: int
    pieces: tuple[Piece, ...]

    def place(self) -> str:
        """Return the place of the records, for messages."""
        parts = "; ".join(
            f"partition {number}, offsets {partition.first} to {partition.last}"
            for number, partition in self.partitions.items()
        )
        return f"topic {self.topic}, {parts}"


def schema_id(number: int | None) -> Expr:
    """Return a schema's id as in wire frames: four bytes, big-endian; null for none."""
    return F.lit(None if number is None else number.to_bytes(4, "big"))


def schema_number(found: bytes) -> int:
    """Return the id in a wire frame's row."""
    return int.from_bytes(found, "big")


def of_piece(key_id: int | None, value_id: int) -> Expr:
    """Whether a wire frame's record has these two schemas."""
    return (F.col("value_id") == schema_id(value_id)) & F.col("key_id").eqNullSafe(
        schema_id(key_id)
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Records of one partition that have the same two schemas, in numbers.

    For the attributes see `Piece` and `PartitionProfile`, too.

    Attributes:
        size: Size of the Avro bodies of all keys and values.
        truncates: Number of those that are `t`.
        body: Avro body of one of them, or None.
    """

    partition: int
    key_id: int | None
    value_id: int | None
    records: int
    size: int
    first: int
    last: int
    changes: int
    removals: int
    moves: int
    truncates: int
    truncate: int | None
    body: bytes | None


def survey(records: DataFrame) -> dict[str, TopicProfile]:
    """Return the profile of a wire frame, by topic.

    Raises:
        ContractError: a record is malformed; the message names topic, partition and offset. Or
            there are too many schemas.
    """
    rows = (
        records.groupBy("topic", "partition", "key_id", "value_id")
        .agg(
            F.count("*").alias("records"),
            F.sum(F.expr("coalesce(length(key_body), 0) + coalesce(length(value_body), 0)")).alias(
                "bytes"
            ),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count_if(F.expr(IS_CHANGE)).alias("changes"),
            F.count_if(F.expr(IS_REMOVAL)).alias("removals"),
            F.count_if(F.expr(IS_MOVE)).alias("moves"),
            F.max(F.expr("CASE WHEN op = 't' THEN offset END")).alias("truncate"),
            F.count_if(F.expr("op = 't'")).alias("truncates"),
            F.any_value(F.expr("CASE WHEN op = 't' THEN value_body END"), True).alias("body"),
            F.min(F.expr("CASE WHEN fault IS NOT NULL THEN struct(offset, fault) END")).alias(
                "fault"
            ),
        )
        .limit(_MOST_KINDS + 1)
        .collect()
    )
    if len(rows) > _MOST_KINDS:
        raise ContractError(
            f"records have more than {_MOST_KINDS} combinations of partition and schemas",
            hint="is the topic written by something else than the gateway?",
        )
    by_topic: dict[str, list[Group]] = {}
    for row in rows:
        if row.fault is not None:
            raise malformed(row.topic, row.partition, row.fault.offset, row.fault.fault)
        by_topic.setdefault(row.topic, []).append(
            Group(
                row.partition,
                row.key_id and schema_number(row.key_id),
                row.value_id and schema_number(row.value_id),
                row.records,
                row.bytes,
                row["first"],
                row["last"],
                row.changes,
                row.removals,
                row.moves,
                row.truncates,
                row.truncate,
                row.body and bytes(row.body),
            )
        )
    return {topic: surveyed(topic, by_topic[topic]) for topic in sorted(by_topic)}


def malformed(topic: str, partition: int, offset: int, fault: str) -> ContractError:
    """Return the error for a record that is not in the wire format."""
    return ContractError(
        f"topic {topic}, partition {partition}, offset {offset}: {fault}",
        hint="is the topic written by something else than the gateway?",
    )


def surveyed(topic: str, groups: Sequence[Group]) -> TopicProfile:
    """Return the profile of a topic.

    Raises:
        ContractError: there are too many schemas.
    """
    partitions = {}
    for number in sorted({group.partition for group in groups}):
        mine = [group for group in groups if group.partition == number]
        emptying = [group for group in mine if group.truncates]
        latest = max(emptying, key=lambda group: group.truncate or 0, default=None)
        lone = len(emptying) == 1 and emptying[0].truncates == 1
        partitions[number] = PartitionProfile(
            first=min(group.first for group in mine),
            last=max(group.last for group in mine),
            records=sum(group.records for group in mine),
            truncate=None if latest is None else latest.truncate,
            truncate_id=None if latest is None else latest.value_id,
            lone=_lone(emptying[0]) if lone else None,
        )
    pieces: dict[tuple[int | None, int], Piece] = {}
    for group in groups:
        if group.value_id is not None:
            ids = (group.key_id, group.value_id)
            if len(pieces) >= _MOST_SCHEMAS and ids not in pieces:
                raise ContractError(
                    f"topic {topic}: records have more than {_MOST_SCHEMAS} schemas",
                    hint="is the topic written by something else than the gateway?",
                )
            known = pieces.get(ids, Piece(*ids, 0, 0, 0))
            pieces[ids] = Piece(
                *ids,
                known.changes + group.changes,
                known.removals + group.removals,
                known.moves + group.moves,
            )
    return TopicProfile(
        topic, partitions, sum(group.size for group in groups), tuple(pieces.values())
    )


def _lone(group: Group) -> tuple[int, bytes]:
    assert group.value_id is not None
    assert group.body is not None
    return group.value_id, group.body


def lone_beginnings(found: TopicProfile, schemas: Schemas) -> dict[int, tuple[int, int]] | None:
    """Return the beginnings of copies, if no partition has several `t`; see `copy_beginnings`."""
    emptied = {n: one for n, one in found.partitions.items() if one.truncate is not None}
    if any(partition.lone is None for partition in emptied.values()):
        return None
    return {
        number: (partition.truncate, partition.lone[0])
        for number, partition in emptied.items()
        if partition.truncate is not None and partition.lone is not None
        if begins_copy(partition.lone[1], schemas.schema(partition.lone[0]))
    }


def copy_beginnings(
    records: DataFrame, found: TopicProfile, schemas: Schemas
) -> dict[int, tuple[int, int]]:
    """Return the beginnings of copies: the `t` records whose snapshot is ``first``.

    Args:
        records: Wire frame of one topic.
        found: Profile of the topic.
        schemas: Writer schemas by ID.

    Returns:
        Offset and value schema's ID of the last one, by partition.
    """
    if (alone := lone_beginnings(found, schemas)) is not None:
        return alone
    frames = []
    for value_id in {piece.value_id for piece in found.pieces}:
        envelope = from_avro(
            F.col("value_body"), json.dumps(schemas.schema(value_id)), AVRO_OPTIONS
        )
        frames.append(
            records.where((F.col("value_id") == schema_id(value_id)) & (F.col("op") == "t"))
            .select("partition", "offset", "value_id", envelope.alias("e"))
            .where("e.source.snapshot = 'first'")
            .groupBy("partition")
            .agg(F.max(F.struct("offset", "value_id")).alias("last"))
        )
    begun: dict[int, tuple[int, int]] = {}
    for row in reduce(DataFrame.unionByName, frames).collect():
        last = (row["last"]["offset"], schema_number(row["last"]["value_id"]))
        begun[row["partition"]] = max(last, begun.get(row["partition"], (-1, -1)))
    return begun


def begins_copy(body: bytes, schema: dict[str, Any]) -> bool:
    """Whether the Avro body of a `t` marks the beginning of a copy."""
    # A decimal stays bytes: the time to convert it grows as the square of its length.
    plain = json.loads(json.dumps(schema), object_hook=_without_logical_type)
    try:
        envelope: Any = fastavro.schemaless_reader(
            io.BytesIO(body), fastavro.parse_schema(plain), None
        )
        return bool(envelope["source"]["snapshot"] == "first")
    except Exception as error:  # fastavro lets through whatever a reader can meet
        raise ContractError(
            "a record is not what its Avro schema says",
            hint="is the topic written by something else than the gateway?",
        ) from error


def _without_logical_type(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != "logicalType"}
