"""What crosses from the pipeline to the sink: encoded Kafka records, in batches. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gateway.lsn import Lsn

Header: TypeAlias = tuple[str, bytes]

Record: TypeAlias = tuple[str, int, bytes | None, bytes | None, list[Header]]
"""topic, partition, key, value, headers. A plain tuple: one is made for every row.

Key and value are in Confluent's wire format; a value of None is a tombstone. The list of headers
may be shared between records and must not be changed.
"""

CopyStateKind: TypeAlias = Literal["pending", "copying", "ready"]


@dataclass(frozen=True, slots=True)
class CopyState:
    """Where the copy of one subscriber table stands.

    Attributes:
        definition: Of the rows that are there: `gateway.definitions.changes.fingerprint_of`; empty
            while they come, and when it is not known.
    """

    subscription: str
    schema: str
    table: str
    state: CopyStateKind
    consistent_point: Lsn | None = None
    definition: str = ""


@dataclass(frozen=True, slots=True)
class Watermark:
    """What the sink commits together with the records before it.

    Attributes:
        end_lsn: Every transaction that ends at or before it is in Kafka once this is committed.
            0 while the first copy runs: then there is no watermark yet.
        timeline: Of the server at the time.
        definitions: Fingerprint of the definitions in force.
        copies: States of the initial copies, all of them.
    """

    end_lsn: Lsn
    timeline: int
    definitions: str
    copies: tuple[CopyState, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A piece of one Kafka transaction.

    Attributes:
        records: In the order in which they are to be produced.
        watermark: Commit the Kafka transaction with this; None: more pieces follow.
        totals: New running totals per topic, index is the partition, of the topics that have
            changed in this Kafka transaction; only with a watermark.
    """

    records: list[Record]
    watermark: Watermark | None = None
    totals: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
