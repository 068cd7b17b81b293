"""Thread that reads the tables of sub-selects whose sets are not built yet.

Each table is read once for all its sets, in one transaction whose rows wait in a spool; the next
one is read when they are placed. One that somebody has locked, or whose rows could not be placed,
is read after the others. The gate, and the place of what was read, are those of a copy
(`gateway.copy`).
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.copy import Chunk, ChunkRequest, Snapshot
from gateway.core.background import OnWait
from gateway.core.errors import GatewayError
from gateway.core.lsn import Lsn
from gateway.observe import event
from gateway.routing.build.followed_tables import InnerTable
from gateway.runtime.copy.first_snapshot import FirstSnapshot
from gateway.runtime.copy.reader_loop import Connect, ReaderLoop
from gateway.runtime.wait_log import LockNotices
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.source.copy.errors import TableChanged, TableGone, TableLocked, TableUnreadable

__all__ = ["SetReads"]

_LOG: Final = logging.getLogger(__name__)
_GATE_S: Final = 0.1
_FLUSH_S: Final = 0.1
_JOIN_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 60.0
"""As long as the longest life of a copier that another one replaces."""


@dataclass(frozen=True, slots=True)
class _Read:
    inner: InnerTable
    chunk: Chunk


class SetReads:
    """Reads of some inner tables, from `start` to `close`; all else is called by the loop.

    Args:
        tables: Tables to read.
        open_reader: Opens a connection; its argument is called during waits.
        wake: Wakes the loop.
        retry_s: Pause before a connection is opened again, and the first one after a read that
            could not be placed.

    Attributes:
        altered: Whether a table has changed since the plan was made.
        unreadable: Tables that cannot be read, with the errors.
    """

    def __init__(
        self,
        tables: Sequence[InnerTable],
        *,
        open_reader: Callable[[OnWait], ChunkReader],
        wake: Callable[[], None],
        retry_s: float,
    ) -> None:
        self._tables = deque(tables)
        self._note_lock = LockNotices()
        self._wake = wake
        self._retry_s = retry_s
        self._read: _Read | None = None
        self._snapshots: deque[Snapshot] = deque(maxlen=16)
        self._failure: Exception | None = None
        self._is_void = False
        self._pauses: dict[int, float] = {}
        self.altered = False
        self.unreadable: list[tuple[InnerTable, TableUnreadable]] = []
        self._placed = threading.Event()
        self._closed = threading.Event()
        self._loop = ReaderLoop(
            open_reader,
            FirstSnapshot(
                "the sets of sub-selects wait for transactions that are still running", self._closed
            ),
            self._closed,
            retry_s,
            self._note,
            self._fail,
        )
        self._thread = threading.Thread(target=self._work, name="pgsluice sets", daemon=True)

    def start(self) -> None:
        """Start the thread, if there is something to read."""
        if self._tables:
            self._thread.start()

    def close(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._closed.set()
        self._placed.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_S)
        self._drop()

    def awaited(self) -> Lsn | None:
        """Return the position of what waits to be placed."""
        return None if self._read is None else self._read.chunk.insert_lsn

    def due(self, until: Lsn) -> tuple[InnerTable, Chunk] | None:
        """Return what can be placed now; `placed` follows.

        Raises:
            Exception: the failure of the thread.
        """
        if self._failure is not None:
            raise self._failure
        read = self._read
        if read is None or read.chunk.insert_lsn > until:
            return None
        return read.inner, read.chunk

    def placed(self) -> None:
        """Note that what was due is placed, or left to the reads that begin later."""
        self._drop()
        self._placed.set()

    def _drop(self) -> None:
        read, self._read = self._read, None
        close = None if read is None else getattr(read.chunk.rows, "close", None)
        if close is not None:
            close()  # its spool

    def read_again(self) -> None:
        """Note that what was due cannot be placed, and is read once more, after the others."""
        self._is_void = True
        self.placed()

    def pop_snapshot(self) -> Snapshot | None:
        """Return a snapshot whose transactions all reads from now on see."""
        return self._snapshots.pop() if self._snapshots and self._read is None else None

    # The thread

    def _work(self) -> None:
        self._loop.run(self._step)

    def _step(self, connect: Connect) -> bool:
        """Read one table; return whether there may be another one to read."""
        inner = self._tables[0]
        try:
            self._hand_over(connect(), inner)
        except (TableGone, TableChanged) as error:
            event(_LOG, logging.WARNING, "starting again", because=error.message)
            self.altered = True
            self._wake()
            return False
        except TableLocked as error:
            self._note_lock(inner.table, error)
            self._tables.rotate(-1)
            return True
        except TableUnreadable as error:
            self._tables.popleft()
            self.unreadable.append((inner, error))
            self._wake()
            return bool(self._tables)
        if self._is_void:
            self._is_void = False
            self._tables.rotate(-1)
            self._pause_after(inner.table.oid)
        else:
            self._tables.popleft()
        return bool(self._tables)

    def _pause_after(self, oid: int) -> None:
        """Pause after a void read; the pause doubles, for its owner may void each."""
        pause_s = self._pauses.get(oid, self._retry_s)
        self._pauses[oid] = min(2 * pause_s, _LONGEST_PAUSE_S)
        if any(inner.table.oid not in self._pauses for inner in self._tables):
            pause_s = self._retry_s  # of others
        self._closed.wait(pause_s)

    def _hand_over(self, reader: ChunkReader, inner: InnerTable) -> None:
        source = ChunkSource(inner.table, inner.columns, (), masked=inner.masked)
        began = time.monotonic()
        chunk = reader.read(source, ChunkRequest(True, None, ()), 0)
        event(
            _LOG,
            logging.INFO,
            "table of sub-selects read",
            relation=inner.table,
            sets=len(inner.subselects),
            rows=chunk.size,
            seconds=round(time.monotonic() - began, 1),
        )
        self._placed.clear()
        self._snapshots.append(chunk.snapshot)
        self._read = _Read(inner, chunk)
        self._wake()
        if not self._placed.wait(_FLUSH_S):
            with contextlib.suppress(GatewayError):  # the server writes it out later, too
                reader.flush()
        while not self._placed.is_set() and not self._closed.is_set():
            self._placed.wait(_GATE_S)

    def _note(self, snapshot: Snapshot) -> None:
        self._snapshots.append(snapshot)
        self._wake()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._wake()
