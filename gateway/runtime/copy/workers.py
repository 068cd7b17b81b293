"""Threads that read the chunks of tables; one lock guards what they share with the loop.

A worker begins a table of its own while there is one that no other has begun; then it helps with a
large one, for which the loop waits, and not the readers for the loop. A table that somebody has
locked or rewrites, or whose rows cannot be placed yet, keeps no worker: others are read first. A
worker that loses its connection opens another, and the range is read again; the stream is not
affected.

Tables can be added while others are read. Each of these has a gate of its own, because changes of
it were published before that (`gateway.copy`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from gateway.config import CopyTable
from gateway.copy import Chunk, Claim, Snapshot
from gateway.core.background import OnWait
from gateway.core.errors import GatewayError, TransientError
from gateway.core.lsn import Lsn
from gateway.observe import event
from gateway.runtime.copy.first_snapshot import GATE_S, FirstSnapshot
from gateway.runtime.copy.jobs import CopyJob
from gateway.runtime.copy.move_readers import MoveReaders
from gateway.runtime.copy.reader_loop import Connect, ReaderLoop
from gateway.runtime.wait_log import LockNotices
from gateway.source.copy.chunk_reader import ChunkReader
from gateway.source.copy.errors import (
    ConditionError,
    TableChanged,
    TableGone,
    TableLocked,
    TableUnreadable,
)

__all__ = ["CopyWorkers"]

_Entry = TypeVar("_Entry")

_LOG: Final = logging.getLogger(__name__)
_FIRST_CHUNK_ROWS: Final = 500
_FLUSH_S: Final = 0.1
_JOIN_S: Final = 5.0
_AHEAD: Final = 2
"""Number of chunks of a table that are read ahead of the one that is placed next."""
_SNAPSHOTS: Final = 16
_LOOKS: Final = 10
"""Number of copies that `CopyWorkers.forget` looks at for each placed chunk, on average."""
_WAITS: Final = "the copy waits for transactions that are still running"
_LARGE: Final = 4
"""Number of remaining chunks from which several workers read one table."""


class CopyWorkers:
    """Reads the chunks of `jobs`, from `start` to `close`.

    Args:
        open_reader: Opens a connection for a worker; its argument is called during waits.
        retry_s: Pause of a worker before it retries.

    Attributes:
        altered: Whether a table has changed since the jobs were made.
        moves: Readers of rows that move, which wake the loop as well.
    """

    def __init__(
        self,
        jobs: Sequence[CopyJob],
        settings: CopyTable,
        *,
        open_reader: Callable[[OnWait], ChunkReader],
        retry_s: float,
    ) -> None:
        self._jobs = list(jobs)
        self._copying = list(jobs)
        self._placed = 0
        self._settings = settings
        self._queue = deque(jobs)
        self._note_lock = LockNotices()
        self._due: deque[CopyJob] = deque()
        # The latest ones, for the loop may be held up: they see all that earlier ones see.
        self._snapshots: deque[Snapshot] = deque(maxlen=_SNAPSHOTS)
        self._given_up: deque[tuple[CopyJob, ConditionError | TableUnreadable]] = deque()
        self._not_before = 0.0
        self._failure: Exception | None = None
        self._is_awake = False  # asked for each transaction, which a read would cost too much
        self.altered = False
        # Notified when a chunk is placed, a range's end is known, or a job is over.
        self._turn = threading.Condition()
        self._closed = threading.Event()
        self._loop = ReaderLoop(
            open_reader,
            FirstSnapshot(_WAITS, self._closed),
            self._closed,
            retry_s,
            self._note_snapshot,
            self._fail,
        )
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        self.moves = MoveReaders(settings, open_reader=open_reader, wake=self.wake, retry_s=retry_s)
        self._threads: list[threading.Thread] = []
        self._working = 0  # threads that look for jobs

    def start(self) -> None:
        """Start the threads."""
        with self._turn:
            self._start_threads(self._jobs)

    def add(self, jobs: Sequence[CopyJob]) -> None:
        """Read further tables, by snapshots that see everything that has been published so far."""
        gate = FirstSnapshot(_WAITS, self._closed)
        with self._turn:
            for job in jobs:
                job.gate = gate
            self._jobs = [*(job for job in self._jobs if not job.over), *jobs]
            self._copying += jobs
            self._queue = deque(job for job in (*self._queue, *jobs) if not job.over)
            self._start_threads(jobs)
            self._turn.notify_all()

    def _start_threads(self, jobs: Sequence[CopyJob]) -> None:
        most = self._settings.parallel
        wanted = most if any(job.is_ranged for job in jobs) else min(most, len(jobs))
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for number in range(self._working, wanted):
            thread = threading.Thread(
                target=self._work, name=f"pgsluice copy {number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        self._working = max(self._working, wanted)

    def close(self) -> None:
        """Stop the threads, and wait until they have ended."""
        self._closed.set()
        self.go_on()
        for thread in self._threads:
            thread.join(_JOIN_S)
        self.moves.close()
        if not (self.moves.is_alive or any(thread.is_alive() for thread in self._threads)):
            os.close(self._write_fd)
        os.close(self._read_fd)

    # Called by the loop

    def fileno(self) -> int:
        """Return a descriptor that is readable while there are notes to pop."""
        return self._read_fd

    def awaited(self) -> Lsn | None:
        """Return the position of the chunk that can be placed first."""
        with self._turn:
            chunk = min((chunk.insert_lsn for _, chunk in self._chunks()), default=None)
        moved = self.moves.awaited()
        return min((lsn for lsn in (chunk, moved) if lsn is not None), default=None)

    def due(
        self, until: Lsn, may_place: Callable[[CopyJob], bool] = lambda job: True
    ) -> tuple[CopyJob, Chunk] | None:
        """Return a chunk whose position has been reached; the caller places all or part of it."""
        with self._turn:
            return next(
                (e for e in self._chunks() if e[1].insert_lsn <= until and may_place(e[0])), None
            )

    def keep_rest(self, job: CopyJob, rest: Chunk) -> None:
        """Replace a chunk that is due by its rest."""
        with self._turn:
            job.front.keep_rest(rest)

    def placed(self, job: CopyJob, *, whole: bool) -> None:
        """Note that a chunk was placed; `whole` if no rest of it is left."""
        request = job.copy.request()
        with self._turn:
            if whole and not job.over:
                self._due.remove(job)
            is_due = job.front.go_on(request, whole=whole)
            if whole and is_due:
                self._due.append(job)
            self._turn.notify_all()

    def end(self, job: CopyJob) -> None:
        """End a job: nothing of it is read any more."""
        with self._turn:
            job.over = True
            job.front.end()
            job.unread.clear()
            if job in self._due:
                self._due.remove(job)
            self._turn.notify_all()

    def pop_notes(
        self,
    ) -> tuple[list[Snapshot], list[tuple[CopyJob, ConditionError | TableUnreadable]]]:
        """Return snapshots that all later ones include, and the jobs that cannot be copied.

        Raises:
            Exception: the failure of a worker.
        """
        if not self._is_awake:
            return [], []
        self._is_awake = False  # before the read: it is set after the write
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read_fd, 4096):
                pass
        if self._failure is not None:
            raise self._failure
        return _drained(self._snapshots), _drained(self._given_up)

    def go_on(self) -> None:
        """Let threads look again at what is to be read."""
        with self._turn:
            self._turn.notify_all()

    def forget(self, snapshot: Snapshot) -> None:
        """Let copies forget the changes that all chunks still to be placed see.

        Args:
            snapshot: A snapshot whose transactions everything read from now on sees.
        """
        # Rarely where many tables are being copied: it looks at each of them.
        self._placed += 1
        if self._placed * _LOOKS < len(self._copying):
            return
        self._placed = 0
        self._copying = [job for job in self._copying if not job.over]
        changed = [job for job in self._copying if job.copy.has_unseen]
        with self._turn:
            floors = [(job, job.front.floor(snapshot)) for job in changed]
        for job, floor in floors:
            if floor is not None:
                job.copy.forget(floor)

    def _chunks(self) -> list[tuple[CopyJob, Chunk]]:
        return [(job, chunk) for job in self._due if (chunk := job.front.due) is not None]

    # The threads

    def _work(self) -> None:
        job: CopyJob | None = None
        held: list[Claim] = []  # at most one: it is read again

        def step(connect: Connect) -> bool:
            nonlocal job
            reader = connect()
            job = job or self._next_job()
            if job is None:
                return False
            try:
                if job.gate is None or job.gate.is_passed(reader, self._note_snapshot):
                    self._begin(reader, job)
                    self._copy(reader, job, held)
                else:
                    self._closed.wait(GATE_S)
                    self._put_back(job, held)
            except (ConditionError, TableUnreadable) as error:
                if isinstance(error, ConditionError) and job.source.narrow:
                    # A filter that raises: the rows are filtered by the gateway instead.
                    job.source = replace(job.source, narrow=())
                    event(_LOG, logging.WARNING, "reading all rows", because=error.message)
                    return True
                if self._abandon(job, held):
                    self._given_up.append((job, error))
                    self.wake()
            except TableLocked as error:
                self._note_lock(job.table, error)
                self._put_back(job, held)
            except TableGone as error:
                if self._abandon(job, held):
                    event(_LOG, logging.ERROR, "table not copied", because=error.message)
                    self.end(job)
                    self.wake()
            except TableChanged as error:
                event(_LOG, logging.WARNING, "starting again", because=error.message)
                self.altered = True
                self.wake()
                with self._turn:
                    self._working -= 1
                return False
            except TransientError:
                self._put_back(job, held)  # its owner may rewrite it during each read
                job = None
                raise
            job = None
            return True

        self._loop.run(step)

    def _fail(self, error: Exception) -> None:
        self._failure = error
        self.wake()

    def _next_job(self) -> CopyJob | None:
        """Wait for a job to begin or to help with; None when none is left."""
        with self._turn:
            while not self._closed.is_set():
                waiting = (job for job in self._queue if not (job.awaits_sets or job.over))
                if (found := next(waiting, None)) is not None:
                    job = found
                    self._queue.remove(job)
                elif shared := [job for job in self._jobs if self._is_shared(job)]:
                    job = min(shared, key=lambda job: job.workers)
                elif self._has_all_begun():
                    self._working -= 1
                    return None
                else:
                    self._turn.wait()
                    continue
                job.workers += 1
                return job
        return None

    def _has_all_begun(self) -> bool:
        """Whether all jobs are begun or over, and none was put back that waits for its sets."""
        if any(not job.over for job in self._queue):
            return False
        return all(job.begun or job.over for job in self._jobs)

    def _put_back(self, job: CopyJob, held: list[Claim]) -> None:
        """Leave a job to whoever has read the others first."""
        with self._turn:
            job.unread += held
            held.clear()
            job.workers -= 1
            if job not in self._queue and not job.over:
                self._queue.append(job)
            self._turn.notify_all()

    def _is_shared(self, job: CopyJob) -> bool:
        if job.awaits_sets or not (job.begun and job.is_ranged and job.front.has_more):
            return False
        left = None if job.estimate is None else job.estimate - job.rows
        return left is None or left > _LARGE * self._settings.chunk_rows

    def _begin(self, reader: ChunkReader, job: CopyJob) -> None:
        if job.begun:
            return
        estimate = None if job.part else reader.estimate_rows(job.table)
        if job.source.narrow and not reader.narrows(job.source):
            job.source = replace(job.source, narrow=())
        if job.source.narrow:
            message = "only rows that pass a filter are read"
            event(_LOG, logging.INFO, message, relation=job.table)
        with self._turn:
            job.estimate, job.began_at, job.begun = estimate, time.monotonic(), True
            self._turn.notify_all()

    def _note_snapshot(self, snapshot: Snapshot) -> None:
        self._snapshots.append(snapshot)
        self.wake()

    def _copy(self, reader: ChunkReader, job: CopyJob, held: list[Claim]) -> None:
        """Read ranges until there are none left for this worker."""
        rows = _FIRST_CHUNK_ROWS
        while True:
            if not held and (claim := self._await_turn(reader, job)) is not None:
                held.append(claim)
            if not held:
                return
            claim = held[0]
            try:
                chunk = self._read(reader, job, claim, self._bounded(rows))
            except BaseException:
                if not claim.settled:
                    held.clear()
                    with self._turn:
                        job.front.release(claim)
                        self._turn.notify_all()
                raise
            held.clear()
            rows = self._settings.chunk_bytes // max(1, reader.bytes // max(1, reader.rows))
            with self._turn:
                job.rows += chunk.size + chunk.skipped
                if job.front.read(claim, chunk):
                    self._due.append(job)
                self._not_before = max(self._not_before, time.monotonic())
                if self._settings.rows_per_second:
                    self._not_before += reader.rows / self._settings.rows_per_second
                self._turn.notify_all()
            self.wake()
            self._closed.wait(max(0.0, self._not_before - time.monotonic()))

    def _read(self, reader: ChunkReader, job: CopyJob, claim: Claim, rows: int) -> Chunk:
        """Read a range; if others wait for the next one, first find where that begins."""
        with self._turn:
            others = job.workers > 1 and not job.front.waiting
        if others and claim.request.ranged and not claim.settled:
            claim.request = reader.border(job.source, claim.request, rows)
            if claim.request.last is not None:
                with self._turn:
                    job.front.settle(claim, claim.request.last, end=False)
                    self._turn.notify_all()
        return reader.read(job.source, claim.request, rows)

    def _await_turn(self, reader: ChunkReader, job: CopyJob) -> Claim | None:
        """Wait until a range may be read; None when nothing is left for this worker.

        The stream needs time to reach the place of a chunk, on a lagging gateway as much as its
        lag; meanwhile the next ones are read, no more than memory can hold.
        """
        flushed = False
        while not job.over and not self._closed.is_set():
            with self._turn:
                if (claim := self._claim(job)) is not None:
                    return claim
                if job.workers > 1 and not job.front.has_more:
                    job.workers -= 1  # the last one stays: keys may have to be read again
                    return None
                if self._turn.wait(None if flushed else _FLUSH_S) or job.over:
                    continue
            flushed = True
            with contextlib.suppress(GatewayError):  # the server writes it out later, too
                reader.flush()
        return None

    def _claim(self, job: CopyJob) -> Claim | None:
        """Claim a range: one at a time while the loop is busy, otherwise several in parallel."""
        if job.unread:
            return job.unread.pop(0)
        front = job.front
        is_read = front.outstanding - front.waiting
        if front.outstanding > _AHEAD or (is_read and front.waiting):
            return None
        return front.claim()

    def _abandon(self, job: CopyJob, held: list[Claim]) -> bool:
        """End a job from a worker's range on; return False if another worker has ended it.

        Waits until the chunks that were read before are placed.
        """
        with self._turn:
            is_ended = job.front.is_closed
            job.front.abandon()
            for claim in (*job.unread, *held):
                job.front.abandon(claim)
            job.unread.clear()
            held.clear()
            self._turn.notify_all()
            if is_ended:
                return False
            while job.front.outstanding and not self._closed.is_set():
                self._turn.wait()
        return not (job.over or self._closed.is_set())

    def _bounded(self, rows: int) -> int:
        most: int = self._settings.chunk_rows
        if self._settings.rows_per_second:
            most = min(most, self._settings.rows_per_second)
        return max(1, min(rows, most))

    def wake(self) -> None:
        """Let `fileno` be readable; of any thread."""
        # Full: it is awake. Closed: this worker took too long to end, and nobody is left to wake.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._write_fd, b"\0")
        self._is_awake = True


def _drained(entries: deque[_Entry]) -> list[_Entry]:
    """Pop all entries from a deque to which other threads append."""
    drained = []
    while entries:
        drained.append(entries.popleft())
    return drained
