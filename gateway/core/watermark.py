"""Committed state of a gateway: the watermark, the states of copies, and requests for copies.

The sink commits a watermark in the same Kafka transaction as the records before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple, TypeAlias

from gateway.core.copy_progress import Progress
from gateway.core.display import as_word
from gateway.core.errors import HeldCause
from gateway.core.lsn import Lsn
from schemas.table_names import quoted_name

CopyStateKind: TypeAlias = Literal["pending", "copying", "ready", "missing", "held", "gone"]

EPOCH_US: Final = 946_684_800_000_000
"""PostgreSQL's epoch, 2000-01-01 00:00 UTC, in microseconds since 1970."""

UNTIL_ASKED: Final = frozenset({"lost", "partitions"})
"""Causes for holding a table until an operator requests its copy."""


def unix_time(microseconds: int) -> float:
    """Return the seconds since 1970 of a time of PostgreSQL's, in microseconds since 2000."""
    return (microseconds + EPOCH_US) / 1_000_000


def hint_of(cause: HeldCause, table: tuple[str, str]) -> str:
    """Return how to release a held table, of which `table` is schema and name."""
    word = as_word(quoted_name(table))  # another role may have chosen the name
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
        consistent_point: LSN at which it entered this state. While pending or held, and if it is
            after the watermark, the LSN up to which another gateway has published its changes.
        definition: Fingerprint of the definition of its rows, see `gateway.definitions.changes`;
            empty if unknown.
        progress: Progress of the copy.
        oid: OID of the table in the source; 0 if unknown.
        taken: How the table is published, as JSON: `gateway.definitions.tables.remembered`. The
            field of PROGRESS has this name.
        reason: Reason for which it is held.
        cause: Code of that reason.
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
    def waits_for_request(self) -> bool:
        """Whether it is held until an operator requests its copy."""
        return self.cause in UNTIL_ASKED

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

    @property
    def committed_at(self) -> float:
        """Commit time, in seconds since 1970."""
        return unix_time(self.commit_time)


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


StatePartKind: TypeAlias = Literal["set", "moves"]
"""Kind of a part of the state: values of a sub-select, or what moves in a table."""


StateParts: TypeAlias = Mapping[StatePartKind, Mapping[str, bytes]]
"""Values of the committed parts of the state, by kind and name."""


class StatePart(NamedTuple):
    """Part of the committed state beside the watermark; a value of None removes it."""

    kind: StatePartKind
    name: str
    value: bytes | None


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
        schemas: Fingerprint of the subjects and schemas of all tables, once the registry had all of
            them; empty if unknown.
    """

    end_lsn: Lsn
    timeline: int
    definitions: str
    copies: tuple[CopyState, ...]
    last: LastCommit | None = None
    refusal: Refusal | None = None
    schemas: str = ""
