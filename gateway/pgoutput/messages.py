"""Messages of pgoutput: one frozen dataclass each.

Field names follow the manual ("Logical Replication Message Formats"), field
order follows the wire. Nothing here knows about sockets, SQL types or Kafka.
Times are microseconds since 2000-01-01 00:00 UTC. LSNs, OIDs and xids are unsigned.
``xid`` on a data message is the (sub)transaction, inside a stream block only; None otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from gateway.core.lsn import Lsn


class Unchanged(Enum):
    """A TOASTed value the update did not touch, so the server did not send it.

    Not NULL. Every consumer must handle it by name.
    """

    TOAST = "u"


UNCHANGED: Final = Unchanged.TOAST


class BinaryValue(bytes):
    """A column in its type's binary send format; plain ``bytes`` is text format."""

    __slots__ = ()


ColumnValue: TypeAlias = bytes | Unchanged | None
TupleData: TypeAlias = tuple[ColumnValue, ...]


class ReplicaIdentity(Enum):
    """``relreplident``: which old values the server logs for UPDATE and DELETE."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


class OldTupleKind(Enum):
    """Tag of an old tuple."""

    KEY = "K"
    """Replica identity columns; the rest are sent as NULL and mean "not logged"."""
    FULL = "O"
    """Every column (REPLICA IDENTITY FULL)."""


@dataclass(frozen=True, slots=True)
class OldTuple:
    """Row before an UPDATE or DELETE, as far as it was logged."""

    kind: OldTupleKind
    columns: TupleData


@dataclass(frozen=True, slots=True)
class Begin:
    """A committed transaction starts. Wire tag ``B``. `final_lsn` is its commit LSN."""

    final_lsn: Lsn
    commit_time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed transaction ends. Wire tag ``C``."""

    flags: int
    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction comes from a replication origin. Wire tag ``O``."""

    origin_lsn: Lsn
    name: str


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """``pg_logical_emit_message``. Wire tag ``M``."""

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column of a `Relation`. `is_key`: in the replica identity, as all are under FULL."""

    is_key: bool
    name: str
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """Layout of the tuples of `relation_oid` from here on. Wire tag ``R``.

    An empty `namespace` on the wire means ``pg_catalog`` and is decoded as such.
    """

    relation_oid: int
    namespace: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Type:
    """Name of a type that is not built in. Wire tag ``Y``."""

    type_oid: int
    namespace: str
    name: str
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Insert:
    """A row was inserted. Wire tag ``I``."""

    relation_oid: int
    new: TupleData
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """A row was updated. Wire tag ``U``.

    Attributes:
        relation_oid: OID announced by an earlier `Relation`.
        old: The row before, or None when the server did not need to log it.
        new: The row after. May hold `UNCHANGED`.
        xid: See the module's docstring.
    """

    relation_oid: int
    old: OldTuple | None
    new: TupleData
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """A row was deleted. Wire tag ``D``."""

    relation_oid: int
    old: OldTuple
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables were truncated, in one statement. Wire tag ``T``."""

    cascade: bool
    restart_identity: bool
    relation_oids: tuple[int, ...]
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class StreamStart:
    """A block of an in-progress transaction starts (version 2). Wire tag ``S``."""

    xid: int
    first_segment: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """A block of an in-progress transaction ends. Wire tag ``E``."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """A streamed transaction committed. Wire tag ``c``."""

    xid: int
    flags: int
    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A streamed (sub)transaction aborted. Wire tag ``A``.

    `abort_lsn` and `abort_time` are present under ``streaming = parallel`` only (version 4).
    """

    xid: int
    subxid: int
    abort_lsn: Lsn | None = None
    abort_time: int | None = None


@dataclass(frozen=True, slots=True)
class BeginPrepare:
    """A prepared transaction starts (version 3). Wire tag ``b``."""

    prepare_lsn: Lsn
    end_lsn: Lsn
    prepare_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """A transaction is prepared. Wire tag ``P``."""

    flags: int
    prepare_lsn: Lsn
    end_lsn: Lsn
    prepare_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class CommitPrepared:
    """COMMIT PREPARED. Wire tag ``K``."""

    flags: int
    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class RollbackPrepared:
    """ROLLBACK PREPARED. Wire tag ``r``."""

    flags: int
    prepare_end_lsn: Lsn
    rollback_end_lsn: Lsn
    prepare_time: int
    rollback_time: int
    xid: int
    gid: str


@dataclass(frozen=True, slots=True)
class StreamPrepare:
    """A streamed transaction was prepared. Wire tag ``p``."""

    flags: int
    prepare_lsn: Lsn
    end_lsn: Lsn
    prepare_time: int
    xid: int
    gid: str


Message: TypeAlias = (
    Begin
    | Commit
    | Origin
    | LogicalMessage
    | Relation
    | Type
    | Insert
    | Update
    | Delete
    | Truncate
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
    | BeginPrepare
    | Prepare
    | CommitPrepared
    | RollbackPrepared
    | StreamPrepare
)
