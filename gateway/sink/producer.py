"""The transactional producer: batches in, Kafka transactions out, in a thread of its own.

    pipeline thread                         worker thread
    submit(batch) ──────── inbox ─────────► begin? produce ... [watermark: progress, commit]
    collect()     ◄─ outcome, one byte ──── done, or the error

Invariant: the progress record goes into the same Kafka transaction as the records before it, so
the watermark that a successor reads back under ``read_committed`` is exactly what is visible.

No delivery callbacks: a record that cannot be delivered puts the Kafka transaction into the
abortable state, and its commit raises. Rows do not cross the thread border, batches do.

After an error the sink is of no more use: close it, make another, and start again from the
watermark that its `open` reads. What was not committed is then aborted by the coordinator, and
what was committed without our knowing it (a commit that timed out) is in the watermark.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from gateway.errors import GatewayError, KafkaTransactionTimeout, TransientError
from gateway.records import Batch, Record, Watermark
from gateway.sink.clients import make_client, producer_properties
from gateway.sink.failures import classify_kafka_error, is_fenced
from gateway.sink.identity import SlotIdentity

__all__ = ["ProgressStore", "Recovered", "TransactionalSink"]

_SLICE_S: Final = 0.5  # longest single wait inside librdkafka
_ABORT_S: Final = 5.0


class ProgressStore(Protocol):
    """Where the watermark is kept: `gateway.sink.progress.KafkaProgress`."""

    def encode(self, watermark: Watermark, totals: Mapping[str, tuple[int, ...]]) -> list[Record]:
        """The records that say so."""

    def read(self, timeout_s: float) -> Recovered:
        """What was committed last."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a predecessor has committed.

    Attributes:
        watermark: None when there never was one.
        totals: Running totals by topic; the index is the partition.
    """

    watermark: Watermark | None
    totals: Mapping[str, tuple[int, ...]]


class TransactionalSink:
    """A `gateway.ports.Sink` on one Kafka producer.

    Args:
        kafka: librdkafka properties of the user.
        identity: The slot; `transactional.id` follows from it.
        progress: Encodes and reads back the watermark.
        commit_timeout_s: Longest time for delivering and committing one Kafka transaction.

    Raises:
        ConfigError: a property that must not be set, or that librdkafka does not know.
    """

    def __init__(
        self,
        kafka: Mapping[str, str | int | bool],
        identity: SlotIdentity,
        progress: ProgressStore,
        *,
        commit_timeout_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._id = identity.transactional_id
        properties = producer_properties(kafka, self._id)
        self._transaction_timeout_s = float(properties["transaction.timeout.ms"]) / 1000
        self._producer = make_client(Producer, properties)
        self._progress = progress
        self._commit_timeout_s = commit_timeout_s
        self._clock = clock
        self._inbox: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._outcome: tuple[Batch, Exception | None] | None = None
        self._busy = False
        self._failed = False
        self._began_at: float | None = None
        self._committing = False
        self._stop_at: float | None = None
        self._stopping: Callable[[], bool] = lambda: False
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._worker = threading.Thread(target=self._work, name="kafka-sink", daemon=True)
        self._started = False

    def open(
        self, timeout_s: float = 60.0, *, stopping: Callable[[], bool] = lambda: False
    ) -> Recovered:
        """Fence a predecessor, then read what it has committed; call once, before `submit`.

        Args:
            timeout_s: When to give up.
            stopping: Asked now and then; True gives up at once.

        Raises:
            TransientError: Kafka cannot be reached within `timeout_s`, or `stopping` said so.
            FatalError: not authorised, a younger gateway, or a progress record of another format.
        """
        deadline = self._clock() + timeout_s
        self._stopping = stopping
        self._until(deadline, self._producer.init_transactions, "starting Kafka transactions")
        self._stopping = lambda: False
        recovered = self._progress.read(max(1.0, deadline - self._clock()))
        self._worker.start()
        self._started = True
        return recovered

    def fileno(self) -> int:
        """Readable when a batch has finished, or failed."""
        return self._read_fd

    @property
    def busy(self) -> bool:
        """A submitted batch has not been collected yet."""
        return self._busy

    def submit(self, batch: Batch) -> None:
        """Hand over `batch` and return at once; only when not `busy`, and never after an error."""
        assert self._started and not self._busy and not self._failed
        assert batch.watermark is not None or not batch.totals
        self._busy = True
        self._inbox.put(batch)

    def collect(self) -> Batch | None:
        """Return the batch that has finished since, or None; see `Sink.collect`.

        Raises:
            TransientError: the Kafka transaction was aborted; start again from the watermark.
            FatalError: fenced by a newer gateway, not authorised, a record too large, ...
        """
        if (outcome := self._outcome) is None:
            return None
        try:
            os.read(self._read_fd, 1)
        except BlockingIOError:
            return None  # the worker stands between the outcome and its byte
        self._outcome = None
        self._busy = False
        batch, error = outcome
        if error is not None:
            self._failed = True
            raise error
        return batch

    def abort(self, timeout_s: float = 10.0) -> None:
        """Abort the open Kafka transaction, if any; only when not `busy`.

        A broker that does not answer is left to itself: it aborts what stays open.
        """
        assert not self._busy
        self._abort(self._clock() + timeout_s)

    def close(self, timeout_s: float = 10.0) -> None:
        """Let a batch in flight finish within `timeout_s`, abort what is left open, and stop.

        Does not raise: a commit that ended well in the meantime is found again in the watermark.
        """
        if self._read_fd < 0:
            return
        self._stop_at = self._clock() + timeout_s
        self._inbox.put(None)
        if self._started:
            self._worker.join(timeout_s + 2 * _SLICE_S)
        if not self._worker.is_alive():
            self._busy = False
            self.abort(max(1.0, self._stop_at - self._clock()))
            # What was aborted or given up would otherwise be waited for by the destructor.
            with contextlib.suppress(KafkaException):
                self._producer.purge(blocking=False)
            os.close(self._write_fd)
        os.close(self._read_fd)
        self._read_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # The worker thread.

    def _work(self) -> None:
        while (batch := self._inbox.get()) is not None:
            error: Exception | None = None
            try:
                self._process(batch)
            except Exception as raised:  # handed to the pipeline's thread, which raises it
                error = raised
                # Left open, it would hide everybody's progress until the broker ends it.
                self._abort(self._clock() + _ABORT_S)
            self._outcome = (batch, error)
            os.write(self._write_fd, b"\0")
            if error is not None:
                return

    def _process(self, batch: Batch) -> None:
        if self._began_at is None:
            self._call(self._producer.begin_transaction, "beginning a Kafka transaction")
            self._began_at = self._clock()
        self._produce(batch.records)
        if batch.watermark is not None:
            self._produce(self._progress.encode(batch.watermark, batch.totals))
            self._commit()
            self._began_at = None

    def _produce(self, records: list[Record]) -> None:
        produce: Callable[..., None] = self._producer.produce
        # The hot loop. Positional arguments take a quarter off the cost of a call (2.0 against
        # 2.7 us with five headers); `produce_batch` is not used because it drops headers.
        for topic, partition, key, value, headers in records:
            try:
                produce(topic, value, key, partition, None, None, 0, headers)
            except BufferError:
                self._produce_when_there_is_room((topic, partition, key, value, headers))
            except KafkaException as error:
                raise self._classify(error.args[0], "producing", topic=topic) from None

    def _produce_when_there_is_room(self, record: Record) -> None:
        topic, partition, key, value, headers = record
        produce: Callable[..., None] = self._producer.produce
        deadline = self._clock() + self._commit_timeout_s
        while True:
            # Delivered records say nothing: poll waits here, and raises what has become fatal.
            try:
                self._producer.poll(0.005)
            except KafkaException as error:
                raise self._classify(error.args[0], "producing", topic=topic) from None
            if self._is_late(deadline):
                raise TransientError(
                    f"producing: Kafka has taken nothing for {self._commit_timeout_s:.0f} s "
                    f"(topic {topic})",
                    hint='check that the brokers of "bootstrap.servers" in [kafka] are up',
                )
            try:
                produce(topic, value, key, partition, None, None, 0, headers)
            except BufferError:
                continue
            except KafkaException as error:
                raise self._classify(error.args[0], "producing", topic=topic) from None
            return

    def _commit(self) -> None:
        deadline = self._clock() + self._commit_timeout_s
        self._committing = True
        self._until(deadline, self._producer.commit_transaction, "committing")
        self._committing = False

    def _abort(self, deadline: float) -> None:
        # A commit whose end is not known cannot be aborted: the next `open` resolves it.
        if self._began_at is None or self._committing:
            return
        with contextlib.suppress(GatewayError):
            self._until(deadline, self._producer.abort_transaction, "aborting")
        self._began_at = None

    def _until(self, deadline: float, operation: Callable[[float], None], doing: str) -> None:
        """Call `operation` in slices until it succeeds, fails for good, or `deadline` is past."""
        while True:
            try:
                operation(_SLICE_S)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if not error.retriable() or self._is_late(deadline):
                    # A refused commit is over; one that timed out goes on in the background.
                    self._committing = self._committing and error.retriable()
                    raise self._classify(error, doing) from None
                if error.code() not in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE):
                    time.sleep(0.05)  # the client's own back-off ends with the call
            else:
                return

    def _call(self, operation: Callable[[], None], doing: str) -> None:
        try:
            operation()
        except KafkaException as raised:
            raise self._classify(raised.args[0], doing) from None

    def _is_late(self, deadline: float) -> bool:
        now = self._clock()
        stopped = self._stop_at is not None and now >= self._stop_at
        return stopped or now >= deadline or self._stopping()

    def _classify(self, error: KafkaError, doing: str, *, topic: str | None = None) -> GatewayError:
        error = self._reason(error)
        if self._began_at is not None and (is_fenced(error) or error.fatal()):
            open_s = self._clock() - self._began_at
            self._began_at = None  # no longer ours to abort
            if open_s >= self._transaction_timeout_s:
                return KafkaTransactionTimeout(
                    f"{doing}: the Kafka transaction has been open for {open_s:.0f} s, longer than "
                    f"transaction.timeout.ms ({self._transaction_timeout_s:.0f} s), and the broker "
                    "has ended it",
                    hint='raise "transaction.timeout.ms" in [kafka] and transaction.max.timeout.ms '
                    "of the brokers",
                )
        return classify_kafka_error(error, doing=doing, transactional_id=self._id, topic=topic)

    def _reason(self, error: KafkaError) -> KafkaError:
        """What `produce` calls a fatal error only: every transactional call says which one."""
        if error.code() == KafkaError._FATAL:
            try:
                self._producer.abort_transaction(_SLICE_S)
            except KafkaException as raised:
                reason: KafkaError = raised.args[0]
                return reason
        return error
