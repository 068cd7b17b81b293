"""Assembly of committed transactions from frames, in commit order, beyond a bound on disk.

A transaction arrives whole at its commit (Begin ... Commit), or while it runs, in stream blocks
that interleave with others (version 2), or at its PREPARE (version 3). Frames are collected as they
are; only the messages that open and close something are decoded. The contents of a committed
transaction are left to its reader.

Source: manual, "Streaming Replication Protocol" and "Logical Replication Message Formats";
apply_dispatch in PostgreSQL's logical/worker.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from gateway._speedups.loader import load_compiled, why_switched_off
from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn, format_lsn
from gateway.pgoutput.decoder import DATA_TAGS, Decoder
from gateway.pgoutput.frames import (
    KEEPALIVE_TAG,
    XLOGDATA_HEADER,
    XLOGDATA_TAG,
    decode_keepalive,
    message_error,
    read_begin,
    read_commit,
    wal_start,
)
from gateway.pgoutput.messages import (
    BeginPrepare,
    CommitPrepared,
    LogicalMessage,
    Message,
    Origin,
    Prepare,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
)
from gateway.transactions.buffer import FRAME_OVERHEAD, FrameBuffer
from gateway.transactions.events import (
    CommitWithoutRows,
    Event,
    PreparedTransaction,
    RolledBack,
    Series,
    StandaloneMessage,
    Transaction,
)
from gateway.transactions.spool import Spool, SpoolFullError

__all__ = ["Assembler"]

_DATA: Final = frozenset(DATA_TAGS)
_NOTHING: Final[frozenset[int]] = frozenset()
_SCANNING: Final = load_compiled("scanning")


@dataclass(slots=True, eq=False)
class _Open:
    """A transaction that has not ended: being sent, streamed in blocks, or prepared.

    `begin` is None when it is streamed; otherwise the LSN and time of the commit, which the Begin
    announced.
    """

    xid: int
    begin: tuple[int, int] | BeginPrepare | None
    origin: Origin | None = None
    buffer: FrameBuffer = field(default_factory=FrameBuffer)


@dataclass(frozen=True, slots=True)
class _Held:
    """A prepared transaction and where its PREPARE stands."""

    transaction: _Open
    prepare_lsn: Lsn


class Assembler:
    """Assembler of the transactions of one replication stream, from its start to its end.

    A new connection needs a new assembler: the server sends unfinished transactions again.

    Args:
        version: Protocol version, 1 to 4.
        parallel_streaming: ``streaming = parallel``, version 4 only.
        max_buffer_bytes: Maximum memory for the frames of all open transactions; above it the
            largest one is moved to disk as a whole. While the disk is full it stays in memory, and
            `stalled` asks the caller to push nothing more.
        spool_directory: Directory of spool files; None for the system's temporary directory.
        series: Whether short transactions may be returned as `Series`, which needs the compiled
            scanner.

    Raises:
        ValueError: no such version, parallel streaming below version 4, a negative bound.
    """

    __slots__ = (
        "_decoder",
        "_held",
        "_open",
        "_room",
        "_scan",
        "_spool_directory",
        "_streams",
        "stalled",
    )

    def __init__(
        self,
        *,
        version: int = 1,
        parallel_streaming: bool = False,
        max_buffer_bytes: int = 16 << 20,
        spool_directory: Path | None = None,
        series: bool = False,
    ) -> None:
        if max_buffer_bytes < 0:
            raise ValueError(f"max_buffer_bytes cannot be negative: {max_buffer_bytes}")
        self._decoder = Decoder(version, parallel_streaming=parallel_streaming)
        self._spool_directory = spool_directory
        self._scan: Callable[[list[bytes], int], tuple[int, int, int]] | None = None
        if series and why_switched_off() is None and not isinstance(_SCANNING, str):
            self._scan = _SCANNING.scan
        # What is left of the bound: max_buffer_bytes minus the memory of every buffer below.
        self._room = max_buffer_bytes
        self._open: _Open | None = None  # the one that frames belong to now
        self._streams: dict[int, _Open] = {}  # by xid, the one in `_open` included
        self._held: dict[str, _Held] = {}  # prepared, by gid
        self.stalled = False

    @property
    def has_open_transactions(self) -> bool:
        """Whether the stream is in the middle of a transaction or stream block.

        A keepalive's position counts only when it is not. A streamed transaction between its
        blocks does no harm: it is sent again as a whole as long as its commit has not been
        confirmed. For prepared ones see `gateway.transactions.holds`.
        """
        return self._open is not None

    def push(self, frames: Sequence[bytes]) -> list[Event]:
        """Push frames in the order of the stream; return the completed events, in that order.

        Raises:
            ProtocolError: a frame or message that does not parse or is not allowed here. Events
                that this call had completed before are lost with it: start again from the
                watermark.
            FatalError: there is no spool.
        """
        events: list[Event] = []
        if self._scan is None:
            self._push(frames, 0, events)
            return events
        frames, place = list(frames), 0
        while place < len(frames):
            if self._open is None:
                end, transactions, size = self._scan(frames, place)
                if transactions:
                    events.append(Series(frames[place:end], transactions, size))
                    place = end
                    continue
            place = self._push(frames, place, events)
        return events

    def _push(self, frames: Sequence[bytes], place: int, events: list[Event]) -> int:
        """Push the frames from `place` on; return the end, or the place where `scan` goes on."""
        # The hot loop: everything but a data message inside an open transaction is the exception.
        accepted, append, room = self._accepting()
        for at, frame in enumerate(islice(frames, place, None), place + 1):
            try:
                is_data = frame[0] == XLOGDATA_TAG and frame[XLOGDATA_HEADER] in accepted
            except IndexError:
                is_data = False
            if is_data:
                append(frame)
                room -= len(frame) + FRAME_OVERHEAD
                if room < 0:
                    self._settle(room)
                    self._make_room()
                    room = self._room
            else:
                self._settle(room)
                self._push_other(frame, events)
                accepted, append, room = self._accepting()
                if self._open is None and self._scan is not None:
                    return at
        self._settle(room)
        return len(frames)

    def sizes(self) -> tuple[int, int]:
        """Return the bytes in memory and on disk of transactions that have not ended."""
        buffers = [transaction.buffer for transaction in self._unended()]
        return sum(b.memory for b in buffers), sum(b.spooled for b in buffers)

    def close(self) -> None:
        """Drop unfinished transactions, and free their memory and spools."""
        for transaction in self._unended():
            transaction.buffer.release()
        self._open = None
        self._streams.clear()
        self._held.clear()

    def _accepting(self) -> tuple[frozenset[int], Callable[[bytes], None], int]:
        if self._open is None:
            return _NOTHING, list[bytes]().append, self._room
        return _DATA, self._open.buffer.frames.append, self._room

    def _settle(self, room: int) -> None:
        """Account for frames that the hot loop has appended to the open buffer meanwhile."""
        if self._open is not None:
            self._open.buffer.memory += self._room - room
        self._room = room

    def relieve(self) -> SpoolFullError | None:
        """Retry moving frames to a disk that was full; return the error if it fails again."""
        self.stalled = False
        return self._make_room()

    def _make_room(self) -> SpoolFullError | None:
        while self._room < 0 and not self.stalled:
            biggest = max((t.buffer for t in self._unended()), key=lambda buffer: buffer.memory)
            memory = biggest.memory
            try:
                biggest.spool(lambda: Spool(self._spool_directory))
            except SpoolFullError as error:
                self.stalled = True
                return error
            self._room += memory
        return None

    def _unended(self) -> Iterator[_Open]:
        if self._open is not None and self._open.begin is not None:
            yield self._open
        yield from self._streams.values()
        for held in self._held.values():
            yield held.transaction

    def _push_other(self, frame: bytes, events: list[Event]) -> None:
        try:
            if (begun := read_begin(frame)) is not None:
                self._begin(*begun)
                return
            if (ended := read_commit(frame)) is not None:
                events.append(self._commit(*ended))
                return
            tag = frame[0] if frame else None
            if tag == KEEPALIVE_TAG:
                events.append(decode_keepalive(frame))
            elif tag == XLOGDATA_TAG:
                if len(frame) < XLOGDATA_HEADER:
                    wal_start(frame)  # says so
                event = self._handle(self._decoder.decode(frame, XLOGDATA_HEADER), frame)
                if event is not None:
                    events.append(event)
            else:
                raise ProtocolError("neither XLogData nor a keepalive", tag=frame[:1], offset=0)
        except _Violation as violation:
            raise message_error(frame, XLOGDATA_HEADER, str(violation)) from None

    def _handle(self, message: Message, frame: bytes) -> Event | None:
        match message:
            case BeginPrepare():
                self._nothing_open()
                self._open = _Open(message.xid, message)
            case Origin():
                self._origin(message)
            case StreamStart():
                self._stream_start(message)
            case StreamStop():
                self._stream_stop()
            case StreamCommit(xid=xid):
                return self._complete(
                    self._end_stream(xid), message.commit_lsn, message.end_lsn, message.commit_time
                )
            case StreamAbort():
                self._stream_abort(message)
            case Prepare():
                return self._prepare(message)
            case StreamPrepare(xid=xid):
                return self._hold(self._end_stream(xid), message)
            case CommitPrepared():
                return self._commit_prepared(message)
            case RollbackPrepared():
                return self._rollback_prepared(message)
            case LogicalMessage(transactional=False):
                return StandaloneMessage(message, wal_start(frame))
            case _:
                raise _Violation("a data message outside of any transaction")
        return None

    def _nothing_open(self) -> None:
        if self._open is not None:
            raise _Violation(f"transaction {self._open.xid} has not ended, or its block has not")

    def _begin(self, final_lsn: int, commit_time: int, xid: int) -> None:
        if self._open is not None:
            self._nothing_open()
        self._open = _Open(xid, (final_lsn, commit_time))

    def _commit(self, commit_lsn: int, end_lsn: int, commit_time: int) -> Transaction:
        transaction = self._open
        if transaction is None or not isinstance(begin := transaction.begin, tuple):
            raise _Violation("Commit without Begin")
        if begin != (commit_lsn, commit_time):
            raise _Violation(
                f"Begin of transaction {transaction.xid} announced a commit at "
                f"{format_lsn(begin[0])}, this is one at {format_lsn(commit_lsn)}"
            )
        self._open = None
        return self._complete(transaction, commit_lsn, end_lsn, commit_time)

    def _complete(
        self,
        transaction: _Open,
        commit_lsn: int,
        end_lsn: int,
        commit_time: int,
        gid: str | None = None,
    ) -> Transaction:
        buffer = transaction.buffer
        self._room += buffer.memory
        # By place: one is made for each transaction at the source, and names cost.
        return Transaction(
            transaction.xid,
            Lsn(commit_lsn),
            Lsn(end_lsn),
            commit_time,
            transaction.origin,
            gid,
            transaction.begin is None,
            len(buffer),
            buffer.byte_size,
            buffer,
        )

    def _origin(self, message: Origin) -> None:
        if self._open is None:
            raise _Violation("Origin outside of any transaction")
        if self._open.origin is not None or (self._open.begin is not None and self._open.buffer):
            raise _Violation(f"Origin in the middle of transaction {self._open.xid}")
        self._open.origin = message

    def _stream_start(self, message: StreamStart) -> None:
        self._nothing_open()
        if message.first_segment == (message.xid in self._streams):
            what = "a second first" if message.first_segment else "no first"
            raise _Violation(f"transaction {message.xid} has {what} stream block")
        if message.first_segment:
            self._streams[message.xid] = _Open(message.xid, None)
        self._open = self._streams[message.xid]

    def _stream_stop(self) -> None:
        if self._open is None or self._open.begin is not None:
            raise _Violation("Stream Stop without Stream Start")
        self._open = None

    def _stream(self, xid: int) -> _Open:
        self._nothing_open()
        if (transaction := self._streams.get(xid)) is None:
            raise _Violation(f"transaction {xid} has no stream block")
        return transaction

    def _end_stream(self, xid: int) -> _Open:
        transaction = self._stream(xid)
        del self._streams[xid]
        return transaction

    def _stream_abort(self, message: StreamAbort) -> None:
        if message.xid == message.subxid:
            self._discard(self._end_stream(message.xid))
        else:
            self._stream(message.xid).buffer.abort(message.subxid)

    def _discard(self, transaction: _Open) -> None:
        self._room += transaction.buffer.memory
        transaction.buffer.release()

    def _prepare(self, message: Prepare) -> PreparedTransaction:
        if self._open is None or not isinstance(begin := self._open.begin, BeginPrepare):
            raise _Violation("Prepare without Begin Prepare")
        if (begin.xid, begin.gid, begin.prepare_lsn, begin.end_lsn) != (
            message.xid,
            message.gid,
            message.prepare_lsn,
            message.end_lsn,
        ):
            raise _Violation(f"Prepare does not match the Begin Prepare of transaction {begin.xid}")
        transaction, self._open = self._open, None
        return self._hold(transaction, message)

    def _hold(self, transaction: _Open, message: Prepare | StreamPrepare) -> PreparedTransaction:
        # From here on the server must be kept from forgetting the rows: `PrepareHolds` does that.
        if message.gid in self._held:
            raise _Violation(f"gid {message.gid!r} is prepared already")
        self._held[message.gid] = _Held(transaction, message.prepare_lsn)
        return PreparedTransaction(
            xid=message.xid,
            gid=message.gid,
            prepare_lsn=message.prepare_lsn,
            end_lsn=message.end_lsn,
            prepare_time=message.prepare_time,
            relations=tuple(transaction.buffer.relations()),
            streamed=transaction.begin is None,
        )

    def _unhold(self, message: CommitPrepared | RollbackPrepared) -> _Open | None:
        self._nothing_open()
        if (held := self._held.get(message.gid)) is None:
            return None
        if held.transaction.xid != message.xid:
            raise _Violation(
                f"gid {message.gid!r} was prepared by transaction {held.transaction.xid}, "
                f"not by {message.xid}"
            )
        del self._held[message.gid]
        return held.transaction

    def _commit_prepared(self, message: CommitPrepared) -> Transaction:
        if (transaction := self._unhold(message)) is None:
            return CommitWithoutRows(
                message.xid,
                message.commit_lsn,
                message.end_lsn,
                message.commit_time,
                None,
                message.gid,
                False,
                0,
                0,
                FrameBuffer(),
            )
        return self._complete(
            transaction, message.commit_lsn, message.end_lsn, message.commit_time, message.gid
        )

    def _rollback_prepared(self, message: RollbackPrepared) -> RolledBack:
        # Not held here: it was prepared before this process started. There is nothing to drop.
        if (transaction := self._unhold(message)) is not None:
            self._discard(transaction)
        return RolledBack(
            xid=message.xid,
            gid=message.gid,
            prepare_end_lsn=message.prepare_end_lsn,
            end_lsn=message.rollback_end_lsn,
            prepare_time=message.prepare_time,
            rollback_time=message.rollback_time,
        )


class _Violation(Exception):
    """Return the error for a message that is not allowed here; the caller adds the frame."""
