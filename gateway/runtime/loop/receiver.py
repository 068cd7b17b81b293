"""Non-blocking reader of the replication stream; spills to disk when the loop falls behind.

PostgreSQL ends a connection that does not answer, and a server that is asked to stop waits for one
that does not read. The stream is therefore read and answered also while Kafka is away, a table is
copied or a catalog look-up hangs. Frames for which there is no room go to disk (`DiskQueue`).

    the loop receives      receive()    from disk first, then from the socket
    the loop has no room   defer()      nothing for half a second, then from the socket to disk
    the loop is held       spool()      from the socket to disk
    the loop is blocked    answering()  a thread does that

A server that is only faster than Kafka, or than the loop, waits as it does for any subscriber: the
way through the disk costs CPU where it is short. While the loop reads from disk, the socket is
looked at twice a second.

When the disk has no room, reading pauses and the log says so; feedback goes on.

Keepalives that request a reply are answered as soon as they are read. A server that keeps
requesting one is shutting down and waits for a confirmation
(`gateway.runtime.loop.shutdown_keepalives`); its connection is closed instead, so that it can stop.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from gateway.core.closing import Closing
from gateway.core.descriptors import wait_readable
from gateway.core.errors import FatalError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn, format_lsn
from gateway.observe import event
from gateway.pgoutput.frames import KEEPALIVE_TAG, XLOGDATA_TAG
from gateway.runtime.loop.disk_queue import DiskQueue
from gateway.runtime.loop.shutdown_keepalives import ShutdownKeepalives
from gateway.runtime.ports import Source
from gateway.transactions.spool import SpoolFullError

__all__ = ["Receiver"]

_LOG: Final = logging.getLogger(__name__)

_FRAMES_PER_TURN: Final = 2_000
"""Frames received from the source before anything else is looked at again."""

_LOOK_S: Final = 0.5
"""Time for which the socket is not read while there is no room, or frames on disk to read first."""

_RETRY_FULL_S: Final = 1.0
_REMIND_S: Final = 60.0
_POSITION: Final = struct.Struct(">xQ")  # wal_start of XLogData, wal_end of a keepalive


class Receiver(Closing):
    """Reader of a started `Source`, even while the loop has no room. Not thread-safe.

    Args:
        source: Started source, which is closed with the receiver.
        spool_directory: Directory of frames that wait; None for the system's temporary directory.
        feedback_interval_s: Longest time between two standby status updates in `answering`, in
            seconds.
        clock: Seconds, monotonic.

    Attributes:
        heard_at: Time of the last message from the server, by that clock.
        silent_for_s: Seconds of silence after which the server counts as lost; 0 for never.
    """

    def __init__(
        self,
        source: Source,
        *,
        spool_directory: Path | None = None,
        feedback_interval_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._feedback_interval_s = feedback_interval_s
        self._clock = clock
        self._disk_queue = DiskQueue(spool_directory)
        self._unstored: list[bytes] = []  # read from the socket, no room on disk
        self._received_at = self._read_at = clock()  # by the loop, and from the socket
        self._waits = False
        self._try_disk_at = 0.0
        self._remind_at = 0.0
        self._keepalives = ShutdownKeepalives()
        self._flush_lsn = ZERO_LSN
        self._received_lsn = ZERO_LSN
        self.heard_at = clock()
        self.silent_for_s = source.silent_for_s

    def fileno(self) -> int:
        """Return the descriptor of the source, readable when the server has sent something.

        Raises:
            TransientError: the connection is gone.
        """
        return self._source.fileno()

    @property
    def waiting(self) -> bool:
        """Whether `receive` returns something even if the server sends nothing."""
        return bool(self._disk_queue) or bool(self._unstored)

    @property
    def reads(self) -> bool:
        """Whether to wait for data from the server."""
        return not self._unstored and not self._waits

    @property
    def spooled(self) -> int:
        """Bytes on disk that wait to be received."""
        return self._disk_queue.size

    def receive(self) -> Sequence[bytes]:
        """Return the next frames of the stream, a bounded number of them, without waiting.

        Raises:
            TransientError, SlotError, FatalError: as `Source.receive`, and for the disk.
        """
        self._waits = False
        self._received_at = self._clock()
        if self.waiting and self._received_at >= self._read_at + _LOOK_S:
            self.spool()
        if frames := self._disk_queue.pop():
            return frames
        if self._unstored:
            frames, self._unstored = self._unstored, []
            return frames
        self._read_at = self._received_at
        received = self._source.receive(_FRAMES_PER_TURN)
        self._note(received)
        if received and b"w" in (received[0][:1], received[-1][:1]):
            self._keepalives.reset()  # the server is at work
        return received

    def defer(self) -> None:
        """Note that the loop has no room; if that lasts, spool.

        Raises:
            TransientError, SlotError, FatalError: as `spool`.
        """
        self._waits = self._clock() < self._received_at + _LOOK_S
        if not self._waits:
            self.spool()

    def spool(self) -> int:
        """Move received frames to disk; return their number.

        Raises:
            TransientError: the connection is gone, or the server is stopping and insists on a
                confirmation that cannot be given.
            SlotError, FatalError: as `Source.receive`, and for the disk.
        """
        self._waits = False
        self._read_at = self._clock()
        if self._unstored:
            self._store()
            if self._unstored:
                return 0
        frames = self._source.receive(_FRAMES_PER_TURN)
        if not frames:
            return 0
        self._note(frames)
        self._unstored = [self._answered(frame) for frame in frames]
        self._store()
        return len(frames)

    def send_feedback(self, flush_lsn: Lsn, *, reply_requested: bool = False) -> None:
        """Send a standby status update: `flush_lsn` is in Kafka, all frames so far are received.

        Raises:
            TransientError: the connection is gone.
        """
        self._flush_lsn = max(self._flush_lsn, flush_lsn)
        self._source.send_feedback(
            self._flush_lsn,
            write_lsn=max(self._received_lsn, self._flush_lsn),
            reply_requested=reply_requested,
        )

    def answer(self, wal_end: Lsn, flush_lsn: Lsn = ZERO_LSN) -> None:
        """Answer a keepalive that asks for it; `flush_lsn` as for `send_feedback`.

        Raises:
            TransientError: the connection is gone, or the server is stopping and insists.
        """
        self.send_feedback(flush_lsn)
        if self._keepalives.is_shutting_down(wal_end, self._flush_lsn, self._clock()):
            raise TransientError(
                "the source server is stopping and waits for a confirmation of "
                f"{format_lsn(wal_end)}, which cannot be given yet: everything until "
                f"{format_lsn(self._flush_lsn)} is safe in Kafka",
                hint="nothing is lost, the rest is read again from the slot; what holds it "
                "back is a prepared transaction (pg_prepared_xacts), or Kafka",
            )

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Let a thread read and answer while the block runs, which may take long.

        Nothing else of this object may be used in the block.

        Raises:
            Exception: what went wrong meanwhile; at the block's end, if that ends well. A fatal
                failure also replaces a transient one of the block, which may be its consequence.
        """
        failure: list[Exception] = []
        ended, end = os.pipe()
        thread = threading.Thread(
            target=self._answer, args=(ended, failure), name="pgsluice receiver", daemon=True
        )
        thread.start()
        consequence: TransientError | None = None
        try:
            yield
        except TransientError as error:
            consequence = error
        finally:
            os.write(end, b"\0")
            thread.join()
            os.close(ended)
            os.close(end)
        if failure and (consequence is None or isinstance(failure[0], FatalError)):
            raise failure[0]
        if consequence is not None:
            if not failure:
                with suppress(TransientError):
                    self.spool()  # The server may have said why after the last frames.
            raise consequence

    def finish(self, timeout_s: float) -> None:
        """End the stream, once the server has read the last feedback or time is up."""
        self._source.finish(timeout_s)
        self._disk_queue.close()

    def close(self) -> None:
        """Close the connection and free the disk."""
        self._source.close()
        self._disk_queue.close()

    def _answer(self, ended: int, failure: list[Exception]) -> None:
        next_feedback = self._clock()
        try:
            while True:
                if self._clock() >= next_feedback:
                    self.send_feedback(self._flush_lsn)
                    next_feedback = self._clock() + self._feedback_interval_s
                if self.spool() == _FRAMES_PER_TURN:
                    ready = wait_readable([ended], 0)
                else:
                    edges = [ended, self._source.fileno()] if self.reads else [ended]
                    wait_s = min(_LOOK_S, max(0.0, next_feedback - self._clock()))
                    ready = wait_readable(edges, wait_s)
                if ended in ready:
                    return
        except Exception as error:
            # Immediately: a server that is stopping does not wait for the end of the block.
            self._source.close()
            failure.append(error)

    def _note(self, frames: Sequence[bytes]) -> None:
        if frames:
            self.heard_at = self._clock()
            (position,) = _POSITION.unpack_from(frames[-1])
            self._received_lsn = max(self._received_lsn, Lsn(position))

    def _answered(self, frame: bytes) -> bytes:
        """Answer a keepalive that asks for it; return it without the request."""
        tag = frame[0] if frame else None
        if tag == XLOGDATA_TAG:
            self._keepalives.reset()
        elif tag == KEEPALIVE_TAG and frame[-1]:
            self.answer(Lsn(_POSITION.unpack_from(frame)[0]))
            return frame[:-1] + b"\0"
        return frame

    def _store(self) -> None:
        now = self._clock()
        if now < self._try_disk_at:
            return
        try:
            self._disk_queue.append(self._unstored)
        except SpoolFullError as error:
            self._try_disk_at = now + _RETRY_FULL_S
            if now >= self._remind_at:
                self._remind_at = now + _REMIND_S
                event(
                    _LOG,
                    logging.ERROR,
                    "spool full: reading paused, the slot retains WAL",
                    error=error.message,
                    hint=error.hint or "",
                )
        else:
            if self._remind_at:
                self._remind_at = 0.0
                event(_LOG, logging.INFO, "spool has room again: reading resumed")
            self._unstored = []
