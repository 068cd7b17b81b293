"""Values that pass from the pipeline to the sink: encoded Kafka records, in batches."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from gateway.core.copy_progress import Progress
from gateway.core.lsn import Lsn

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


CopyStateKind: TypeAlias = Literal["pending", "copying", "ready", "missing", "held", "gone"]

HeldCause: TypeAlias = Literal["", "lost", "partitions"]
"""Cause for holding a table until an operator requests its copy: its topic lost records, or has
another number of partitions. Empty: it is published again automatically as soon as it can be."""


def hint_of(cause: HeldCause, table: object) -> str:
    """Return how to release a held table; `table` is its name."""
    word = shlex.quote(str(table))  # another role may have chosen the name
    if cause == "lost":
        return f"find out why, then `pgsluice copy {word}`"
    if cause == "partitions":
        return (
            f"notify the readers of its topic, then `pgsluice copy {word}`; or give it a new topic "
            "in [topics] names"
        )
    return (
        "alter the table or the definitions so that it can be published; it is then copied "
        "automatically"
    )


@dataclass(frozen=True, slots=True)
class CopyState:
    """State of one subscriber table's copy.

    A table is ``missing`` if the definitions list it and the source does not have it, ``held`` if
    it cannot be published and receives nothing until it is copied, and ``gone`` if it is forgotten.

    Attributes:
        consistent_point: LSN at which it entered this state; None while pending.
        definition: Fingerprint of the definition of its rows, see `gateway.definitions.changes`;
            empty if unknown.
        progress: Progress of the copy.
        oid: OID of the table in the source; 0 if unknown.
        taken: How the table is published, as JSON: `gateway.definitions.tables.remembered`. The
            field of PROGRESS has this name.
        reason: Reason for which it is held.
        cause: Cause for which an operator has to request the copy of a held table.
        topic: Topic that has its rows; empty if unknown.
        asked: Condition of the rows of a ready table that are to be copied again on request; empty
            for the whole table, None for no request. `progress` refers to that copy. The table
            stays ready until a full copy starts. For a table that is being copied, the request that
            follows.
        published: Number of copied rows sent to this subscription; `progress` has the number read.
    """

    subscription: str
    schema: str
    table: str
    state: CopyStateKind
    consistent_point: Lsn | None = None
    definition: str = ""
    progress: Progress = field(default_factory=Progress)
    oid: int = 0
    taken: str = ""
    reason: str = ""
    topic: str = ""
    asked: str | None = None
    published: int = 0
    cause: HeldCause = ""

    @property
    def is_settled(self) -> bool:
        """Whether no rows are left to copy."""
        return self.state == "ready" and self.asked is None


def restarted(state: CopyState) -> CopyState:
    """Return the state of a table that is to be copied from the start, without other requests."""
    return replace(
        state,
        state="pending",
        consistent_point=None,
        progress=Progress(),
        asked=None,
        published=0,
        taken="",
    )


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """Request to copy rows again; kept in Kafka until the gateway accepts it.

    Attributes:
        name: Unique name of the request.
        table: Name of the table; None, and `schema` as well, for all tables.
        subscription: Name of the subscription; None for all that copy the table.
        where: Condition on the table's columns; empty for the whole table.
        cancel: Whether earlier requests are cancelled.
    """

    name: str
    schema: str | None
    table: str | None
    subscription: str | None = None
    where: str = ""
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class LastCommit:
    """Identity of a transaction, which differs between servers.

    Attributes:
        commit_time: Commit time, in microseconds since 2000-01-01 00:00 UTC.
    """

    commit_lsn: Lsn
    xid: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of changed definitions; the old ones stay in force.

    Attributes:
        since_ms: Time of the first refusal, in milliseconds since 1970.
        looked_ms: Time of the last check, likewise.
        definitions: Fingerprint of the refused definitions; empty if the file could not be read.
    """

    since_ms: int
    looked_ms: int
    definitions: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Watermark, which the sink commits together with the records before it.

    Attributes:
        end_lsn: Every transaction that ends at or before it is in Kafka once this is committed. 0:
            the slot is claimed, and nothing has been streamed from it yet.
        timeline: Timeline of the server at the time.
        definitions: Fingerprint of the definitions in force.
        copies: States of all copies.
        last: Last transaction at or before `end_lsn` that changed rows; None if unknown.
        refusal: Refusal of changed definitions, while it lasts.
    """

    end_lsn: Lsn
    timeline: int
    definitions: str
    copies: tuple[CopyState, ...]
    last: LastCommit | None = None
    refusal: Refusal | None = None


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
        commit_time: Commit time of its last source transaction, in microseconds since 2000-01-01
            00:00 UTC; None if it has none.
        feeds: Feeds that get a marker if the Kafka transaction has a record of theirs.
        idle: Names of the subscriptions that get a marker in any case.
    """

    end_lsn: Lsn
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
        kept: Whether the sink keeps the batch until the commit, to resend it, provided that it has
            kept those before. False if more will follow than it keeps.
    """

    records: list[Record]
    watermark: Watermark | None = None
    cut: Cut | None = None
    done_requests: tuple[CopyRequest, ...] = ()
    kept: bool = True
