"""Threads that read the rows which enter or leave a subscription because another table changed.

They read as the workers of copies do (`gateway.source.copy.chunk_reader`), and are as many; those
end when all tables are copied. The loop asks for slices or for keys, and places each answer between
two transactions, at or after the answer's position. The first question starts the threads.

No read begins before all transactions have ended that ran when the first thread began, for the
reason that `gateway.copy` gives.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from gateway.config import CopyTable
from gateway.copy import ChunkRequest, Snapshot
from gateway.core.background import OnWait
from gateway.core.errors import GatewayError
from gateway.core.lsn import Lsn
from gateway.pgtypes.catalog import TYPES
from gateway.runtime.copy.first_snapshot import FirstSnapshot
from gateway.runtime.copy.reader_loop import Connect, ReaderLoop
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.source.copy.errors import (
    ConditionError,
    TableChanged,
    TableLocked,
    TableUnreadable,
)
from gateway.subselects.moves.conditions import slice_condition
from gateway.subselects.moves.reads import MoveChunk, MoveRequest

__all__ = ["MoveReaders", "ReadError", "ReadFailure"]

_INTEGERS: Final = frozenset(TYPES[name][0] for name in ("int2", "int4", "int8"))
_MOST_ROWS: Final = 500
"""Number of rows of a chunk: changes of other tables wait while they are published."""
_EVERY: Final = 1 << 62
"""A number of rows that no table has."""
_AHEAD: Final = 2
"""Number of questions for each thread that can be out, so that none waits for the loop."""
_FLUSH_S: Final = 0.02
"""Pause after which the server is made to write out the WAL that an answer waits for."""
_LOOK_S: Final = 1.0
"""Least interval between snapshots that are taken only to forget changes."""
_JOIN_S: Final = 5.0

ReadError: TypeAlias = TableChanged | TableLocked | TableUnreadable | ConditionError


class ReadFailure(NamedTuple):
    """A question that is not answered, because of its table."""

    source: ChunkSource
    request: MoveRequest
    error: ReadError


class _Chore(Enum):
    """Work of a thread beside reading."""

    FLUSH = "flush"
    LOOK = "look"


@dataclass(slots=True, eq=False)
class _Read:
    """A question, until its answer is placed.

    Attributes:
        is_queued: Whether no thread has begun with it.
        floor: Snapshot that sees nothing which that of the answer does not see; None if not known.
        answered_s: Time of the answer.
        is_flushed: Whether the server was made to write out the WAL until the answer's position.
    """

    source: ChunkSource
    request: MoveRequest
    is_queued: bool = True
    floor: Snapshot | None = None
    answer: MoveChunk | None = None
    answered_s: float = 0.0
    is_flushed: bool = False


class MoveReaders:
    """Answers what the loop asks, until `close`.

    Created when the stream is begun, before its first transaction is published.

    Args:
        open_reader: Opens a connection for a thread; its argument is called during waits.
        wake: Called by threads when there is something for the loop.
        retry_s: Pause of a thread before it retries.
    """

    def __init__(
        self,
        settings: CopyTable,
        *,
        open_reader: Callable[[OnWait], ChunkReader],
        wake: Callable[[], None],
        retry_s: float,
    ) -> None:
        self._settings = settings
        self._wake = wake
        self._out: list[_Read] = []  # in the order of their questions
        self._failures: deque[ReadFailure] = deque()
        self._failure: Exception | None = None
        self._newest: Snapshot | None = None
        self._wants_snapshot = False
        self._looked_s = 0.0
        self._not_before = 0.0
        self._row_bytes: dict[int, int] = {}
        self._turn = threading.Condition()
        self._closed = threading.Event()
        self._loop = ReaderLoop(
            open_reader,
            FirstSnapshot("moves wait for transactions that are still running", self._closed),
            self._closed,
            retry_s,
            self._note,
            self._fail,
        )
        self._threads: list[threading.Thread] = []

    def close(self) -> None:
        """Stop the threads, and wait until they have ended."""
        self._closed.set()
        with self._turn:
            self._turn.notify_all()
        for thread in self._threads:
            thread.join(_JOIN_S)

    @property
    def is_alive(self) -> bool:
        """Whether a thread is left that may call `wake`."""
        return any(thread.is_alive() for thread in self._threads)

    # Called by the loop

    @property
    def has_room(self) -> bool:
        """Whether another question would not only wait."""
        return len(self._out) < _AHEAD * self._settings.parallel

    @property
    def is_asked(self) -> bool:
        """Whether a question is not answered, or its answer waits to be placed."""
        return bool(self._out)

    def ask(self, source: ChunkSource, request: MoveRequest) -> None:
        """Ask for a chunk of slices, or for the rows of some keys.

        Args:
            source: Table, columns and key, without a condition.
            request: Slices or keys, and where the chunk begins.
        """
        with self._turn:
            self._out.append(_Read(source, request))
            self._turn.notify_all()
        self._start()

    def want_snapshot(self) -> None:
        """Let a thread take a snapshot for `floors`, at intervals, whatever else it reads."""
        if not self._wants_snapshot:
            with self._turn:
                self._wants_snapshot = True
                self._turn.notify_all()
            self._start()

    def pop_failures(self) -> list[ReadFailure]:
        """Return the questions that are not answered.

        Raises:
            Exception: the failure of a thread.
        """
        if self._failure is not None:
            raise self._failure
        found = []
        while self._failures:
            found.append(self._failures.popleft())
        return found

    def awaited(self) -> Lsn | None:
        """Return the position of the answer that can be placed first."""
        with self._turn:
            answers = [read.answer.insert_lsn for read in self._out if read.answer is not None]
        return min(answers, default=None)

    def due(self, until: Lsn) -> tuple[ChunkSource, MoveChunk] | None:
        """Return an answer whose position has been reached; the caller places it.

        Its snapshot is none of `floors` any more.
        """
        with self._turn:
            for read in self._out:
                if read.answer is not None and read.answer.insert_lsn <= until:
                    self._out.remove(read)
                    return read.source, read.answer
        return None

    def floors(self) -> list[Snapshot] | None:
        """Return snapshots; transactions that all of them see are seen by all later answers.

        None: not all of them are known.
        """
        with self._turn:
            found = [self._newest]
            for read in self._out:
                if read.answer is not None:
                    found.append(read.answer.snapshot)
                elif not read.is_queued:
                    found.append(read.floor)
        known = [snapshot for snapshot in found if snapshot is not None]
        return known if len(known) == len(found) else None

    def _start(self) -> None:
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._work, name=f"pgsluice move {n}", daemon=True)
                for n in range(self._settings.parallel)
            ]
            for thread in self._threads:
                thread.start()

    # The threads

    def _work(self) -> None:
        task: _Read | _Chore | None = None

        def step(connect: Connect) -> bool:
            nonlocal task
            task = task or self._next()
            if task is None:
                return False
            try:
                self._do(connect(), task)
            except (ConditionError, TableChanged, TableLocked, TableUnreadable) as error:
                assert isinstance(task, _Read)
                self._give_up(task, error)
            task = None
            return True

        self._loop.run(step)

    def _next(self) -> _Read | _Chore | None:
        """Wait for something to do; None when there will be nothing any more."""
        with self._turn:
            while not self._closed.is_set():
                for read in self._out:
                    if read.is_queued:
                        read.is_queued, read.floor = False, self._newest
                        return read
                now = time.monotonic()
                pauses = []
                if self._wants_snapshot:
                    if (pause := self._looked_s + _LOOK_S - now) <= 0:
                        self._wants_snapshot, self._looked_s = False, now
                        return _Chore.LOOK
                    pauses.append(pause)
                if waiting := [r for r in self._out if r.answer is not None and not r.is_flushed]:
                    if (pause := waiting[0].answered_s + _FLUSH_S - now) <= 0:
                        for read in waiting:
                            read.is_flushed = True
                        return _Chore.FLUSH
                    pauses.append(pause)
                self._turn.wait(min(pauses, default=None))
        return None

    def _do(self, reader: ChunkReader, task: _Read | _Chore) -> None:
        match task:
            case _Read():
                self._answer(reader, task)
            case _Chore.LOOK:
                self._note(reader.snapshot())
            case _Chore.FLUSH:
                with contextlib.suppress(GatewayError):  # the server writes it out later, too
                    reader.flush()

    def _answer(self, reader: ChunkReader, read: _Read) -> None:
        self._closed.wait(max(0.0, self._not_before - time.monotonic()))
        source, request, limit = read.source, read.request, _EVERY
        oid = source.table.oid
        if request.columns:
            integers = {c.name for c in source.table.columns if c.base_type_oid in _INTEGERS}
            condition = slice_condition(request.columns, request.values, integers)
            source = replace(source, slices=condition)
        if not request.whole:
            limit = self._limit(oid)
        asked = ChunkRequest(bool(request.columns), request.after, request.keys)
        chunk = reader.read(source, asked, limit)
        answer = MoveChunk(request, list(chunk.rows), chunk.snapshot, chunk.insert_lsn, chunk.end)
        if reader.rows:
            self._row_bytes[oid] = max(1, reader.bytes // reader.rows)
        with self._turn:
            self._newest = chunk.snapshot
            read.answer, read.answered_s = answer, time.monotonic()
            if self._settings.rows_per_second:
                self._not_before = max(self._not_before, read.answered_s)
                self._not_before += reader.rows / self._settings.rows_per_second
            self._turn.notify_all()
        self._wake()

    def _limit(self, oid: int) -> int:
        most = min(_MOST_ROWS, self._settings.chunk_rows)
        if self._settings.rows_per_second:
            most = min(most, self._settings.rows_per_second)
        if row_bytes := self._row_bytes.get(oid):
            most = min(most, self._settings.chunk_bytes // row_bytes)
        return max(1, most)

    def _give_up(self, read: _Read, error: ReadError) -> None:
        with self._turn:
            self._out.remove(read)
        self._failures.append(ReadFailure(read.source, read.request, error))
        self._wake()

    def _note(self, snapshot: Snapshot) -> None:
        self._newest = snapshot
        self._wake()

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self._wake()
