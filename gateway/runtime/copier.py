"""Copies tables while the stream goes on: threads read chunks, the loop places them.

    worker threads                          the loop
    read chunks ──────── waiting ─────────► place() between two transactions, behind the chunk's
    wait until one is placed ◄── placed ─── position: its records, and how far the copy is now

What a chunk is and why this is exact: `gateway.copy`. Threads share nothing with the loop but what
`_lock` guards; only the loop looks into a `ChunkedCopy`. A worker that loses its connection makes
another and reads the chunk again, the stream does not notice.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from gateway.background import OnWait
from gateway.config import CopyTable
from gateway.copy import Chunk, ChunkRequest, Progress, Snapshot
from gateway.definitions.changes import fingerprint_of
from gateway.definitions.model import Plan, TableCopy
from gateway.envelope.envelope import Snapshot as SnapshotKind
from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_copy
from gateway.errors import GatewayError, TransientError
from gateway.failpoints import fail_point
from gateway.lsn import Lsn, format_lsn
from gateway.observe import Counters, event, report_quarantined
from gateway.records import CopyState, Record
from gateway.routing import RoutingSettings
from gateway.routing.ports import Evaluator
from gateway.routing.routes import RelationRoutes
from gateway.routing.state import TransactionState
from gateway.runtime.copy_jobs import CopyJob, CopyReport, CopyStanding, make_jobs
from gateway.runtime.copy_states import CopyStates
from gateway.runtime.ports import Placement
from gateway.runtime.waits import WaitNotice
from gateway.source.chunks import ChunkReader, ConditionError, TableAltered, TableGone

__all__ = ["TableCopier"]

_LOG: Final = logging.getLogger(__name__)
_FIRST_CHUNK_ROWS: Final = 500
_GATE_S: Final = 0.1
_FLUSH_S: Final = 0.1
_REPORT_S: Final = 5.0
_JOIN_S: Final = 5.0
_AHEAD: Final = 2
"""Chunks of a table that are read while one before them waits for its place."""
_SNAPSHOTS: Final = 16
_OUTDATED: Final = "a table was altered; it is copied anew when it can be published"


class TableCopier:
    """A `gateway.runtime.ports.Copier`. Start it with `with`; its threads have ended when that has.

    Made when everything up to the watermark is in Kafka and the stream goes on from there, and
    before the first transaction is routed.

    Args:
        states: Of all tables of `plan`; those that are not ready are copied.
        open_reader: Makes a connection for a worker; gets what is called while it waits.
        evaluator: Evaluates the filters that are not evaluated here; only for copies.
        report: Called by the loop, now and then.
        retry_s: How long a worker waits before it tries again.
    """

    def __init__(
        self,
        plan: Plan,
        states: tuple[CopyState, ...],
        routes: RelationRoutes,
        routing: RoutingSettings,
        settings: CopyTable,
        counters: Counters,
        *,
        open_reader: Callable[[OnWait], ChunkReader],
        evaluator: Evaluator | None,
        report: CopyReport,
        retry_s: float = 1.0,
    ) -> None:
        self._plan = plan
        self._routes = routes
        self._routing = routing
        self._settings = settings
        self._counters = counters
        self._open_reader = open_reader
        self._evaluator = evaluator
        self._report = report
        self._retry_s = retry_s
        self._states = CopyStates(plan, states, routes.addresses)
        self._jobs = list(make_jobs(plan, self._states, routes))
        self._queue = deque(self._jobs)
        self._waiting: deque[tuple[CopyJob, Chunk]] = deque()
        # The latest ones, for the loop may be held up: they see all that earlier ones see.
        self._snapshots: deque[Snapshot] = deque(maxlen=_SNAPSHOTS)
        self._given_up: deque[tuple[CopyJob, ConditionError]] = deque()
        self._placing = False
        self._sure_from: int | None = None
        self._not_before = 0.0
        self._failure: Exception | None = None
        self._altered = False
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        workers = min(settings.parallel, len(self._jobs))
        self._workers = [
            threading.Thread(target=self._work, name=f"pgsluice copy {n}", daemon=True)
            for n in range(workers)
        ]

    def __enter__(self) -> TableCopier:
        if not self._jobs and not self._routes.addresses.refused:
            event(_LOG, logging.INFO, "all tables are copied")
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        for job in self._jobs:
            job.placed.set()
            self._routes.unwatch(job.route, job.copy)
        for worker in self._workers:
            worker.join(_JOIN_S)
        if not any(worker.is_alive() for worker in self._workers):
            os.close(self._write_fd)
        os.close(self._read_fd)

    # What the loop asks

    def fileno(self) -> int:
        """See `gateway.runtime.ports.Copier`."""
        return self._read_fd

    @property
    def unfinished(self) -> bool:
        """See `gateway.runtime.ports.Copier`."""
        return any(not job.over for job in self._jobs)

    @property
    def altered(self) -> bool:
        """See `gateway.runtime.ports.Copier`."""
        return self._altered or self._routes.altered

    def awaited(self) -> Lsn | None:
        """See `gateway.runtime.ports.Copier`."""
        with self._lock:
            return min((chunk.insert_lsn for _, chunk in self._waiting), default=None)

    def states(self) -> tuple[CopyState, ...]:
        """See `gateway.runtime.ports.Copier`."""
        if not self._placing:
            for job in self._jobs:
                if not job.over and job.copy.started:
                    self._set_progress(job)
        for copy in self._plan.copies if self._routes.outdated else ():
            because = self._routes.outdated.get((copy.subscription, copy.target_oid))
            if because is not None:
                self._altered |= self._states.start_over(copy, _OUTDATED, because=because)
        if (told := self._routes.take_heard()) is not None:
            self._states.take(told)
        return self._states.all()

    def place(self, last: Lsn, upto: Lsn, room: int) -> Placement | None:
        """See `gateway.runtime.ports.Copier`."""
        self._take_notes()  # also when all is copied: a note that is left would keep the loop awake
        if not self.unfinished:
            return None
        with self._lock:
            due = next((e for e in self._waiting if e[1].insert_lsn <= upto), None)
            if due is None:
                return None
            at = self._waiting.index(due)
            job, chunk = due
            rows = int(room / job.records_per_row)
            parts = chunk.split(max(1, rows), job.source.key_positions)
            if parts is None:
                del self._waiting[at]
            else:
                chunk, self._waiting[at] = parts[0], (job, parts[1])
        lsn = max(last, chunk.insert_lsn)
        return Placement(lsn, self._publish(job, chunk, lsn, whole=parts is None))

    def _take_notes(self) -> None:
        """Raise what a worker could not deal with; forget what all later snapshots see."""
        try:
            os.read(self._read_fd, 4096)
        except BlockingIOError:
            return
        if self._failure is not None:
            raise self._failure
        while self._given_up:
            self._give_up(*self._given_up.popleft())
        while self._snapshots:
            self._forget(self._snapshots.popleft())

    def _forget(self, snapshot: Snapshot) -> None:
        with self._lock:
            idle = [job for job in self._jobs if not job.outstanding]
        for job in idle:
            job.copy.forget(snapshot)

    def _publish(
        self, job: CopyJob, chunk: Chunk, lsn: Lsn, *, whole: bool
    ) -> Iterator[list[Record]]:
        """Yield the records of a chunk; not `whole`: more of what was read with it comes."""
        self._placing = True
        if not job.copy.started and not job.part:
            yield self._mark(job, lsn, state="copying", asked=None)
            yield job.route.begin(lsn, self._transaction(lsn, "first"))
        transaction = self._transaction(lsn, "true")
        rows = job.copy.place(chunk)
        made = 0
        for records in job.route.publish(rows, lsn, transaction, self._evaluator):
            made += len(records)
            self._counters.copied_rows += len(records)
            yield records
        job.learn(chunk.size, made)
        report_quarantined(_LOG, self._counters, transaction.quarantined)
        self._placing = False
        self._forget(chunk.snapshot)
        if job.copy.progress.ready:
            yield self._finish(job, lsn)
        else:
            fail_point("copy.between_chunks")
            self._set_progress(job)
            job.request = job.copy.request()
        self._tell(job)
        if not whole:
            return
        with self._lock:
            job.outstanding -= 1
        job.placed.set()

    def _finish(self, job: CopyJob, lsn: Lsn) -> list[Record]:
        fail_point("copy.before_ready")
        self._end(job)
        records: list[Record] = []
        for copy in job.copies:
            if job.part:  # it was ready all the time
                self._states.set(copy, progress=job.copy.progress, asked=None)
            else:
                definition = fingerprint_of(self._plan, copy)
                records += self._mark(job, lsn, [copy], state="ready", definition=definition)
                if not self._states.of(copy).is_settled:
                    # What partitions have brought that came meanwhile: the next attempt copies it.
                    self._states.set(copy, progress=Progress())
                    self._altered = True
            event(
                _LOG,
                logging.INFO,
                "part of a table copied" if job.part else "table copied",
                subscription=copy.subscription,
                relation=job.table,
                rows=job.copy.progress.rows,
                lsn=format_lsn(lsn),
            )
        if not self.unfinished:
            event(_LOG, logging.INFO, "all tables are copied")
        return records

    def _end(self, job: CopyJob) -> None:
        job.over = True
        self._routes.unwatch(job.route, job.copy)

    def _give_up(self, job: CopyJob, error: ConditionError) -> None:
        """Forget a part whose condition fails; the table is as complete as it was."""
        self._end(job)
        for copy in job.copies:
            self._states.set(copy, asked=None)
        event(_LOG, logging.ERROR, "a part of a table is not copied", because=error.message)

    def _mark(
        self,
        job: CopyJob,
        lsn: Lsn,
        copies: Sequence[TableCopy] | None = None,
        **changes: object,
    ) -> list[Record]:
        """Set the state of a table, and say so."""
        headers = HeaderMaker(lsn, None, None, None).make(lsn, 0, b"COPY")
        records = []
        for copy in job.copies if copies is None else copies:
            state = self._states.set(
                copy, consistent_point=lsn, progress=job.copy.progress, **changes
            )
            records.append(
                self._routes.addresses.marker(copy.subscription, encode_copy(state), headers)
            )
        return records

    def _set_progress(self, job: CopyJob) -> None:
        for copy in job.copies:
            # One that has to start over has lost its progress for good.
            outdated = (copy.subscription, copy.target_oid) in self._routes.outdated
            if not outdated and not self._states.is_aside(copy):
                self._states.set(copy, progress=job.copy.progress)

    def _tell(self, job: CopyJob) -> None:
        now = time.monotonic()
        if job.over or now - job.reported_at >= _REPORT_S:
            job.reported_at = now
            self._report(
                CopyStanding(
                    tuple(copy.subscription for copy in job.copies),
                    job.table,
                    job.copy.progress.rows,
                    job.estimate,
                    job.rows / max(0.001, now - job.began_at),
                    job.over,
                )
            )

    def _transaction(self, lsn: Lsn, snapshot: SnapshotKind) -> TransactionState:
        now_ms = time.time_ns() // 1_000_000
        context = TransactionContext(
            gateway=self._routing.gateway,
            db=self._routing.database,
            version=self._routing.version,
            xid=None,
            commit_lsn=lsn,
            commit_time=now_ms * 1000 - 946_684_800_000_000,
            origin=None,
            snapshot=snapshot,
            ts_ms=now_ms,
        )
        return TransactionState(context, HeaderMaker(lsn, None, None, None))

    # The workers

    def _work(self) -> None:
        reader: ChunkReader | None = None
        job: CopyJob | None = None
        try:
            while not self._closed.is_set():
                try:
                    reader = reader or self._open_reader(self._go_on)
                    self._wait_until_sure(reader)
                    job = job or self._next_job()
                    if job is None:
                        return
                    self._copy(reader, job)
                    job = None
                except ConditionError as error:
                    assert job is not None
                    if job.source.narrow:
                        # A filter that raises; what evaluates it otherwise deals with the row.
                        job.source = replace(job.source, narrow=())
                        event(_LOG, logging.WARNING, "reading all rows", because=error.message)
                        continue
                    self._settle(job)
                    self._given_up.append((job, error))
                    job = None
                    self._wake()
                except TableGone as error:
                    event(_LOG, logging.ERROR, "the table is not copied", because=error.message)
                    assert job is not None
                    self._settle(job)
                    job.over, job = True, None
                    self._wake()
                except TableAltered as error:
                    event(_LOG, logging.WARNING, "starting anew", because=error.message)
                    self._altered = True
                    self._wake()
                    return
                except TransientError as error:
                    if self._closed.is_set():
                        return
                    event(_LOG, logging.WARNING, "reading a chunk again", error=error.message)
                    if reader is not None:
                        reader.close()
                    reader = None
                    self._closed.wait(self._retry_s)
        except Exception as error:  # handed to the loop, which raises it
            self._failure = error
            self._wake()
        finally:
            if reader is not None:
                reader.close()

    def _go_on(self) -> None:
        if self._closed.is_set():
            raise TransientError("the copy is interrupted")

    def _next_job(self) -> CopyJob | None:
        with self._lock:
            return self._queue.popleft() if self._queue else None

    def _wait_until_sure(self, reader: ChunkReader) -> None:
        """Wait for the transactions that ran when this began; see `gateway.copy`."""
        began, waiting = time.monotonic(), False
        notice = WaitNotice(
            "the copy waits for transactions that are still running", reader.awaited
        )
        while not self._closed.is_set():
            snapshot = reader.snapshot()
            with self._lock:
                self._sure_from = self._sure_from or snapshot.xmax
            self._snapshots.append(snapshot)
            self._wake()
            if snapshot.xmin >= self._sure_from:
                if waiting:
                    reader.wait_for(None)
                return
            if not waiting:
                reader.wait_for(self._sure_from)
                waiting = True
            notice(time.monotonic() - began)
            self._closed.wait(_GATE_S)

    def _copy(self, reader: ChunkReader, job: CopyJob) -> None:
        if not job.began_at:
            job.began_at = time.monotonic()
            job.estimate = None if job.part else reader.estimate_rows(job.table)
            if job.source.narrow and not reader.narrows(job.source):
                job.source = replace(job.source, narrow=())
            if job.source.narrow:
                said = "only rows that pass a filter are read"
                event(_LOG, logging.INFO, said, relation=job.table)
        rows = _FIRST_CHUNK_ROWS
        while (request := self._await_turn(reader, job)) is not None:
            with self._lock:
                job.outstanding += 1
            try:
                chunk = reader.read(job.source, request, self._bounded(rows))
            except BaseException:
                with self._lock:
                    job.outstanding -= 1
                raise
            job.rows += chunk.size + chunk.skipped
            job.newest = chunk
            rows = self._settings.chunk_bytes // max(1, reader.bytes // max(1, reader.rows))
            with self._lock:
                self._waiting.append((job, chunk))
                self._not_before = max(self._not_before, time.monotonic())
                if self._settings.rows_per_second:
                    self._not_before += reader.rows / self._settings.rows_per_second
            self._wake()
            self._closed.wait(max(0.0, self._not_before - time.monotonic()))
        job.newest = None  # with its rows

    def _await_turn(self, reader: ChunkReader, job: CopyJob) -> ChunkRequest | None:
        """Wait until a chunk may be read; None: the job is over.

        The stream needs time to get to a chunk's place, on a gateway that lags as much as it lags;
        meanwhile the next ones are read, no more than can be kept in memory.
        """
        flushed = False
        while not job.over and not self._closed.is_set():
            job.placed.clear()
            with self._lock:
                outstanding = job.outstanding
            if not outstanding:
                return job.request
            if outstanding <= _AHEAD and job.newest is not None:
                following = job.newest.following(job.request.again)
                if following is not None:
                    return following
            if not job.placed.wait(None if flushed else _FLUSH_S):
                flushed = True
                with contextlib.suppress(GatewayError):  # the server writes it out later, too
                    reader.flush()
        return None

    def _settle(self, job: CopyJob) -> None:
        """Wait until what was read of it is placed."""
        while job.outstanding and not self._closed.is_set():
            job.placed.clear()
            if job.outstanding:
                job.placed.wait(_FLUSH_S)

    def _bounded(self, rows: int) -> int:
        most: int = self._settings.chunk_rows
        if self._settings.rows_per_second:
            most = min(most, self._settings.rows_per_second)
        return max(1, min(rows, most))

    def _wake(self) -> None:
        # Full: it is awake. Closed: this worker took too long to end, and nobody is left to wake.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._write_fd, b"\0")
