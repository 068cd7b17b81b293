"""Thread that reads tables of sub-selects, for sets that are not built or stale.

Each table is read once for all its sets, in one transaction whose rows wait in a spool; the next
one is read when they are placed. A table that somebody has locked, or whose gate is closed, is read
after the others. The gate, and the place of what was read, are those of a copy (`gateway.copy`); it
is another one for each request, which sees all that was published before.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from gateway.copy import Chunk, ChunkRequest, Snapshot
from gateway.core.background import OnWait
from gateway.core.errors import GatewayError, TransientError
from gateway.core.lsn import Lsn
from gateway.observe import event
from gateway.routing.build.followed_tables import InnerTable
from gateway.runtime.copy.first_snapshot import GATE_S, FirstSnapshot
from gateway.runtime.copy.reader_loop import Connect, ReaderLoop
from gateway.runtime.wait_log import LockNotices
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.source.copy.errors import TableChanged, TableGone, TableLocked, TableUnreadable

__all__ = ["SetReads"]

_LOG: Final = logging.getLogger(__name__)
_FLUSH_S: Final = 0.1
_JOIN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Request:
    inner: InnerTable
    gate: FirstSnapshot


@dataclass(frozen=True, slots=True)
class _Read:
    inner: InnerTable
    chunk: Chunk


class SetReads:
    """Reads of inner tables, until `close`; called by the loop.

    Args:
        open_reader: Opens a connection; its argument is called during waits.
        wake: Wakes the loop.
        retry_s: Pause before a connection is opened again.

    Attributes:
        altered: Whether a table has changed since the plan was made.
        unreadable: Tables that cannot be read, with the errors.
    """

    def __init__(
        self,
        *,
        open_reader: Callable[[OnWait], ChunkReader],
        wake: Callable[[], None],
        retry_s: float,
    ) -> None:
        self._note_lock = LockNotices()
        self._wake = wake
        self._unplaced: set[int] = set()
        self._read: _Read | None = None
        self._snapshots: deque[Snapshot] = deque(maxlen=16)
        self._failure: Exception | None = None
        self.altered = False
        self.unreadable: list[tuple[InnerTable, TableUnreadable]] = []
        self._placed = threading.Event()
        self._closed = threading.Event()
        self._loop = ReaderLoop(open_reader, None, self._closed, retry_s, self._note, self._fail)
        # Guards the following: the thread ends when there is nothing to read, and another begins.
        self._lock = threading.Lock()
        self._requests: deque[_Request] = deque()
        self._thread: threading.Thread | None = None

    def close(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._closed.set()
        self._placed.set()
        if (thread := self._thread) is not None:
            thread.join(_JOIN_S)
        self._drop()

    def read(self, tables: Iterable[InnerTable]) -> None:
        """Read tables by snapshots that see everything that has been published so far.

        Args:
            tables: Tables, none of which `is_reading`.
        """
        gate = FirstSnapshot(
            "the sets of sub-selects wait for transactions that are still running", self._closed
        )
        found = [_Request(inner, gate) for inner in tables]
        self._unplaced.update(request.inner.table.oid for request in found)
        with self._lock:
            self._requests += found
            if self._thread is None and found:
                self._thread = threading.Thread(
                    target=self._work, name="pgsluice sets", daemon=True
                )
                self._thread.start()

    def is_reading(self, oid: int) -> bool:
        """Whether a table is to be read, or what was read of it waits to be placed."""
        return oid in self._unplaced

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
        """Note that what was due is placed, or cannot be placed."""
        self._drop()
        self._placed.set()

    def _drop(self) -> None:
        read, self._read = self._read, None
        if read is not None:
            self._unplaced.discard(read.inner.table.oid)
            if (close := getattr(read.chunk.rows, "close", None)) is not None:
                close()  # its spool

    def pop_snapshot(self) -> Snapshot | None:
        """Return a snapshot whose transactions all reads from now on see."""
        return self._snapshots.pop() if self._snapshots and self._read is None else None

    # The thread

    def _work(self) -> None:
        self._loop.run(self._step)

    def _step(self, connect: Connect) -> bool:
        """Read one table; return whether there may be another one to read."""
        with self._lock:
            if not self._requests:
                self._thread = None
                return False
            request = self._requests.popleft()
        inner = request.inner
        try:
            reader = connect()
            if request.gate.is_passed(reader, self._note):
                self._hand_over(reader, inner)
                return True
            self._closed.wait(GATE_S)
        except (TableGone, TableChanged) as error:
            event(_LOG, logging.WARNING, "starting again", because=error.message)
            self.altered = True
            self._wake()
            return False
        except TableLocked as error:
            self._note_lock(inner.table, error)
        except TableUnreadable as error:
            self.unreadable.append((inner, error))
            self._wake()
            return True
        except TransientError:
            self._put_back(request)  # its owner may rewrite it during each read
            raise
        self._put_back(request)
        return True

    def _put_back(self, request: _Request) -> None:
        """Leave a table until the others have been read."""
        with self._lock:
            self._requests.append(request)

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
            self._placed.wait(GATE_S)

    def _note(self, snapshot: Snapshot) -> None:
        self._snapshots.append(snapshot)
        self._wake()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._wake()
