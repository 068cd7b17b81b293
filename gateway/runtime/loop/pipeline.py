"""The one loop: frames in, records out, feedback back. Owns all ordering.

Invariant: the flush LSN reported to PostgreSQL never passes the watermark that Kafka has
committed, nor a PREPARE whose rows are not in Kafka; and the watermark never passes a transaction
that is not in Kafka. Everything else here exists to keep that sentence true and cheap.

    source ──frames──► assembler ──transactions──► router ──records──► batch ──► sink
      ▲                                                                            │
      └───────────────────────────── flush LSN ◄───────── committed watermark ─────┘

Batches, and the time at which the sink gets them, are decided in
`gateway.runtime.loop.group_commit`.

Position, endpos and draining are the loop's own; its parts are given values and return values. The
order of the steps is in one place, rather than in callbacks or coroutines, since a position may be
confirmed or not depending on it.

Idle advance. A keepalive's ``wal_end`` says that the server has sent all there was before it; with
no transaction open or waiting, it is as good a position as the end of a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Final, TypeAlias

from gateway.config import LimitsTable
from gateway.core.descriptors import wait_readable
from gateway.core.errors import GatewayError, KafkaTransactionTimeout
from gateway.core.failpoints import fail_point
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.records import Record
from gateway.core.watermark import StatePart, Watermark, unix_time
from gateway.observe import Counters, LoopState, OnBatch
from gateway.runtime.loop.admission import Admission, Disposition
from gateway.runtime.loop.batch_clock import BatchClock
from gateway.runtime.loop.batch_filler import BatchFiller
from gateway.runtime.loop.group_commit import GroupCommit, Turn
from gateway.runtime.loop.memory import rare_collections
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.loop.reporter import Reporter
from gateway.runtime.loop.stream_position import NEVER, Ends, StreamPosition
from gateway.runtime.loop.transaction_queue import TransactionQueue, position_of
from gateway.runtime.ports import Copier, Sink, Switch, TransactionRouter
from gateway.transactions import (
    Assembler,
    Event,
    KeepaliveEvent,
    PreparedTransaction,
    Series,
    StandaloneMessage,
    Transaction,
)

__all__ = ["Outcome", "Pipeline", "PopState"]

PopState: TypeAlias = Callable[[Lsn], tuple[tuple[StatePart, ...], list[Record]]]
"""Returns nothing at all where nothing has changed: markers without parts are lost."""

RECORDS_PER_TURN: Final = 2_000
"""Records routed before the sink and the clock are looked at again."""
AHEAD_BYTES: Final = 4 << 20
"""Bytes in the transaction queue from which on nothing more is received, unless
`LimitsTable.max_buffer_bytes` is less.

A longer queue would gain nothing: a whole batch is gathered ahead of it while Kafka is busy."""

_ASK_S: Final = 0.02
"""Interval at which the server is asked for its position while rows of a copy wait for it."""
_ASK_ENDPOS_S: Final = 0.05
"""The same while the loop waits for the LSN where it ends."""
_LOOK_S: Final = 0.1
"""Longest wait of a loop that has nothing to do.

Once per turn it looks at flags that nothing else wakes it for: that it is to stop, that a copy was
requested, that a table was altered."""
_HELD_LOOK_S: Final = 0.02
"""The same while changed definitions hold the loop."""


class Outcome(Enum):
    """Why the loop ended."""

    STOPPED = "stopped"
    REACHED_ENDPOS = "reached endpos"
    REACHED_SWITCH = "reached switch"
    START_AGAIN = "starting again"


class Pipeline:
    """Replicates from a started source until it is stopped.

    Args:
        watermark: Watermark that Kafka has committed; transactions that end at or before it are
            dropped.
        subscriptions: Subscriptions that get PROGRESS markers.
        ends: When the loop ends.
        confirmed_lsn: The slot's position at the stream's start; None: the slot is new.
        clock: Seconds, monotonic.
        pop_state: Returns what has changed of the state of sub-selects since the last call, and the
            MOVE markers to commit with that and everything up to an LSN.
        on_batch: Called at the end of each batch that has records; None: nobody wants to know.
    """

    def __init__(
        self,
        receiver: Receiver,
        sink: Sink,
        assembler: Assembler,
        router: TransactionRouter,
        watermark: Watermark,
        subscriptions: Sequence[str],
        limits: LimitsTable,
        counters: Counters,
        *,
        ends: Ends = NEVER,
        confirmed_lsn: Lsn | None = None,
        clock: Callable[[], float] = time.monotonic,
        pop_state: PopState = lambda _: ((), []),
        on_batch: OnBatch | None = None,
    ) -> None:
        self._receiver = receiver
        self._sink = sink
        self._assembler = assembler
        self._router = router
        self._limits = limits
        self._counters = counters
        self._ends = ends
        self._clock = clock
        self._pop_state = pop_state
        self._reporter = Reporter(counters, router, clock)
        self._batches = None if on_batch is None else BatchClock(on_batch, clock)
        self._commits = GroupCommit(watermark, subscriptions, limits, clock)
        self._queue = TransactionQueue()
        self._admission = Admission(watermark, confirmed_lsn)
        self._position = StreamPosition(watermark.end_lsn, ends.endpos)
        self._next_feedback = clock()
        self._asked_at = 0.0

    def run(
        self,
        copier: Copier | None = None,
        *,
        switch: Switch | None = None,
        renew: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Replicate; return why it ended. Everything complete is committed then.

        After `Outcome.START_AGAIN` it can be called again, and goes on where it ended.

        Args:
            copier: Copies tables meanwhile. Until it has finished, endpos does not end the loop.
            switch: Asked once per turn; its point ends the loop as an earlier endpos would.
            renew: Called once per turn; True ends the loop, so that it is started again.

        Raises:
            TransientError: an edge failed; start again from the watermark in Kafka.
            FatalError: a person must act; nothing was acknowledged past the watermark.
        """
        # The parts of one run; the others last over all runs on this stream.
        self._copier, self._switch, self._renew = copier, switch, renew
        self._filler = BatchFiller(
            self._queue, self._router, self._commits, self._counters, copier, self._clock
        )
        self._draining = False
        with rare_collections():
            return self._run()

    def go_on_from(self, watermark: Watermark) -> None:
        """Continue from a watermark that was committed elsewhere since `run` ended."""
        self._commits.go_on_from(watermark)

    def _run(self) -> Outcome:
        self._feed_back(reply_requested=True)
        while True:
            stopping = self._ends.stopping()
            self._draining |= stopping or self._position.passed or self._ends_to_go_on()
            received = self._receive()
            self._route()
            self._collect()
            self._hand_over(
                idle=received == 0 and not (self._filler.placing and self._commits.is_quiet)
            )
            if self._draining and self._is_drained():
                self._feed_back()
                return self._outcome()
            if self._ends.time_is_up():
                return Outcome.STOPPED  # closing the sink aborts what is not committed
            asks = self._awaits_place()
            if asks:
                self._next_feedback = min(self._next_feedback, self._asked_at + _ASK_S)
            if self._clock() >= self._next_feedback:
                self._feed_back(reply_requested=asks or self._awaits_endpos())
            if self._reporter.is_due():
                self._reporter.post(self._state(), settled=self._is_settled())
            if received == 0 and not self._has_work():
                self._wait()

    def _outcome(self) -> Outcome:
        if self._position.passed and self._position.switched:
            return Outcome.REACHED_SWITCH
        if self._ends_to_go_on():  # a table held last is copied before endpos ends the loop
            return Outcome.START_AGAIN
        if self._position.passed and self._copier is not None and self._copier.unfinished:
            # The last transactions have begun moves, which end at positions after them.
            return Outcome.STOPPED if self._ends.stopping() else Outcome.START_AGAIN
        return Outcome.REACHED_ENDPOS if self._position.passed else Outcome.STOPPED

    @property
    def is_ending(self) -> bool:
        """Whether endpos was passed, or other definitions have a point: it cannot be run again."""
        return self._position.passed or self._position.switched

    @property
    def durable(self) -> Watermark:
        """The watermark that Kafka has committed."""
        return self._commits.durable

    def _receive(self) -> int:
        """Receive frames, if there is room for them; return their number."""
        held = self._follow_switch()
        if self._draining:
            return 0
        if held:
            self._receiver.spool()
            return 0
        if self._is_full():
            self._receiver.defer()
            return 0
        frames = self._receiver.receive()
        if frames:
            self._counters.frames += len(frames)
            for each in self._assembler.push(frames):
                self._accept(each)
        return len(frames)

    def _follow_switch(self) -> bool:
        """End where other definitions come into force; return whether receiving has to wait."""
        if self._switch is None or self._position.switched:
            return False
        # In this order: the point is there before the switch lets the loop go.
        held, point = self._switch.holds(), self._switch.point()
        if point is not None:
            self._position.switch_at(point)
            # A source without writes says only on request that the point is reached.
            self._next_feedback = self._clock()
            return False
        if held:
            self._switch.confirm_hold()
        return held

    def _accept(self, event: Event) -> None:
        """Queue an event of the assembler, unless Kafka has it or it is after the loop's end."""
        if isinstance(event, KeepaliveEvent):
            self._accept_keepalive(event)
            return
        disposition = self._admission.judge(event, self._limit())
        if disposition is Disposition.SPLIT:
            assert isinstance(event, Series)
            while event:
                self._accept(event.pop())
            return
        if disposition is Disposition.BEYOND:
            # Where the record of a PREPARE begins is not known.
            known = isinstance(event, Transaction | StandaloneMessage)
            self._position.end(position_of(event) if known else ZERO_LSN)
        queued = disposition is Disposition.QUEUE and not self._position.passed
        if queued:
            self._queue.append(event)
            if self._batches is not None:
                self._batches.receive(event)
        match event:
            case Transaction() | PreparedTransaction():
                if queued:
                    self._router.foresee(event)
                elif not self._position.passed:
                    # Sent again by the slot after a restart; its relations are not announced again.
                    self._router.learn(event)
        if isinstance(event, Transaction) and not queued:
            event.release()

    def _accept_keepalive(self, keepalive: KeepaliveEvent) -> None:
        wal_end, limit = keepalive.wal_end, self._limit()
        self._admission.advance(wal_end)
        if not self._assembler.has_open_transactions and not self._position.passed:
            if limit is not None and wal_end >= limit:
                self._position.end()
            else:
                self._position.advance(wal_end)
        if keepalive.reply_requested:
            self._receiver.answer(wal_end, self._flush_lsn())

    def _limit(self) -> Lsn | None:
        """Return the LSN at which the loop ends, if nothing changes."""
        copying = self._copier is not None and self._copier.unfinished
        return self._position.limit(copying=copying)

    def _awaits_endpos(self) -> bool:
        """Whether to ask the server often for its position."""
        return not self._position.passed and self._limit() is not None

    def _end_if_reached(self) -> None:
        """End at an endpos that the stream has reached while tables were copied."""
        limit = self._limit()
        if limit is None or self._position.passed:
            return
        if self._queue.drop_after(limit) or self._position.reached >= limit:
            self._position.end(ZERO_LSN)

    def _route(self) -> None:
        """Add records to the batch until it is full or nothing waits.

        No more than `RECORDS_PER_TURN` and a piece, so that sink and clock are looked at; no less,
        or more would be received than is routed, until `max_buffer_bytes`. If it takes long, less.
        """
        enough = self._commits.records + RECORDS_PER_TURN
        placed = True
        while placed:
            received_lsn = self._admission.received_lsn
            placed = self._filler.fill(enough, received_lsn, draining=self._draining)
            self._position.advance(self._commits.routed_lsn)
            if placed:
                self._end_if_reached()

    def _collect(self) -> None:
        """Collect a batch that the sink has finished."""
        try:
            batch = self._sink.collect()
        except GatewayError as error:
            if self._batches is not None:
                self._batches.end(error)
            if isinstance(error, KafkaTransactionTimeout):
                raise self._commits.explained(error) from None
            raise
        copies = self.durable.copies
        if batch is not None and self._commits.collected(batch):
            self._reporter.committed()
            if self.durable.copies is not copies and self.durable.copies != copies:
                self._reporter.hurry()
            if self._batches is not None:
                self._batches.end()
            self._counters.durable_lsn = self.durable.end_lsn
            self._next_feedback = min(self._next_feedback, self._clock() + 0.1)

    def _hand_over(self, *, idle: bool) -> None:
        """Hand the batch over when the sink is free and it is time."""
        since = self._commits.since
        if self._sink.busy or (batch := self._commits.next_batch(self._turn(idle=idle))) is None:
            return
        if self._batches is not None:
            self._batches.hand_over(batch, since)
        commits = batch.watermark is not None
        if batch.watermark is not None:
            parts, markers = self._pop_state(batch.watermark.end_lsn)
            if parts:
                records = batch.records + markers if markers else batch.records
                batch = replace(batch, records=records, parts=parts)
        self._reporter.hand_over(len(batch.records), commits=commits)
        self._sink.submit(batch)
        if not commits:
            fail_point("pipeline.piece_submitted")

    def _turn(self, *, idle: bool = False) -> Turn:
        return Turn(
            self._position.reached,
            self._position.published,
            idle=idle,
            waiting=bool(self._queue),
            routing=self._filler.routing,
            hurry=self._draining,
            copies=None if self._copier is None else self._copier.states(),
            refusal=self._counters.refusal,
            ended=self._router.ended,
            feeds=self._router.feeds,
        )

    def _flush_lsn(self) -> Lsn:
        return self._admission.flush_lsn(self.durable.end_lsn)

    def _is_full(self) -> bool:
        """Whether there is no room in memory for more."""
        if self._assembler.stalled and self._assembler.relieve() is not None:
            return True
        return self._queue.memory >= min(self._limits.max_buffer_bytes, AHEAD_BYTES)

    def _has_work(self) -> bool:
        if self._filler.has_work(draining=self._draining):
            return True
        if not self._sink.busy and self._commits.is_full:
            return True
        return self._receiver.waiting and not self._draining and not self._is_full()

    def _is_drained(self) -> bool:
        return (
            not self._queue
            and self._is_settled()
            and not self._commits.is_progress_due(self._turn())
        )

    def _is_settled(self) -> bool:
        """Whether all that was routed is committed."""
        busy = self._filler.placing or self._filler.routing or self._sink.busy
        return not busy and self._commits.is_empty

    def _state(self) -> LoopState:
        times = (self._commits.oldest, self._filler.commit_time, self._queue.oldest)
        oldest = next((at for at in times if at is not None), None)
        in_memory, on_disk = self._assembler.sizes()
        last = self.durable.last
        return LoopState(
            at=time.time(),
            durable_lsn=self.durable.end_lsn,
            waiting_since=None if oldest is None else unix_time(oldest),
            waiting_transactions=len(self._queue),
            heard_at=self._receiver.heard_at,
            silent_for_s=self._receiver.silent_for_s,
            buffers={
                "open": in_memory,
                "waiting": self._queue.memory,
                "batch": self._commits.size,
            },
            spools={"open": on_disk, "intake": self._receiver.spooled},
            copies=self.durable.copies,
            last_change=None if last is None else last.committed_at,
        )

    def _ends_to_go_on(self) -> bool:
        """Whether this run ends because another one has to follow, with another copier."""
        return self._renew() or (self._copier is not None and self._copier.needs_successor)

    def _awaits_place(self) -> bool:
        """Whether rows of a copy wait until the stream reaches their position."""
        if self._copier is None or self._draining or self._queue:
            return False
        awaited = self._copier.awaited()
        return awaited is not None and awaited > self._admission.received_lsn

    def _feed_back(self, *, reply_requested: bool = False) -> None:
        self._receiver.send_feedback(self._flush_lsn(), reply_requested=reply_requested)
        self._asked_at = self._clock() if reply_requested else self._asked_at
        interval = self._limits.feedback_interval_s
        if self._awaits_endpos():
            interval = min(interval, _ASK_ENDPOS_S)
        self._next_feedback = self._clock() + interval

    def _wait(self) -> None:
        """Wait for either edge, until the next timer is due."""
        due = [self._next_feedback]
        if not self._sink.busy:
            due += self._commits.due_at(self._turn())
        edges = [self._sink.fileno()]
        if self._router.awaits is not None:
            edges.append(self._router.awaits)
        if not self._draining and self._receiver.reads:
            edges.append(self._receiver.fileno())
        if self._copier is not None and self._filler.accepts_copies(draining=self._draining):
            edges.append(self._copier.fileno())
        longest = _LOOK_S if self._switch is None or not self._switch.holds() else _HELD_LOOK_S
        timeout = min(max(0.0, min(due) - self._clock()), longest)
        wait_readable(edges, timeout)
