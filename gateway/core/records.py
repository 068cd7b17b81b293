"""Values that pass from the pipeline to the sink: encoded Kafka records, in batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyRequest, StatePart, Watermark

Header: TypeAlias = tuple[str, bytes]

Record: TypeAlias = tuple[str, int, bytes | None, bytes | None, list[Header]]
"""Record: topic, partition, key, value, headers. A plain tuple: one is made for every row.

Key and value are in Confluent's wire format; a value of None is a tombstone. The list of headers
may be shared between records and must not be changed.
"""

_RECORD_OVERHEAD: Final = 36
BATCH_OVERHEAD: Final = 61
"""Overhead of a record batch in bytes, which a topic's ``max.message.bytes`` includes."""


def wire_size(key: bytes | None, value: bytes | None, headers: Collection[Header]) -> int:
    """Return the size of a record as the producer's ``message.max.bytes`` counts it, in bytes.

    Source: rd_kafka_msg_new0 in rdkafka_msg.c: the maximum size of length fields.
    """
    size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, text in headers:
        size += len(name) + len(text) + _length_bytes(len(name)) + _length_bytes(len(text))
    return size


def _length_bytes(length: int) -> int:
    return max(1, -(-(length.bit_length() + 1) // 7))


@dataclass(frozen=True, slots=True)
class Writer:
    """Identity of a gateway in markers.

    Attributes:
        system_identifier: System identifier of the source server, shared by a primary and its
            standbys.
        gateway: Name of the gateway, which may change.
    """

    system_identifier: str
    database: str
    slot: str
    gateway: str

    @property
    def owner(self) -> tuple[str, str, str]:
        """Owner of the topics: system identifier, database and slot."""
        return self.system_identifier, self.database, self.slot

    def __str__(self) -> str:
        return (
            f'gateway "{self.gateway}" (system identifier {self.system_identifier}, database '
            f'"{self.database}", slot "{self.slot}")'
        )


@dataclass(frozen=True, slots=True)
class Feed:
    """Topics of one subscription.

    Attributes:
        markers: Topic of its markers.
        prefix: Prefix of a marker in Confluent's wire format, with the first fields, which name the
            writer.
        tables: Topics of its tables, with the number of partitions of each.
    """

    subscription: str
    markers: str
    prefix: bytes
    tables: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """End of a Kafka transaction, which its PROGRESS markers announce.

    Attributes:
        end_lsn: LSN until which everything has been published.
        timeline: Timeline of the source's WAL that has it.
        commit_time: Commit time of its last source transaction, in microseconds since 2000-01-01
            00:00 UTC; None if it has none.
        feeds: Feeds that get a marker if the Kafka transaction has a record of theirs.
        idle: Names of the subscriptions that get a marker in any case.
    """

    end_lsn: Lsn
    timeline: int
    feeds: Sequence[Feed]
    commit_time: int | None = None
    idle: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """Offsets that one Kafka transaction has written in a partition of a table's topic.

    Attributes:
        first_offset: Offset of the first record.
        next_offset: Offset after the last record.
        previous_offset: `next_offset` of the previous Kafka transaction that wrote there; 0 for
            none.
        records: Number of records, including tombstones.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    previous_offset: int
    records: int


RESENDABLE: Final = 8
"""Maximum number of batches in a Kafka transaction that the sink can resend by itself."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A piece of one Kafka transaction.

    Attributes:
        records: Records in the order in which to produce them.
        watermark: Watermark with which to commit the Kafka transaction; None if more pieces follow.
        cut: Content of the PROGRESS markers; only with a watermark. None for no markers.
        done_requests: Requests that are removed with the watermark, because its copies include
            them.
        parts: Changed parts of the state, which are committed with the watermark.
        kept: Whether the sink keeps the batch until the commit, to resend it, provided that it has
            kept those before. False if more will follow than it keeps.
    """

    records: list[Record]
    watermark: Watermark | None = None
    cut: Cut | None = None
    done_requests: tuple[CopyRequest, ...] = ()
    kept: bool = True
    parts: tuple[StatePart, ...] = ()
