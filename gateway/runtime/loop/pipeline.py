"""The one loop: frames in, records out, feedback back. Owns all ordering.

Invariant: the flush LSN told to PostgreSQL never passes the watermark that Kafka has committed, nor
a PREPARE whose rows are not in Kafka; and the watermark never passes a transaction that is not in
Kafka. Everything else here exists to keep that sentence true and cheap.

    source ──frames──► assembler ──transactions──► router ──records──► batch ──► sink
      ▲                                                                            │
      └───────────────────────────── flush LSN ◄───────── committed watermark ─────┘

What is handed to the sink, and when, is in `gateway.runtime.loop.group_commit`.

Idle advance. A keepalive's ``wal_end`` says that the server has sent all there was before it; with
no transaction open or waiting, it is as good a position as the end of a transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Final

from gateway.config import LimitsTable
from gateway.core.descriptors import wait_readable
from gateway.core.lsn import Lsn
from gateway.core.records import Record, Watermark
from gateway.observe import Counters, LoopState, event, report_ignored, report_quarantined
from gateway.runtime.loop.group_commit import GroupCommit
from gateway.runtime.loop.history_check import Continuity
from gateway.runtime.loop.memory import rare_collections
from gateway.runtime.loop.receiver import Intake
from gateway.runtime.loop.reporter import Reporter, unix_time
from gateway.runtime.loop.transaction_queue import Arrivals
from gateway.runtime.ports import Copier, Sink, Switch, TransactionRouter
from gateway.transactions import (
    Assembler,
    StandaloneMessage,
    Transaction,
)

__all__ = ["GRACE", "Outcome", "Pipeline"]

_LOG: Final = logging.getLogger(__name__)

GRACE: Final = 0.8
"""The part of `shutdown_timeout_s` for what is complete; the rest is for closing."""

RECORDS_PER_TURN: Final = 2_000
"""Records routed before the sink and the clock are looked at again."""
AHEAD_BYTES: Final = 4 << 20
"""Committed changes that wait for Kafka cost no more memory: a batch is gathered before them."""


_ASK_S: Final = 0.02
"""How often the server is asked how far it is while rows of a copy wait for that."""


class Outcome(Enum):
    """Why the loop ended."""

    STOPPED = "stopped"
    REACHED_ENDPOS = "reached endpos"
    REACHED_SWITCH = "reached switch"
    START_ANEW = "starting anew"


class Pipeline:
    """Replicates from a started source until told to stop.

    Args:
        watermark: What Kafka has committed; transactions that end at or before it are dropped.
        subscriptions: Those that get PROGRESS markers.
        endpos: Publish every transaction with ``end_lsn`` <= this and none after, then end.
        stopping: Asked once per turn; what is complete is committed, then the loop ends.
        switch: Asked once per turn; its point ends the loop as an earlier endpos would.
        renew: Asked once per turn; True ends the loop, so that it is started anew.
        copier: Copies tables meanwhile. Until it has finished, endpos does not end the loop.
        continuity: Refuses a stream that does not continue what Kafka has.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        intake: Intake,
        sink: Sink,
        assembler: Assembler,
        router: TransactionRouter,
        watermark: Watermark,
        subscriptions: Sequence[str],
        limits: LimitsTable,
        counters: Counters,
        *,
        endpos: Lsn | None = None,
        stopping: Callable[[], bool] = lambda: False,
        switch: Switch | None = None,
        renew: Callable[[], bool] = lambda: False,
        copier: Copier | None = None,
        continuity: Continuity | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._intake = intake
        self._sink = sink
        self._assembler = assembler
        self._router = router
        self._limits = limits
        self._counters = counters
        self._stopping = stopping
        self._switch = switch
        self._renew = renew
        self._clock = clock

        self._routing: Iterator[list[Record]] | None = None
        self._ahead: list[Record] | None = None  # its next piece, where that has been asked for
        self._copier = copier
        self._placing: Iterator[list[Record]] | None = None
        self._copies_wait = False
        self._routed: Transaction | None = None
        self._reporter = Reporter(counters, router, clock)
        self._commits = GroupCommit(
            sink,
            router,
            watermark,
            subscriptions,
            limits,
            counters,
            self._reporter,
            None if copier is None else copier.states,
            clock,
        )
        self._arrivals = Arrivals(
            intake,
            assembler,
            router,
            self._commits,
            continuity or Continuity(watermark, None),
            watermark.end_lsn,
            endpos,
        )
        self._arrivals.begin(copier, switch)
        self._draining = False
        self._next_feedback = clock()
        self._asked_at = 0.0

    def begin(
        self,
        watermark: Watermark,
        copier: Copier,
        *,
        switch: Switch | None,
        renew: Callable[[], bool],
    ) -> None:
        """Prepare to run, for the first time or where the loop ended with `Outcome.START_ANEW`.

        Args:
            watermark: In Kafka, at the position where the loop ended.
            copier: Made for it.
            switch: As for a new one, and so is `renew`.
            renew: See there.
        """
        self._copier, self._switch, self._renew = copier, switch, renew
        self._arrivals.begin(copier, switch)
        self._commits.begin_with(watermark, copier.states)
        self._draining = self._copies_wait = False

    def run(self) -> Outcome:
        """Replicate; return why it ended. Everything complete is committed then.

        Raises:
            TransientError: an edge failed; start again from the watermark in Kafka.
            FatalError: a person must act; nothing was acknowledged past the watermark.
        """
        with rare_collections():
            return self._run()

    def _run(self) -> Outcome:
        self._feed_back(reply_requested=True)
        deadline: float | None = None
        while True:
            self._draining = self._draining or self._arrivals.passed or self._needs_new_plan()
            if deadline is None and self._stopping():
                self._draining = True
                deadline = self._clock() + GRACE * self._limits.shutdown_timeout_s
            received = self._receive()
            self._route()
            if self._commits.collect():
                self._next_feedback = min(self._next_feedback, self._clock() + 0.1)
            self._commits.hurry = self._draining
            self._commits.submit(
                idle=received == 0 and not (self._placing is not None and self._commits.is_quiet),
                waiting=bool(self._arrivals),
                routing=self._routing is not None,
            )
            if self._draining and self._is_drained():
                self._feed_back()
                return self._outcome()
            if deadline is not None and self._clock() > deadline:
                return Outcome.STOPPED  # closing the sink aborts what is not committed
            asks = self._awaits_place()
            if asks:
                self._next_feedback = min(self._next_feedback, self._asked_at + _ASK_S)
            if self._clock() >= self._next_feedback:
                self._feed_back(reply_requested=asks or self._arrivals.awaits_endpos())
            if self._reporter.is_due():
                settled = self._placing is None and self._routing is None and self._commits.is_empty
                self._reporter.post(self._state(), settled=settled)
            if received == 0 and not self._has_work():
                self._wait()

    def _outcome(self) -> Outcome:
        if self._arrivals.passed and self._arrivals.switched:
            return Outcome.REACHED_SWITCH
        if self._needs_new_plan():  # what was put aside last is copied before endpos ends the loop
            return Outcome.START_ANEW
        return Outcome.REACHED_ENDPOS if self._arrivals.passed else Outcome.STOPPED

    @property
    def durable(self) -> Watermark:
        """The watermark that Kafka has committed."""
        return self._commits.durable

    def _receive(self) -> int:
        """Take what has come, if there is room for it; return the number of frames taken."""
        held = self._arrivals.held()  # asked in any case: the switch waits until it has been
        if self._draining:
            return 0
        if held:
            self._intake.set_aside()
            return 0
        if self._is_full():
            self._intake.wait_for_room()
            return 0
        frames = self._intake.receive()
        if frames:
            self._counters.frames += len(frames)
            for event in self._assembler.push(frames):
                self._arrivals.take(event)
        return len(frames)

    def _route(self) -> None:
        """Turn waiting transactions into records until the batch is full or nothing waits.

        No more than `RECORDS_PER_TURN` and a piece, so that sink and clock are looked at; no less,
        or more would be received than is routed, up to `max_buffer_bytes`.
        """
        enough = self._commits.records + RECORDS_PER_TURN
        while not self._commits.is_full:
            if self._placing is None and self._routing is None:
                self._place()
            if self._placing is not None:
                records = next(self._placing, None)
                if records is None:
                    self._placing = None
                    self._arrivals.pass_reached_endpos()
                else:
                    self._commits.add_copied(records)
                    if self._commits.records >= enough:
                        return
                continue
            if self._routing is None:
                if not self._arrivals:
                    return
                if self._route_series():
                    if self._commits.records >= enough:
                        return
                    continue
                item = self._arrivals.pop()
                if isinstance(item, StandaloneMessage):
                    self._commits.add(self._router.route_standalone(item))
                    self._commits.reach(Lsn(item.message.lsn + 1))
                    continue
                if not isinstance(item, Transaction):
                    self._commits.add(self._router.mark(item))
                    self._commits.reach(item.end_lsn)
                    continue
                self._routed = item
                self._commits.begin(item)
                self._routing = self._router.route(item)
            records = self._ahead or next(self._routing, None)
            self._ahead = None
            if records is not None:
                if self._router.awaits is not None:
                    return
                self._commits.add(records, whole=False)
                self._look_ahead()
                if self._commits.records >= enough:
                    return
                continue
            self._finish_transaction()

    def _route_series(self) -> bool:
        """Route short transactions in one go, where nothing may have its place between them."""
        series = self._arrivals.series
        if series is None or (self._copier is not None and self._copier.unfinished):
            return False
        commit_time = series.commit_time
        routed = self._router.route_series(series, self._commits.room)
        if routed is None:
            return False
        self._arrivals.settle(series)
        self._commits.add_series(routed, commit_time)
        self._counters.transactions += routed.transactions
        self._report()
        return True

    def _place(self) -> None:
        """Take rows of a copy whose place is here: behind what is routed, before what waits."""
        if self._copier is None or not self._may_place():
            return
        room = self._commits.room_for_copies
        self._copies_wait = room <= 0
        if self._copies_wait:
            return
        placement = self._copier.place(self._commits.routed_lsn, self._arrivals.upto, room)
        if placement is not None:
            self._placing = placement.records
            self._commits.reach(placement.lsn)

    def _may_place(self) -> bool:
        """Whether rows of a copy could go out here."""
        return not self._draining and self._routing is None and self._placing is None

    def _may_take_copies(self) -> bool:
        """Whether the copier is asked now; its edge must not be waited for when it is not."""
        commits = self._commits
        return self._may_place() and not commits.is_full and commits.room_for_copies > 0

    def _look_ahead(self) -> None:
        """Where the batch is full, finish the transaction if that was its last piece.

        A batch is committed when it is whole. What is full would otherwise never be that while more
        waits, and Kafka's transaction would go on, and be kept for sending it again, as long as the
        stream has something to give.
        """
        assert self._routing is not None
        if not self._commits.is_full:
            return
        self._ahead = next(self._routing, None)
        if self._ahead is None:
            self._finish_transaction()

    def _finish_transaction(self) -> None:
        assert self._routed is not None
        self._commits.finish(self._routed)
        self._routed.release()
        self._counters.transactions += 1
        self._report()
        self._routing = self._routed = None

    def _report(self) -> None:
        """Say what was lost or put into the error topic."""
        for table, rows in self._router.pop_lost_values().items():
            self._counters.lost_values += rows
            event(
                _LOG,
                logging.WARNING,
                "rows entered a filter without their large values, which are NULL downstream as "
                "in a native subscription; REPLICA IDENTITY FULL keeps them",
                relation=table,
                rows=rows,
            )
        report_quarantined(_LOG, self._counters, self._router.pop_quarantined())
        report_ignored(_LOG, self._counters, self._router.pop_ignored())

    def _is_full(self) -> bool:
        """Whether there is no room in memory for more."""
        if self._assembler.stalled and self._assembler.relieve() is not None:
            return True
        return self._arrivals.memory >= min(self._limits.max_buffer_bytes, AHEAD_BYTES)

    def _has_work(self) -> bool:
        placing = self._placing is not None
        routable = self._routing is not None or bool(self._arrivals)
        routable = routable and self._router.awaits is None
        routable = (routable or placing) and not self._commits.is_full
        if routable or (not self._sink.busy and self._commits.is_full):
            return True
        if self._copies_wait and self._may_take_copies():
            return True
        return self._intake.waiting and not self._draining and not self._is_full()

    def _is_drained(self) -> bool:
        return (
            not self._arrivals
            and self._routing is None
            and self._placing is None
            and self._commits.is_empty
            and not self._commits.is_progress_due(busy=False)
        )

    def _state(self) -> LoopState:
        oldest = self._commits.oldest
        if oldest is None and self._routed is not None:
            oldest = self._routed.commit_time
        if oldest is None:
            oldest = self._arrivals.oldest
        in_memory, on_disk = self._assembler.sizes()
        return LoopState(
            at=time.time(),
            durable_lsn=self.durable.end_lsn,
            waiting_since=unix_time(oldest),
            waiting_transactions=len(self._arrivals),
            heard_at=self._intake.heard_at,
            silent_for_s=self._intake.silent_for_s,
            buffers={
                "open": in_memory,
                "waiting": self._arrivals.memory,
                "batch": self._commits.size,
            },
            spools={"open": on_disk, "intake": self._intake.spooled},
            copies=self.durable.copies,
        )

    def _needs_new_plan(self) -> bool:
        return self._renew() or (self._copier is not None and self._copier.altered)

    def _awaits_place(self) -> bool:
        """Whether rows of a copy wait for the stream to get to their place."""
        if self._copier is None or self._draining or self._arrivals:
            return False
        awaited = self._copier.awaited()
        return awaited is not None and awaited > self._arrivals.heard

    def _feed_back(self, *, reply_requested: bool = False) -> None:
        self._intake.send_feedback(self._arrivals.flush_lsn(), reply_requested=reply_requested)
        self._asked_at = self._clock() if reply_requested else self._asked_at
        interval = self._limits.feedback_interval_s
        if self._arrivals.awaits_endpos():
            interval = min(interval, 0.2)  # ask often how far the server is
        self._next_feedback = self._clock() + interval

    def _wait(self) -> None:
        """Wait for either edge, until the next thing that the clock makes due."""
        due = [self._next_feedback, *self._commits.due_at(waiting=bool(self._arrivals))]
        edges = [self._sink.fileno()]
        if self._router.awaits is not None:
            edges.append(self._router.awaits)
        if not self._draining and self._intake.reads:
            edges.append(self._intake.fileno())
        if self._copier is not None and self._may_take_copies():
            edges.append(self._copier.fileno())
        longest = 0.5 if self._switch is None or not self._switch.holds() else 0.05
        timeout = min(max(0.0, min(due) - self._clock()), longest)
        wait_readable(edges, timeout)
