"""Sink: a thread that turns batches into Kafka transactions.

    pipeline thread                         worker thread
    submit(batch) ──────── inbox ─────────► begin? produce ... [watermark: progress, flush,
    collect()     ◄─ outcome, one byte ────   PROGRESS markers, offsets, commit], or the error

Invariant: the progress records go into the same Kafka transaction as the records before them, so
the watermark that a successor reads back under ``read_committed`` is exactly what is visible.

The PROGRESS markers name offsets, so they are made when everything else has reached the broker; a
few delivery reports suffice for that (`gateway.sink.delivery.offsets`). Batches cross the thread
boundary, rows do not.

After an error the sink has failed and must be replaced: close it, create another, and restart from
the watermark that its `open` reads. Uncommitted records are then aborted by the coordinator, and
records committed without our knowledge (a commit that timed out) are covered by the watermark. The
sink does the same by itself, with another producer and the batches of the open Kafka transaction,
if it still has them and knows that no other gateway has acquired the slot (`resume_while`).
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from gateway._speedups.layouts import topic_of
from gateway.core.background import call_in_background
from gateway.core.closing import Closing
from gateway.core.errors import (
    FatalError,
    GatewayError,
    HiddenMarkersError,
    KafkaTransactionTimeout,
    LostRecordsError,
    TopicAlteredError,
    TransientError,
)
from gateway.core.failpoints import fail_point
from gateway.core.records import RESENDABLE, Batch, Cut
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.delivery.committed_state import (
    CommittedState,
    ProgressStore,
    is_same,
    is_same_watermark,
)
from gateway.sink.delivery.deadline import Deadline
from gateway.sink.delivery.offsets import Ledger
from gateway.sink.delivery.outage import OutageDetector
from gateway.sink.delivery.producer import TransactionalProducer
from gateway.sink.delivery.topic_identity import TopicIdentity

__all__ = ["TransactionalSink"]

_ABORT_S: Final = 5.0
_JOIN_S: Final = 5.0  # the abort, and releasing the producer
_READ_S: Final = 60.0
_PAUSE_S: Final = 0.5
_COMPARE_S: Final = 60.0


class TransactionalSink(Closing):
    """`gateway.runtime.ports.Sink` on one Kafka producer at a time.

    Args:
        kafka: librdkafka properties of the user.
        identity: Identity of the slot, from which `transactional.id` follows.
        progress: Store of the watermark.
        patience_s: Seconds after which an unfinished batch fails.
        compare_s: Seconds between checks that topics are still the ones written to.
        on_away: Callback in the worker's thread with the reason when Kafka does not answer, and
            with an empty text when it does again.

    Raises:
        ConfigError: a property that must not be set, or that librdkafka does not know.
    """

    def __init__(
        self,
        kafka: Mapping[str, str | int | bool],
        identity: SlotIdentity,
        progress: ProgressStore,
        *,
        patience_s: float = 300.0,
        compare_s: float = _COMPARE_S,
        on_away: Callable[[str], None] = lambda why: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kafka = kafka
        self._id = identity.transactional_id
        self._progress = progress
        self._patience_s = patience_s
        self._clock = clock
        self._ends: Mapping[str, tuple[int, ...]] = {}
        self._topics = TopicIdentity(kafka, interval_s=compare_s, clock=clock)
        self._ledger = Ledger({})
        self._committed: CommittedState | None = None
        self._transactions = self._connect()
        self._resendable: list[Batch] | None = []
        self._holds_slot: Callable[[], bool] | None = None
        self._check_owners: Callable[[], None] = lambda: None
        self._inbox: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._outcome: tuple[Batch, Exception | None] | None = None
        self._busy = False
        self._failed = False
        self._deadline = Deadline(clock)
        self._outage = OutageDetector(on_away, clock)
        self._missing: set[str] = set()
        self._marker_topics: set[str] = set()
        self._stop_at: float | None = None
        self._stopping: Callable[[], bool] = lambda: False
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._worker = threading.Thread(target=self._work, name="kafka-sink", daemon=True)
        self._started = False

    def open(
        self, timeout_s: float = 60.0, *, stopping: Callable[[], bool] = lambda: False
    ) -> CommittedState:
        """Fence a predecessor, then read its committed state; call once, before `submit`.

        Args:
            timeout_s: Timeout in seconds.
            stopping: Polled; True gives up at once.

        Raises:
            TransientError: Kafka cannot be reached within `timeout_s`, or `stopping` returned True.
            FatalError: not authorised, a newer gateway, or a progress record of another format.
        """
        self._deadline.start(timeout_s)
        self._stopping = stopping
        self._transactions.connect_first(self._progress.topic)
        self._transactions.start()
        self._stopping = lambda: False
        fail_point("start.fenced")
        recovered = self._read(max(1.0, self._deadline.remaining_s))
        self._worker.start()
        self._started = True
        return recovered

    def resume_while(
        self,
        holds_slot: Callable[[], bool] | None,
        check_owners: Callable[[], None] = lambda: None,
    ) -> None:
        """Let the sink continue by itself after a transient failure while this is set.

        Args:
            holds_slot: Whether this gateway holds the slot at the time of the call; may wait some
                seconds for proof. Called in the worker's thread, before another producer fences all
                others. None: failures end the sink.
            check_owners: Raises a FatalError if another gateway has taken topics over, which ends
                the sink, as does a HiddenMarkersError. Called in a thread of its own once all
                others are fenced, as is a takeover's own fence.
        """
        self._holds_slot, self._check_owners = holds_slot, check_owners

    def begin_after(
        self,
        ends: Mapping[str, tuple[int, ...]],
        topic_ids: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Start the first ranges at the current ends of partitions; call while not `busy`.

        Args:
            ends: End offsets of topics of which nothing valid is known, by name; the progress topic
                no longer has offsets of them.
            topic_ids: Kafka's IDs of the topics written to.
        """
        self._ends, self._topics.ids = ends, topic_ids
        self.forget(ends)

    def forget(self, topics: Container[str]) -> None:
        """Forget the offsets of `topics`, which the progress topic no longer has.

        Call it while not `busy`, with everything committed. The sink would otherwise take the
        progress that it reads after an outage for another gateway's.
        """
        if self._committed is not None:
            known = {t: o for t, o in self._committed.offsets.items() if t not in topics}
            self._committed = replace(self._committed, offsets=known)
        self._ledger = Ledger(self._committed.offsets if self._committed else {}, self._ends)

    @property
    def committed(self) -> CommittedState:
        """State that Kafka has committed; read it while not `busy`."""
        assert self._committed is not None, "not open"
        return self._committed

    def fileno(self) -> int:
        """File descriptor that is readable when a batch has finished or failed."""
        return self._read_fd

    @property
    def busy(self) -> bool:
        """Whether a submitted batch has not been collected yet."""
        return self._busy

    def submit(self, batch: Batch) -> None:
        """Submit `batch` without waiting; only when not `busy`, and never after an error."""
        assert self._started and not self._busy and not self._failed
        assert batch.watermark is not None or batch.cut is None
        self._busy = True
        self._inbox.put(batch)

    def collect(self) -> Batch | None:
        """Return the finished batch, or None; see `Sink.collect`.

        Raises:
            TransientError: the Kafka transaction was aborted; start again from the watermark.
            FatalError: fenced by a newer gateway, not authorised, a record too large, ...
        """
        if (outcome := self._outcome) is None:
            return None
        try:
            os.read(self._read_fd, 1)
        except BlockingIOError:
            return None  # the worker is between the outcome and its byte
        self._outcome = None
        self._busy = False
        batch, error = outcome
        if error is not None:
            self._failed = True
            raise error
        return batch

    def close(self, timeout_s: float = 10.0) -> None:
        """Let a batch in flight finish within `timeout_s`, abort an open transaction, and stop.

        Does not raise: a commit that succeeded meanwhile is found in the watermark.
        """
        if self._read_fd < 0:
            return
        self._stop_at = self._clock() + timeout_s
        self._inbox.put(None)
        if self._started:
            self._worker.join(timeout_s + _JOIN_S)
        else:
            self._transactions.close()
        if not self._worker.is_alive():
            self._busy = False
            os.close(self._write_fd)
        os.close(self._read_fd)
        self._read_fd = -1

    # The worker thread. It also aborts and releases the producer: the caller that closes the sink
    # may be handling an exception, see `gateway.sink.delivery.producer`.

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            error = self._process(batch)
            if error is not None:
                error = self._abort(_ABORT_S) or error
            self._outcome = (batch, error)
            os.write(self._write_fd, b"\0")
            if error is not None:
                break
            del batch  # not kept alive while waiting for the next one
        else:
            assert self._stop_at is not None
            rest_s = self._stop_at - self._clock()
            self._stop_at = None
            self._abort(max(1.0, rest_s))
        self._transactions.close()

    def _next(self) -> Batch | None:
        """Wait for a batch, probing Kafka meanwhile; None if the sink is closed.

        An idle producer would not notice that its brokers are away.
        """
        while True:
            with contextlib.suppress(queue.Empty):
                return self._inbox.get(timeout=self._outage.pause_s)
            # Here no exception is being handled: see `gateway.sink.delivery.producer`.
            if self._probe():
                self._transactions.connection_errors.clear()
                self._outage.record_recovery()
                self._topics.check_periodically()

    def _probe(self) -> bool:
        """Probe Kafka; return whether it answers."""
        answered = self._transactions.answers(self._progress.topic, self._outage.probe_timeout_s)
        self._outage.record_probe(answered=answered, reason=self._reason())
        return answered

    def _reason(self) -> str:
        reported = self._transactions.connection_errors.last
        return "no answer to a request" if reported is None else reported.str()

    def _abort(self, timeout_s: float) -> Exception | None:
        """Abort the open transaction; return a fencing error, which outweighs others, or None."""
        # If left open, it would hide everybody's progress until the broker aborts it.
        self._deadline.start(timeout_s)
        try:
            self._transactions.abort()
        except GatewayError as error:
            return error
        return None

    def _process(self, batch: Batch) -> Exception | None:
        """Send `batch`, retrying until it succeeds or a retry is impossible.

        Returns:
            The error that ends the sink, for the pipeline's thread to raise.
        """
        self._topics.check_periodically()
        if self._topics.lost is not None:
            return self._topics.lost
        if self._resendable is not None:
            keeps = batch.kept and len(self._resendable) < RESENDABLE
            self._resendable = [*self._resendable, batch] if keeps else None
        self._deadline.start(self._patience_s)
        pieces: list[Batch] | None = [batch]
        timed_out = resumed = False
        while pieces and (error := self._send_all(pieces)) is not None:
            if self._missing:
                names = ", ".join(sorted(self._missing))
                return LostRecordsError(
                    f"topic {names} no longer exists: it was deleted", topics=self._missing
                )
            if isinstance(error, LostRecordsError | TopicAlteredError):
                return error
            if not isinstance(error, TransientError | KafkaTransactionTimeout):
                return error
            # A first timeout may be due to an outage; a second one means that the transaction is
            # too large for transaction.timeout.ms.
            verdict = self._verdict(error)
            final = timed_out and isinstance(verdict, KafkaTransactionTimeout)
            if self._holds_slot is None or final:
                return verdict
            timed_out = isinstance(verdict, KafkaTransactionTimeout)
            try:
                pieces = self._resume(error)
            except Exception as raised:
                return raised
            resumed = True
        if resumed or batch.watermark is not None:  # a piece alone awaits no answer
            self._outage.record_recovery()
        if batch.watermark is not None:
            ids = {} if self._committed is None else self._committed.topic_ids
            if batch.cut is not None:
                ids = self._topics.ids
            offsets = self._ledger.next_offsets()
            self._committed = CommittedState(batch.watermark, offsets, topic_ids=ids)
            self._resendable = []
        return None

    def _send_all(self, pieces: Iterable[Batch]) -> Exception | None:
        """Send `pieces`; return the error, which is no longer being handled, or None."""
        try:
            for piece in pieces:
                self._send(piece)
        except Exception as error:
            return error
        return None

    def _send(self, batch: Batch) -> None:
        transactions = self._transactions
        transactions.begin()
        # Topic by topic, in order within each: with many topics, librdkafka would otherwise send
        # small batches, each of which costs the broker as much as a full one.
        records = sorted(batch.records, key=topic_of)
        reported = self._ledger.enter(records)
        if batch.watermark is not None:
            # Encoded before the first record is handed over: a millisecond after that librdkafka
            # asks Kafka to add the partitions to the transaction, and again for later ones.
            records += self._progress.encode(batch.watermark, batch.done_requests, batch.parts)
            if batch.cut is not None:
                self._marker_topics = {feed.markers for feed in batch.cut.feeds}
                records += self._ledger.idle(batch.cut)
        transactions.produce(records, reported)
        fail_point("sink.produced")
        if batch.watermark is not None:
            if batch.cut is not None:
                self._mark(batch.cut)
            fail_point("sink.before_commit")
            transactions.commit()
            fail_point("sink.committed")

    def _mark(self, cut: Cut) -> None:
        """Produce the PROGRESS markers that name offsets."""
        if self._ledger.unreported(cut.feeds) is not None:
            self._transactions.flush()
            if (topic := self._ledger.unreported(cut.feeds)) is not None:
                raise TransientError(f"producing: Kafka reported no offsets of topic {topic}")
        if lost := self._ledger.shorter(cut.feeds):
            raise LostRecordsError(
                f"topic {', '.join(sorted(lost))}: records were written to offsets already used",
                topics=lost,
                hint="it was deleted and recreated, or truncated by an unclean leader election",
            )
        self._transactions.produce(self._ledger.close(cut))
        changed = {**self._new_markers(), **self._ledger.pop_changed()}
        self._transactions.produce(self._progress.encode_offsets(changed, self._topics.ids))

    def _new_markers(self) -> dict[str, tuple[int, ...]]:
        """Return the marker topics whose IDs are to be kept; they have no offsets there."""
        known = {} if self._committed is None else self._committed.topic_ids
        now = {topic: self._topics.ids.get(topic) for topic in self._marker_topics}
        return {topic: () for topic, one in now.items() if one and known.get(topic) != one}

    def _resume(self, failure: GatewayError) -> list[Batch] | None:
        """Replace the producer after `failure`; return the batches to resend, or None.

        None means that the last piece turned out to be committed.
        """
        while True:
            if self._resendable is None or self._transactions.fenced or self._is_late():
                raise self._verdict(failure)
            self._outage.record_failure(failure.message)
            time.sleep(_PAUSE_S)
            self._transactions.close()
            self._transactions = self._connect()
            try:
                self._transactions.reach(self._progress.topic)
                if self._holds_slot is not None and self._holds_slot():
                    self._transactions.start()
                    # A sink that is closed, as when the slot is lost, does not wait for it.
                    call_in_background(self._check_owners, on_wait=self._check_in_time)
                    return self._batches_to_resend()
            except HiddenMarkersError:
                raise  # another attempt does without these subscriptions
            except TransientError as error:
                failure = error
            else:
                raise failure

    def _check_in_time(self) -> None:
        if self._is_late():
            raise TransientError("checking the owners of topics: no answer in time")

    def _verdict(self, failure: GatewayError) -> GatewayError:
        """Distinguish a slow Kafka transaction from one during which Kafka was away."""
        reported = self._transactions.connection_errors.last
        if isinstance(failure, KafkaTransactionTimeout) and reported is not None:
            return TransientError(f"{failure.message}; {reported.str()}")
        return failure

    def _batches_to_resend(self) -> list[Batch] | None:
        """Return the batches to resend, by whether the last commit went through; see `_resume`."""
        assert self._resendable
        before, last = self._committed, self._resendable[-1].watermark
        self._topics.check()
        found = self._read(_READ_S)
        if is_same(found, before):
            return self._resendable
        if last is not None and is_same_watermark(found.watermark, last):
            return None
        raise FatalError(
            "the watermark in Kafka is neither the last one nor the next one",
            hint="another gateway has written for the same slot; start this one again",
        )

    def _connect(self) -> TransactionalProducer:
        return TransactionalProducer(
            self._kafka,
            self._id,
            lambda topic, partition, offset: self._ledger.report(topic, partition, offset),
            self._is_late,
            self._clock,
        )

    def _read(self, timeout_s: float) -> CommittedState:
        self._committed = self._progress.read(timeout_s)
        self._ledger = Ledger(self._committed.offsets, self._ends)
        return self._committed

    def _is_late(self) -> bool:
        if self._started and self._deadline.pop_probe():
            # librdkafka waits silently for a topic that was deleted.
            known = self._ledger.open_topics | self._marker_topics
            self._missing = self._transactions.missing(known) if self._probe() else set()
            if self._missing:
                return True
            if self._outage.named:
                self._deadline.remind_now()
        if self._deadline.pop_reminder():
            self._outage.record_wait(self._reason(), give_up_in_s=self._deadline.remaining_s)
        stopped = self._stop_at is not None and self._clock() >= self._stop_at
        return stopped or self._deadline.remaining_s <= 0 or self._stopping()
