"""What the assembler gives out. LSNs, xids and times as in `gateway.pgoutput.messages`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gateway.lsn import Lsn
from gateway.pgoutput.frames import XLOGDATA_HEADER, Keepalive
from gateway.pgoutput.messages import LogicalMessage, Origin
from gateway.transactions.buffer import FrameBuffer

__all__ = [
    "Event",
    "KeepaliveEvent",
    "PreparedTransaction",
    "RolledBack",
    "StandaloneMessage",
    "Transaction",
]

KeepaliveEvent: TypeAlias = Keepalive

_TAG: Final = XLOGDATA_HEADER
_CHANGES: Final = b"IUDT"
_OVERHEAD: Final = 1_000
"""Bytes that a transaction costs in memory beside its frames."""


@dataclass(slots=True, eq=False)
class Transaction:
    """A committed transaction. Whoever receives it owns it and calls `release`.

    Nobody changes it. It is not frozen because making one would then take four times as long, and
    one is made for each transaction at the source.

    Attributes:
        xid: Of the top-level transaction.
        commit_lsn: Of its commit record (of COMMIT PREPARED for a prepared one).
        end_lsn: Behind that record; decides whether a position is at or before a boundary.
        commit_time: Microseconds since 2000-01-01 00:00 UTC.
        origin: Where it came from, None: from here.
        gid: Of a prepared transaction, None otherwise.
        streamed: Its data messages carry a 4-byte xid behind their tag.
        message_count: Frames received for it; those of aborted subtransactions count too.
        byte_size: Bytes of those frames, their headers included.
    """

    xid: int
    commit_lsn: Lsn
    end_lsn: Lsn
    commit_time: int
    origin: Origin | None
    gid: str | None
    streamed: bool
    message_count: int
    byte_size: int
    _buffer: FrameBuffer = field(repr=False)

    @property
    def memory(self) -> int:
        """Bytes that it costs in memory; what is spooled costs none."""
        return self._buffer.memory + _OVERHEAD

    @property
    def changes_rows(self) -> bool:
        """Whether it has anything but logical messages, which the server sends only when asked."""
        for chunk in self.frames():
            for frame in chunk:
                if frame[_TAG] in _CHANGES:
                    return True
        return False

    def frames(self) -> Iterator[list[bytes]]:
        """Yield its ``w`` frames in order, in lists of about 1,000 frames or 1 MiB, never empty.

        Relation, Type, Insert, Update, Delete, Truncate and transactional Message frames; without
        the changes of aborted subtransactions, but with their Relation and Type messages. Can be
        called again until `release`. The lists must not be changed.

        Raises:
            FatalError: the spool cannot be read.
        """
        return self._buffer.chunks()

    def release(self) -> None:
        """Free memory and spool; `frames` yields nothing afterwards."""
        self._buffer.release()


@dataclass(frozen=True, slots=True)
class StandaloneMessage:
    """A logical message outside of any transaction. `wal_start` is its frame's."""

    message: LogicalMessage
    wal_start: Lsn


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """PREPARE TRANSACTION. Its rows are held until COMMIT PREPARED.

    Attributes:
        relations: ``w`` frames of its Relation messages. They count from here on: the server does
            not announce these relations again to transactions that commit in between.
        streamed: As in `Transaction`.
    """

    xid: int
    gid: str
    prepare_lsn: Lsn
    end_lsn: Lsn
    prepare_time: int
    relations: tuple[bytes, ...] = ()
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class RolledBack:
    """ROLLBACK PREPARED. Its rows are gone.

    `prepare_end_lsn` and `prepare_time` are those of the PREPARE.
    """

    xid: int
    gid: str
    prepare_end_lsn: Lsn
    end_lsn: Lsn
    prepare_time: int
    rollback_time: int


Event: TypeAlias = Transaction | StandaloneMessage | Keepalive | PreparedTransaction | RolledBack
