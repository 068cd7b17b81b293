"""The simulated PostgreSQL server: one WAL, one slot, one stream at a time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from gateway.core.errors import SlotBusyError, TransientError
from gateway.core.lsn import Lsn
from gateway.source.stream.server_position import ServerPosition
from gateway.source.stream.slot import SlotStatus
from tests.support.simulation.wal import Wal
from tests.support.simulation.walsender import Walsender

__all__ = ["ALWAYS_READABLE", "SLOT", "Backup", "Server", "Session", "Slot", "Stream"]

SLOT: Final = "pgsluice"
DATABASE: Final = "db"


def _always_readable() -> int:
    reader, writer = os.pipe()
    os.write(writer, b"x")
    return reader


ALWAYS_READABLE: Final = _always_readable()
"""Descriptor of all simulated edges: the loop never waits in real time."""


@dataclass
class Slot:
    """The replication slot.

    Attributes:
        created_at: Its consistent point.
        confirmed: Confirmed position in memory.
        stored: Confirmed position on disk, which a crash goes back to.
    """

    created_at: int
    confirmed: int
    stored: int


@dataclass(frozen=True)
class Backup:
    """Copy of the server's files."""

    wal: Wal
    slot: Slot | None
    timeline: int
    history: Mapping[int, Lsn]


class Session:
    """An SQL session, which may hold the advisory lock of the first start."""

    def __init__(self, server: Server) -> None:
        server.ask()
        self._server = server
        self.gone = False
        server.sessions.append(self)

    def ask(self) -> None:
        """Run a statement.

        Raises:
            TransientError: the connection is gone.
        """
        if self.gone:
            raise TransientError("the simulated session is gone")

    def position(self) -> ServerPosition:
        """Return what a start asks for."""
        self.ask()
        return self._server.position()

    def slot_status(self) -> SlotStatus | None:
        """Return the row of pg_replication_slots."""
        self.ask()
        return self._server.slot_status()

    def lock_first_start(self) -> None:
        """Acquire the advisory lock, for as long as the session lasts.

        Raises:
            SlotBusyError: another session has it.
        """
        self.ask()
        if self._server.lock not in (None, self):
            raise SlotBusyError("another simulated session has the lock")
        self._server.lock = self

    def drop_slot(self) -> None:
        """Drop the slot.

        Raises:
            SlotBusyError: a stream has it.
            TransientError: there is none.
        """
        self.ask()
        self._server.drop_slot()

    def close(self) -> None:
        """End it."""
        self.gone = True
        if self in self._server.sessions:
            self._server.sessions.remove(self)
        if self._server.lock is self:
            self._server.lock = None


@dataclass
class Server:
    """A server that crashes, is restored and is promoted, as the world wants it.

    Args:
        random: Decides what the walsender sends, and when.
        on_feedback: Called with each flush LSN that a gateway confirms.

    Attributes:
        stream: The stream that has the slot, or None.
        lock: The session that has the advisory lock of the first start, or None.
    """

    random: Random
    on_feedback: Callable[[int], None]
    wal: Wal = field(default_factory=Wal)
    slot: Slot | None = None
    stream: Stream | None = None
    timeline: int = 1
    history: dict[int, Lsn] = field(default_factory=dict)
    down: bool = False
    sessions: list[Session] = field(default_factory=list)
    lock: Session | None = None

    def ask(self) -> None:
        """Connect for a query.

        Raises:
            TransientError: the server is down.
        """
        if self.down:
            raise TransientError("the simulated server is down")

    def position(self) -> ServerPosition:
        """Return its position and history."""
        return ServerPosition("1", DATABASE, self.timeline, Lsn(self.wal.end), False, self.history)

    def slot_status(self) -> SlotStatus | None:
        """Return the row of pg_replication_slots."""
        if (slot := self.slot) is None:
            return None
        pid = None if self.stream is None else 1
        confirmed = Lsn(slot.confirmed)
        return SlotStatus(
            SLOT,
            "pgoutput",
            DATABASE,
            False,
            pid,
            confirmed,
            confirmed,
            "reserved",
            None,
            None,
            True,
        )

    def create_slot(self) -> Lsn:
        """Create the slot.

        Raises:
            SlotBusyError: there is one.
            TransientError: transactions are running, for which a real slot waits.
        """
        self.ask()
        if self.slot is not None:
            raise SlotBusyError("the simulated slot exists")
        if self.wal.running or self.wal.prepared:
            raise TransientError("the simulated slot waits for running transactions")
        self.slot = Slot(self.wal.end, self.wal.end, self.wal.end)
        return Lsn(self.wal.end)

    def drop_slot(self) -> None:
        """Drop the slot.

        Raises:
            SlotBusyError: a stream has it.
            TransientError: there is none.
        """
        self.ask()
        if self.stream is not None:
            raise SlotBusyError("the simulated slot is read")
        if self.slot is None:
            raise TransientError("the simulated slot does not exist")
        self.slot = None

    def start(self) -> Stream:
        """Start the stream of the slot.

        Raises:
            SlotBusyError: another stream has it.
        """
        self.ask()
        if self.stream is not None:
            raise SlotBusyError("another simulated stream has the slot")
        assert self.slot is not None
        self.stream = Stream(self, Walsender(self.wal, self.slot.confirmed, self.random))
        return self.stream

    def disconnect(self) -> None:
        """End the connection of the stream, as a network or a time-out does."""
        if self.stream is not None:
            self.stream.gone = True
            self.stream = None

    def end_sessions(self) -> None:
        """End all connections."""
        self.disconnect()
        for session in list(self.sessions):
            session.close()

    def checkpoint(self) -> None:
        """Write the slot to disk."""
        if self.slot is not None:
            self.slot.stored = self.slot.confirmed

    def crash(self) -> None:
        """Stop at once and start again."""
        self.end_sessions()
        self.wal.crash()
        if self.slot is not None:
            self.slot.confirmed = self.slot.stored

    def back_up(self) -> Backup:
        """Copy the files."""
        slot = self.slot
        stored = None if slot is None else Slot(slot.created_at, slot.stored, slot.stored)
        return Backup(self.wal.copy(), stored, self.timeline, dict(self.history))

    def restore(self, backup: Backup, *, promote: bool) -> None:
        """Replace the files by those of a backup; with `promote`, on a timeline of their own."""
        self.end_sessions()
        self.wal = backup.wal.copy()
        slot = backup.slot
        self.slot = None if slot is None else Slot(slot.created_at, slot.stored, slot.stored)
        self.timeline, self.history = backup.timeline, dict(backup.history)
        if promote:
            self.history[self.timeline] = Lsn(self.wal.end)
            self.timeline += 1

    def confirm(self, flush_lsn: int) -> None:
        """Move the slot, as a standby status update does."""
        self.on_feedback(flush_lsn)
        assert self.slot is not None
        self.slot.confirmed = max(self.slot.confirmed, flush_lsn)


class Stream:
    """A started stream: `gateway.runtime.ports.Source` of one connection."""

    silent_for_s = 0.0

    def __init__(self, server: Server, walsender: Walsender) -> None:
        self._server = server
        self._walsender = walsender
        self._frames: deque[bytes] = deque()
        self.gone = False

    def fileno(self) -> int:
        self._alive()
        return ALWAYS_READABLE

    def receive(self, limit: int) -> Sequence[bytes]:
        self._alive()
        random = self._server.random
        for _ in range(random.randrange(12)):
            if self._walsender.is_ahead:
                break
            self._frames += self._walsender.read()
        if not self._frames and random.random() < 0.3:
            asks = random.random() < 0.2
            self._frames.append(self._walsender.keepalive(reply_requested=asks))
        count = min(limit, len(self._frames), random.randrange(1, 12))
        return [self._frames.popleft() for _ in range(count)]

    def send_feedback(
        self, flush_lsn: Lsn, *, write_lsn: Lsn | None = None, reply_requested: bool = False
    ) -> None:
        self._alive()
        self._server.confirm(flush_lsn)
        if reply_requested and not self._frames and self._walsender.is_ahead:
            self._frames.append(self._walsender.keepalive(reply_requested=False))

    def finish(self, timeout_s: float) -> bool:
        self.close()
        return True

    def close(self) -> None:
        if self._server.stream is self:
            self._server.disconnect()
        self.gone = True

    def _alive(self) -> None:
        if self.gone:
            raise TransientError("the simulated connection is gone")
