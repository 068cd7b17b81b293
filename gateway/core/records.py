"""What crosses from the pipeline to the sink: encoded Kafka records, in batches. Pure values."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from gateway.core.copy_progress import Progress
from gateway.core.lsn import Lsn

Header: TypeAlias = tuple[str, bytes]

Record: TypeAlias = tuple[str, int, bytes | None, bytes | None, list[Header]]
"""topic, partition, key, value, headers. A plain tuple: one is made for every row.

Key and value are in Confluent's wire format; a value of None is a tombstone. The list of headers
may be shared between records and must not be changed.
"""

_RECORD_OVERHEAD: Final = 36
BATCH_OVERHEAD: Final = 61
"""What a batch of records has beside them: a topic's ``max.message.bytes`` counts it."""


def wire_size(key: bytes | None, value: bytes | None, headers: Collection[Header]) -> int:
    """Return the bytes of a record as the producer's ``message.max.bytes`` counts them.

    Source: rd_kafka_msg_new0 in rdkafka_msg.c: the most that length fields can take.
    """
    size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, text in headers:
        size += len(name) + len(text) + _length_bytes(len(name)) + _length_bytes(len(text))
    return size


def _length_bytes(length: int) -> int:
    return max(1, -(-(length.bit_length() + 1) // 7))


CopyStateKind: TypeAlias = Literal["pending", "copying", "ready", "missing", "held", "gone"]

HeldCause: TypeAlias = Literal["", "lost", "partitions"]
"""Reason to hold a table until somebody asks for its copy: its topic lost records, or has another
number of partitions. Empty: it is published again by itself, as soon as it can be."""


def hint_of(cause: HeldCause, table: object) -> str:
    """Return how a table comes back that is held for something; `table` is its name."""
    word = shlex.quote(str(table))  # which another role may have chosen
    if cause == "lost":
        return f"find out why, then `pgsluice copy {word}`"
    if cause == "partitions":
        return (
            f"let readers know, then `pgsluice copy {word}`; or give it a new topic in [topics] "
            "names"
        )
    return (
        "alter the table or the definitions so that it can be published; it is copied then by "
        "itself"
    )


@dataclass(frozen=True, slots=True)
class CopyState:
    """Where the copy of one subscriber table stands.

    ``missing`` is a table that the definitions list and the source does not have, ``held`` one in
    trouble, which gets nothing until it is copied; ``gone`` is said of one that is forgotten.

    Attributes:
        consistent_point: Where it came into this state; None while pending.
        definition: By which its rows have come, or come: `gateway.definitions.changes`; empty when
            it is not known.
        progress: How far the copy is.
        oid: Of the table in the source; 0 when it is not known.
        taken: How the table is published: `gateway.definitions.tables.remembered`.
        reason: Why it is held.
        cause: Of one that is held, whether a person has to ask for its copy.
        topic: That has its rows; empty when it is not known.
        asked: What of a table that is ready is to be copied once more, because somebody asked for
            it: the condition that rows fulfil, empty for the whole table; None: nothing. `progress`
            is of that copy. The table stays ready until a whole copy begins. Of one that is being
            copied: what follows then.
        published: How many rows of the copy this subscription has been sent; `progress` has how
            many were read.
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
        """Whether nothing of it is to be copied."""
        return self.state == "ready" and self.asked is None


def restarted(state: CopyState) -> CopyState:
    """Return the state of a table that is to be copied from its beginning, and nothing more."""
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
    """What somebody asks a gateway to copy once more; kept in Kafka until the gateway takes it.

    Attributes:
        name: Of the request, unlike that of any other.
        table: None, and `schema` as well: all tables.
        subscription: None: all that copy the table.
        where: The condition that rows fulfil, on the table's columns; empty: the whole table.
        cancel: Nothing is to be copied that was asked for before.
    """

    name: str
    schema: str | None
    table: str | None
    subscription: str | None = None
    where: str = ""
    cancel: bool = False


@dataclass(frozen=True, slots=True)
class LastCommit:
    """A transaction by what no other server would give it as well.

    Attributes:
        commit_time: Microseconds since 2000-01-01 00:00 UTC.
    """

    commit_lsn: Lsn
    xid: int
    commit_time: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Changed definitions that the gateway cannot put into force; the old ones stay.

    Attributes:
        since_ms: When they were refused first, in milliseconds since 1970.
        looked_ms: When they were looked at last, likewise.
        definitions: Their fingerprint; empty when the file could not be read.
    """

    since_ms: int
    looked_ms: int
    definitions: str
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Watermark:
    """What the sink commits together with the records before it.

    Attributes:
        end_lsn: Every transaction that ends at or before it is in Kafka once this is committed.
            0: the slot is claimed, and nothing was streamed from it yet.
        timeline: Of the server at the time.
        definitions: Fingerprint of the definitions in force.
        copies: States of the initial copies, all of them.
        last: The last transaction at or before `end_lsn` that changed rows; None: not known.
        refusal: Of changed definitions, as long as it lasts.
    """

    end_lsn: Lsn
    timeline: int
    definitions: str
    copies: tuple[CopyState, ...]
    last: LastCommit | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Writer:
    """A gateway, as markers name it.

    Attributes:
        system_identifier: Of the source server; a primary and its standbys have the same.
        gateway: Its name, which may change.
    """

    system_identifier: str
    database: str
    slot: str
    gateway: str

    @property
    def owner(self) -> tuple[str, str, str]:
        """What says whose the topics are: system identifier, database and slot."""
        return self.system_identifier, self.database, self.slot

    def __str__(self) -> str:
        return (
            f'gateway "{self.gateway}" (system identifier {self.system_identifier}, database '
            f'"{self.database}", slot "{self.slot}")'
        )


@dataclass(frozen=True, slots=True)
class Feed:
    """The topics of one subscription.

    Attributes:
        markers: The topic of its markers.
        prefix: Of a marker in Confluent's wire format, and its first fields, which say who writes.
        tables: Its tables' topics, and how many partitions each has.
    """

    subscription: str
    markers: str
    prefix: bytes
    tables: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a Kafka transaction, of which its PROGRESS markers tell.

    Attributes:
        end_lsn: Everything up to it has been published.
        commit_time: Of the last source transaction inside, in microseconds since 2000-01-01 00:00
            UTC; None where there is none.
        feeds: Those that get a marker when the Kafka transaction has a record of theirs.
        idle: Names of the subscriptions that get one in any case.
    """

    end_lsn: Lsn
    feeds: Sequence[Feed]
    commit_time: int | None = None
    idle: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What one Kafka transaction has written to a partition of a table's topic.

    Attributes:
        first_offset: Of the first record.
        next_offset: Behind the last record.
        previous_offset: `next_offset` of the Kafka transaction before that wrote there; 0 for none.
        records: All of them, tombstones too.
    """

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    previous_offset: int
    records: int


RESENDABLE: Final = 8
"""A Kafka transaction of no more batches than this can be sent again by the sink itself."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A piece of one Kafka transaction.

    Attributes:
        records: In the order in which they are to be produced.
        watermark: Commit the Kafka transaction with this; None: more pieces follow.
        cut: What the PROGRESS markers say; only with a watermark. None: there are no markers.
        done_requests: Requests that are forgotten with the watermark, because its copies have them.
        kept: The sink keeps the batch until the commit, to send it again, if it has kept those
            before. Not where more are to come than it keeps.
    """

    records: list[Record]
    watermark: Watermark | None = None
    cut: Cut | None = None
    done_requests: tuple[CopyRequest, ...] = ()
    kept: bool = True
