"""Copy of tables while the stream goes on: threads read chunks, the loop places them.

    worker threads                          the loop
    read chunks ────────── due ───────────► place() between two transactions, after the chunk's
    wait until one is placed ◄── placed ─── position: its records, and how far the copy is now

Definition of chunks, and proof: `gateway.copy`. The threads: `gateway.runtime.copy.workers`.
Only the loop looks into a `ChunkedCopy`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final, Self

from gateway.config import CopyTable
from gateway.copy import Chunk, Progress
from gateway.core.background import OnWait
from gateway.core.errors import GatewayError
from gateway.core.failpoints import fail_point
from gateway.core.lsn import Lsn, format_lsn
from gateway.core.records import Record
from gateway.core.watermark import EPOCH_US, CopyState
from gateway.definitions.changes import fingerprint_of
from gateway.definitions.model import Fault, Plan, TableCopy, TableId
from gateway.envelope.envelope import Snapshot as SnapshotKind
from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_copy
from gateway.observe import Counters, event, report_quarantined
from gateway.routing import RoutingSettings
from gateway.routing.build.followed_tables import FollowedTables, InnerTable
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.ports import Evaluator
from gateway.routing.row.transaction_state import TransactionState
from gateway.runtime.copy.again import CopiesAgain
from gateway.runtime.copy.jobs import CopyJob, CopyReport, CopyStanding, make_jobs
from gateway.runtime.copy.moves import Moves
from gateway.runtime.copy.sets import Sets
from gateway.runtime.copy.states import CopyStates
from gateway.runtime.copy.workers import CopyWorkers
from gateway.runtime.ports import Placement
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.source.copy.errors import ConditionError, TableUnreadable
from gateway.subselects.moves.reads import MoveChunk

__all__ = ["TableCopier"]

_LOG: Final = logging.getLogger(__name__)
_REPORT_S: Final = 5.0
_ANY_ROW: Final = (
    "any of its rows may have entered or left: a set that its filter reads was emptied or built "
    "again, or too many values have changed"
)
_COPIED_AGAIN: Final = "a table is copied again"
_ALTERED: Final = "a table was altered; it is copied again when it can be published"


class TableCopier:
    """A `gateway.runtime.ports.Copier`, whose threads run within its `with` block.

    Created when everything until the watermark is in Kafka and the stream goes on from there, and
    before the first transaction is routed.

    Args:
        states: States of all tables of `plan`; those that are not ready are copied.
        open_reader: Opens a connection for a worker; its argument is called during waits.
        evaluator: Evaluator of the filters that are left to the server; only for copies.
        report: Called by the loop, at intervals.
        followed: Tables whose filters read other tables, and what they need.
        retry_s: Pause of a worker before it retries.
        again_s: First pause before a table is copied again, or one of sub-selects is read again.

    Attributes:
        faults: Faults of the tables that cannot be read.
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
        followed: FollowedTables | None = None,
        retry_s: float = 1.0,
        again_s: float = 1.0,
    ) -> None:
        self._plan = plan
        self._routes = routes
        self._routing = routing
        self._counters = counters
        self._evaluator = evaluator
        self._report = report
        self._states = CopyStates(plan, states, routes.addresses)
        self._jobs = list(make_jobs(plan, self._states, routes, plan.copies))
        self._open = self._jobs[::-1]  # the last one is nearly always the next that ends
        # Looked at in each turn of the loop: few of many tables.
        self._begun = {job for job in self._jobs if job.copy.started}
        self._workers = CopyWorkers(self._jobs, settings, open_reader=open_reader, retry_s=retry_s)
        self._again = CopiesAgain(again_s)
        self._followed = followed
        self._sets: Sets | None = None
        self._moves: Moves | None = None
        if followed is not None:
            self._sets = Sets(
                followed,
                routes,
                open_reader=open_reader,
                wake=self._workers.wake,
                retry_s=retry_s,
                again_s=again_s,
            )
            self._moves = Moves(followed, routes, self._workers.moves)
            for rows in followed.outer.values():
                for copy in filter(self._is_new, rows.copies):
                    # Slices and keys of before may even be of another key.
                    followed.following.moves[rows.table.oid].copy_again(copy.subscription)
        self._note_sets()
        self._placing = False
        self._needs_plan = False
        self.faults: dict[TableId, Fault] = {}

    def __enter__(self) -> Self:
        if not self._jobs and not self._routes.addresses.refused:
            self._say_copied()
        self._workers.start()
        if self._sets is not None:
            self._sets.start()
        return self

    def __exit__(self, *_: object) -> None:
        for job in self._jobs:
            self._routes.unwatch(job.route, job.copy)
        if self._sets is not None:
            self._sets.close()
        self._workers.close()

    def merging(self) -> dict[str, int]:
        """Return the topics, and their partitions, in which a copy begins without a ``t``."""
        return {
            target.topic: target.counter.partitions
            for job in self._jobs
            if not job.copy.started and not job.part
            for route in job.route.projection_routes
            if not route.encoder.envelope.truncates
            for target in route.targets
        }

    # Called by the loop

    def fileno(self) -> int:
        """See `gateway.runtime.ports.Copier`."""
        return self._workers.fileno()

    @property
    def unfinished(self) -> bool:
        """See `gateway.runtime.ports.Copier`."""
        while self._open and self._open[-1].over:
            self._open.pop()
        moves = self._moves is not None and self._moves.unsettled
        sets = self._sets is not None and self._sets.unfinished
        return bool(self._open or self._again) or moves or sets

    @property
    def needs_successor(self) -> bool:
        """See `gateway.runtime.ports.Copier`."""
        altered = self._workers.altered or self._routes.copy_invalidated
        altered = altered or (self._sets is not None and self._sets.altered)
        return self._needs_plan or altered

    def awaited(self) -> Lsn | None:
        """See `gateway.runtime.ports.Copier`."""
        awaited = [self._workers.awaited(), None if self._sets is None else self._sets.awaited()]
        return min((lsn for lsn in awaited if lsn is not None), default=None)

    def states(self) -> tuple[CopyState, ...]:
        """See `gateway.runtime.ports.Copier`."""
        if not self._placing:
            for job in self._begun:
                if not job.over and job.copy.started:
                    self._set_progress(job)
        if self._followed is not None and not self._placing:
            self._copy_whole(self._followed)
        for copy in self._plan.copies if self._routes.held.reasons else ():
            because = self._routes.held.reasons.get((copy.subscription, copy.target_oid))
            if because is not None:
                is_new = self._states.start_over(copy, _ALTERED, because=because)
                # One that waits for its pause is pending already, and is not begun while held.
                self._needs_plan |= is_new or self._again.awaits(copy)
        for (subscription, oid), because in self._routes.held.lost.items():
            self._states.lose(subscription, oid, because)
        if (new_plan := self._routes.pop_new_plan()) is not None:
            self._states.apply(new_plan)
        return self._states.all()

    def place(self, last: Lsn, until: Lsn, room: int) -> Placement | None:
        """See `gateway.runtime.ports.Copier`."""
        self._pop_notes()  # also when all is copied: a note that stays would keep the loop awake
        if not self.unfinished:
            return None
        if self._followed is not None:
            self._copy_whole(self._followed)
        if self._again:
            self._begin_again()
        if self._sets is not None and (read := self._sets.due(until)) is not None:
            lsn = max(last, read[1].insert_lsn)
            return Placement(lsn, self._build(self._sets, *read, lsn))
        if self._moves is not None and (moved := self._moves.due(until)) is not None:
            lsn = max(last, moved[1].insert_lsn)
            return Placement(lsn, self._move(self._moves, *moved, lsn))
        if (due := self._workers.due(until, self._may_place)) is None:
            return None
        job, chunk = due
        if job.copy.lacks_rewrite(chunk):
            self._routes.copy_rewritten((c.subscription, c.target_oid) for c in job.copies)
        rows = int(room / job.records_per_row)
        parts = chunk.split(max(1, rows), job.source.key_positions)
        if parts is not None:
            chunk, rest = parts
            self._workers.keep_rest(job, rest)
        lsn = max(last, chunk.insert_lsn)
        return Placement(lsn, self._publish(job, chunk, lsn, whole=parts is None))

    def _pop_notes(self) -> None:
        """Raise the failure of a worker; forget changes that all later snapshots see."""
        snapshots, given_up = self._workers.pop_notes()
        for job, error in given_up:
            self._give_up(job, error)
        for snapshot in snapshots[-1:]:
            self._workers.forget(snapshot)
        for failure in () if self._moves is None else self._moves.go_on():
            self._give_up_moves(failure.source.table.oid, failure.error)
        for inner, error in () if self._sets is None else self._sets.go_on():
            why = f"{inner.table}, which its filter reads, cannot be read: {error.message}"
            assert self._followed is not None
            for copy in self._followed.outer_of(inner.table.oid):
                self.faults[copy.subscription, copy.target_oid] = Fault(why, cause=error.cause)
            self._needs_plan = True

    def _may_place(self, job: CopyJob) -> bool:
        """Whether a job goes on, and the sets are there by which its rows are chosen."""
        if job.over or self._again.is_ending(job):
            return False
        followed = self._followed
        return followed is None or all(map(followed.is_ready, job.copies))

    def _note_sets(self) -> None:
        """Let the tables be read whose rows can be placed: another one would keep its thread."""
        if self._sets is not None:
            for job in self._jobs:
                job.awaits_sets = not self._may_place(job)
            self._workers.go_on()

    def _build(
        self, sets: Sets, inner: InnerTable, chunk: Chunk, lsn: Lsn
    ) -> Iterator[list[Record]]:
        """Build the sets of a table, in pieces without records."""
        for _ in sets.place(inner, chunk, lsn):
            yield []
        self._note_sets()

    def _move(
        self, moves: Moves, source: ChunkSource, chunk: MoveChunk, lsn: Lsn
    ) -> Iterator[list[Record]]:
        """Yield the records of rows that have entered or left, as they are at `lsn`."""
        self._placing = True
        transaction = self._transaction(lsn, "true")
        yield from moves.place(source, chunk, lsn, transaction)
        report_quarantined(_LOG, self._counters, transaction.quarantined)
        self._placing = False

    def _give_up_moves(self, oid: int, error: GatewayError) -> None:
        """Let another plan decide about a table whose rows cannot be read."""
        event(_LOG, logging.WARNING, "starting again", because=error.message)
        self._needs_plan = True
        assert self._followed is not None
        for copy in self._followed.outer[oid].copies:
            if isinstance(error, TableUnreadable):
                self.faults[copy.subscription, oid] = Fault(error.message, cause=error.cause)
            elif isinstance(error, ConditionError):
                self._followed.following.moves[oid].copy_again(copy.subscription)

    def _is_new(self, copy: TableCopy) -> bool:
        """Whether a table is to be copied from its beginning, and has not begun."""
        state = self._states.of(copy)
        return state.state == "pending" and not state.progress.started

    def _copy_whole(self, followed: FollowedTables) -> None:
        """Give up the copies of which nobody knows what subscribers have."""
        self._routes.held.hold(followed.pop_held())
        again = []
        for rows in followed.outer.values():
            whole = followed.following.moves[rows.table.oid].whole
            if whole:
                again += [c for c in rows.copies if c.subscription in whole and not self._is_new(c)]
        if again:
            self._copy_again(again)

    def _copy_again(self, copies: Collection[TableCopy]) -> None:
        for copy in copies:
            self._states.start_over(copy, _COPIED_AGAIN, because=_ANY_ROW)
        self._routes.held.mark(self._again.add(copies, self._jobs))

    def _begin_again(self) -> None:
        """Begin with tables that are copied again, between two transactions."""
        copies = []
        for job in self._again.pop_ending():
            copies += [copy for copy in job.copies if not self._again.awaits(copy)]
            self._set_progress(job)
            self._end(job)
        copies += self._again.pop_due(self._routes.held.reasons)
        if copies:
            jobs = list(make_jobs(self._plan, self._states, self._routes, copies))
            self._jobs = [*(job for job in self._jobs if not job.over), *jobs]
            self._open = self._jobs[::-1]
            self._begun.update(job for job in jobs if job.copy.started)
            self._note_sets()
            self._workers.add(jobs)

    def _publish(
        self, job: CopyJob, chunk: Chunk, lsn: Lsn, *, whole: bool
    ) -> Iterator[list[Record]]:
        """Yield the records of a chunk; `whole` unless a rest of it follows."""
        self._placing = True
        self._begun.add(job)
        if not job.copy.started and not job.part:
            if self._followed is not None:
                for copy in job.copies:
                    self._followed.begin_copy(copy)
            yield self._routes.pop_held_markers(lsn)  # that it is pending, before that it begins
            yield self._mark(job, lsn, state="copying", asked=None, published=0)
            yield job.route.begin(lsn, self._transaction(lsn, "first"))
        transaction = self._transaction(lsn, "true")
        rows = job.copy.place(chunk)
        made = 0
        for records in job.route.publish(rows, lsn, transaction, self._evaluator):
            made += len(records)
            self._counters.copied_rows += len(records)
            yield records
        job.learn(chunk.size, made)
        for copy in job.copies:
            sent = self._states.of(copy).published + job.pop_published(copy.subscription)
            self._states.set(copy, published=sent)
        report_quarantined(_LOG, self._counters, transaction.quarantined)
        self._placing = False
        if job.copy.progress.ready:
            yield self._finish(job, lsn)
        else:
            fail_point("copy.between_chunks")
            self._set_progress(job)
            self._report_progress(job)
        self._workers.placed(job, whole=whole)
        self._workers.forget(chunk.snapshot)

    def _finish(self, job: CopyJob, lsn: Lsn) -> list[Record]:
        fail_point("copy.before_ready")
        self._end(job)
        self._report_progress(job)
        records: list[Record] = []
        for copy in job.copies:
            if job.part:  # it was ready all the time
                self._states.set(copy, progress=job.progress_of(copy), asked=None)
            else:
                definition = fingerprint_of(self._plan, copy)
                records += self._mark(job, lsn, [copy], state="ready", definition=definition)
                if not self._states.of(copy).is_settled:
                    # Rows of partitions that were attached meanwhile: the next attempt copies them.
                    self._states.set(copy, progress=Progress())
                    self._needs_plan = True
            event(
                _LOG,
                logging.INFO,
                "part of a table copied" if job.part else "table copied",
                subscription=copy.subscription,
                relation=job.table,
                rows_read=job.copy.progress.rows,
                rows_published=self._states.of(copy).published,
                lsn=format_lsn(lsn),
            )
        if not self.unfinished:
            self._say_copied()
        return records

    def _say_copied(self) -> None:
        held = {(table.subscription, table.oid) for table in self._plan.held}
        if held := held | self._routes.held.reasons.keys():
            event(_LOG, logging.INFO, "all tables are copied that are not held", held=len(held))
        else:
            event(_LOG, logging.INFO, "all tables are copied")

    def _end(self, job: CopyJob) -> None:
        self._begun.discard(job)
        self._workers.end(job)
        self._routes.unwatch(job.route, job.copy)

    def _give_up(self, job: CopyJob, error: ConditionError | TableUnreadable) -> None:
        """End the copy of a table that cannot be read, or of a part whose condition fails.

        A table that consumers have is as complete as it was; another one has to be held, which
        takes a new plan.
        """
        self._end(job)
        for copy in job.copies:
            if self._states.of(copy).state == "ready":
                self._states.set(copy, asked=None)
                event(
                    _LOG,
                    logging.ERROR,
                    "copy of a part of a table abandoned",
                    subscription=copy.subscription,
                    relation=job.table,
                    because=error.message,
                )
            else:
                fault = Fault(error.message, cause=error.cause)
                self.faults[copy.subscription, copy.target_oid] = fault
                self._needs_plan = True

    def _mark(
        self,
        job: CopyJob,
        lsn: Lsn,
        copies: Sequence[TableCopy] | None = None,
        **changes: object,
    ) -> list[Record]:
        """Set the state of a table, and return the COPY markers."""
        headers = HeaderMaker(lsn, None, None, None).make(lsn, 0, b"COPY")
        records = []
        for copy in job.copies if copies is None else copies:
            state = self._states.set(
                copy, consistent_point=lsn, progress=job.progress_of(copy), **changes
            )
            records.append(
                self._routes.addresses.marker(copy.subscription, encode_copy(state), headers)
            )
        return records

    def _set_progress(self, job: CopyJob) -> None:
        for copy in job.copies:
            # One that has to start over has lost its progress for good.
            is_held = (copy.subscription, copy.target_oid) in self._routes.held.reasons
            if not (is_held or self._again.awaits(copy) or self._states.is_schema_refused(copy)):
                self._states.set(copy, progress=job.progress_of(copy))

    def _report_progress(self, job: CopyJob) -> None:
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
            commit_time=now_ms * 1000 - EPOCH_US,
            origin=None,
            snapshot=snapshot,
            ts_ms=now_ms,
        )
        return TransactionState(context, HeaderMaker(lsn, None, None, None))
