"""Events returned by the assembler. LSNs, xids and times as in `gateway.pgoutput.messages`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gateway.core.errors import FatalError
from gateway.core.lsn import Lsn, format_lsn
from gateway.pgoutput.frames import XLOGDATA_HEADER, Keepalive, read_begin, read_commit
from gateway.pgoutput.messages import LogicalMessage, Origin
from gateway.transactions.buffer import FRAME_OVERHEAD, FrameBuffer

__all__ = [
    "CommitWithoutRows",
    "Event",
    "KeepaliveEvent",
    "PreparedTransaction",
    "RolledBack",
    "Series",
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
    """A committed transaction. The receiver owns it and calls `release`.

    It is not to be changed. It is not frozen because its construction would then take four times as
    long, and there is one for each transaction at the source.

    Attributes:
        xid: Xid of the top-level transaction.
        commit_lsn: LSN of its commit record (of COMMIT PREPARED for a prepared one).
        end_lsn: End of that record; decides whether a position is at or before a boundary.
        commit_time: Microseconds since 2000-01-01 00:00 UTC.
        origin: Replication origin; None if it is local.
        gid: Global id of a prepared transaction, otherwise None.
        streamed: Whether its data messages carry a 4-byte xid after their tag.
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


class CommitWithoutRows(Transaction):
    """COMMIT PREPARED of a transaction whose rows the server does not send again.

    It does not once the position of its PREPARE is confirmed. That of another PREPARE, still open,
    can lie between the two: a restart then begins in the middle of a transaction that is in Kafka.
    """

    __slots__ = ()

    def error(self) -> FatalError:
        """Return the error of a transaction that is not in Kafka."""
        return FatalError(
            f"COMMIT PREPARED {self.gid!r} (xid {self.xid}) at {format_lsn(self.commit_lsn)}: its "
            "rows are not here, and the server does not send them again, because the slot has been "
            "confirmed past its PREPARE",
            hint="repeat the initial copy: drop the slot and start again; what was published "
            "so far stays in Kafka. See docs/protocol.md, two-phase commit",
        )


class Series:
    """Whole transactions of a few row changes each and nothing else, in commit order.

    They have no origin, are not streamed and announce nothing. Most streams of a busy database are
    such transactions, and their Begin and Commit cost more than the row if read by themselves. They
    are therefore only counted, and read by the router, many in one call. `pop` returns the next one
    as any other transaction.

    `frames` is not to be changed.

    Attributes:
        frames: Begin, changes and Commit of each, as ``w`` frames.
        place: Index of the Begin of the next transaction.
        memory: Memory used by all frames in bytes, including those already popped.
        end_lsn: End of the last transaction.
    """

    __slots__ = ("_left", "end_lsn", "frames", "memory", "place")

    def __init__(self, frames: list[bytes], transactions: int, byte_size: int) -> None:
        """Construct a series of the frames found by `scan`, at least one transaction."""
        self.frames = frames
        self.place = 0
        self.memory = byte_size + FRAME_OVERHEAD * len(frames)
        self._left = transactions
        self.end_lsn = Lsn(_commit(frames[-1])[1])

    def __len__(self) -> int:
        """Return how many transactions are left."""
        return self._left

    @property
    def commit_lsn(self) -> Lsn:
        """Commit LSN of the next transaction."""
        return Lsn(_begin(self.frames[self.place])[0])

    @property
    def commit_time(self) -> int:
        """Commit time of the next transaction."""
        return _begin(self.frames[self.place])[1]

    def pop(self) -> Transaction:
        """Return and remove the next transaction; there must be one."""
        frames, first = self.frames, self.place + 1
        end = first
        while (ended := read_commit(frames[end])) is None:
            end += 1
        commit_lsn, end_lsn, commit_time = ended
        _, _, xid = _begin(frames[self.place])
        buffer = FrameBuffer()
        buffer.frames = frames[first:end]
        buffer.memory = sum(map(len, buffer.frames)) + FRAME_OVERHEAD * len(buffer.frames)
        self.skip(end + 1, 1)
        return Transaction(
            xid,
            Lsn(commit_lsn),
            Lsn(end_lsn),
            commit_time,
            None,
            None,
            False,
            len(buffer),
            buffer.byte_size,
            buffer,
        )

    def skip(self, place: int, transactions: int) -> tuple[Lsn, Lsn, int, int]:
        """Go on at `place`, which is after `transactions` more transactions, at least one.

        Returns:
            Commit LSN, end LSN, xid and commit time of the last one before `place`.
        """
        first = place - 2
        while (begun := read_begin(self.frames[first])) is None:
            first -= 1
        commit_lsn, end_lsn, commit_time = _commit(self.frames[place - 1])
        self.place = place
        self._left -= transactions
        return Lsn(commit_lsn), Lsn(end_lsn), begun[2], commit_time


@dataclass(frozen=True, slots=True)
class StandaloneMessage:
    """A logical message outside of any transaction. `wal_start` is that of its frame."""

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
    """ROLLBACK PREPARED. Its rows are dropped.

    `prepare_end_lsn` and `prepare_time` are those of the PREPARE.
    """

    xid: int
    gid: str
    prepare_end_lsn: Lsn
    end_lsn: Lsn
    prepare_time: int
    rollback_time: int


Event: TypeAlias = (
    Transaction | Series | StandaloneMessage | Keepalive | PreparedTransaction | RolledBack
)


def _begin(frame: bytes) -> tuple[int, int, int]:
    begun = read_begin(frame)
    assert begun is not None
    return begun


def _commit(frame: bytes) -> tuple[int, int, int]:
    ended = read_commit(frame)
    assert ended is not None
    return ended
