"""Kafka transactions of one librdkafka producer, with bounded waits and the gateway's errors.

Calls to librdkafka are made in slices, between which the deadline is checked. Those that end a
Kafka transaction must not be cut: they are made in a thread (decision 118). The cause of a failed
Kafka transaction is not always in the error at hand: `produce` reports only a state, `flush`
nothing at all. `begin_transaction` always fails while a Kafka transaction is open and, if that one
has failed, with the reason; it is therefore used as the query. Only delivery reports name topics
that may not be written.

Everything that runs the client's callbacks (`poll`, `flush`, and through them all other calls here)
is called while no exception is being handled: when a callback raises, as a fatal error makes it do,
the client never releases the exception that was being handled at that time. The frames of its
traceback stay with it, and everything they reference. For the same reason no frame that can fail
references the producer.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from gateway._speedups.layouts import topic_of
from gateway.core.errors import (
    GatewayError,
    KafkaTransactionTimeout,
    LostRecordsError,
    TopicAlteredError,
)
from gateway.core.records import Record
from gateway.sink.clients.client_errors import ErrorCallback
from gateway.sink.clients.failures import (
    classify_kafka_error,
    is_fenced,
    is_missing,
    is_refused_record,
)
from gateway.sink.clients.properties import connect_first, make_client, producer_properties
from gateway.sink.delivery.batches import ProduceBatch, make_batches
from gateway.sink.delivery.uncut_calls import UncutCalls
from schemas.kafka_errors import PATIENCE_S

__all__ = ["TransactionalProducer"]

_PASSING: Final = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
"""Errors that the client reports as final after a metadata request, although they are transient."""
_SLICE_S: Final = 0.5  # longest single wait inside librdkafka
_WITHOUT_END_S: Final = -1
_ANSWER_S: Final = 2.0  # every call makes a new metadata request
_BACKOFF_S: Final = 0.05
_ROOM_S: Final = 0.005
_FEW: Final = 1_000  # produced at once when the queue was full
_DESTROY_S: Final = 2.0
_VAGUE: Final = (KafkaError._STATE, KafkaError._FATAL, KafkaError._INCONSISTENT)
_PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_NO_ANSWER: Final = KafkaError(KafkaError._TIMED_OUT)

_Result = TypeVar("_Result")
_OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], None]

Report: TypeAlias = Callable[[str, int, int], None]
"""Callback with topic, partition and offset of a delivered record."""


class TransactionalProducer:
    """One transactional producer. After an error it must be replaced.

    Attributes:
        connection_errors: Last error of its connections.
        fenced: Whether another gateway has taken over.

    Args:
        kafka: librdkafka properties of the user.
        transactional_id: Transactional id of the slot.
        report: Delivery callback, see `produce`; called from within `produce`, `flush` and
            `commit`.
        late: Polled while a call waits; True gives up with a TransientError.

    Raises:
        ConfigError: a property that must not be set, or that librdkafka does not know.
    """

    def __init__(
        self,
        kafka: Mapping[str, str | int | bool],
        transactional_id: str,
        report: Report,
        late: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._id = transactional_id
        properties = producer_properties(kafka, transactional_id)
        self._timeout_s = float(properties["transaction.timeout.ms"]) / 1000
        self.connection_errors = ErrorCallback()
        self._producer, self._produce_batch = make_batches(
            lambda complete: make_client(Producer, complete, self.connection_errors), properties
        )
        self._report = report
        self._late = late
        self._clock = clock
        self._began_at: float | None = None
        self._committing = False
        self._uncut: UncutCalls[object] = UncutCalls()
        self._undelivered: tuple[KafkaError, str | None] | None = None
        self.fenced = False

    def connect_first(self, topic: str) -> None:
        """See `gateway.sink.clients.properties.connect_first`; call before `start`."""
        connect_first(self._producer, topic)

    def reach(self, topic: str) -> None:
        """Wait until a broker answers a metadata request about a topic.

        Raises:
            TransientError: the deadline has passed.
            FatalError: the brokers refuse access.
        """
        self._until(lambda producer, _: _ask_about(topic, producer, _ANSWER_S), "connecting")

    def answers(self, topic: str, within_s: float) -> bool:
        """Whether a broker answers a metadata request about a topic, even one that does not exist.

        The cost does not depend on the size of the cluster.
        """
        found = self._call(partial(_ask_about, topic), within_s)
        if isinstance(found, KafkaError):
            self._call(Producer.poll, 0)  # serves the error callback
            return False
        return True

    def missing(self, topics: Collection[str]) -> set[str]:
        """Return those of `topics` that do not exist; none while no broker answers."""
        found = self._call(lambda producer, s: producer.list_topics(timeout=s), _SLICE_S)
        return set() if isinstance(found, KafkaError) else set(topics).difference(found.topics)

    def start(self) -> None:
        """Fence a predecessor, whose open transaction is aborted.

        Raises:
            TransientError: Kafka cannot be reached before the deadline.
            FatalError: Kafka refuses access, or another gateway has fenced this one meanwhile.
        """
        self._until(Producer.init_transactions, "starting Kafka transactions")

    def begin(self) -> None:
        """Begin a Kafka transaction, unless one is open."""
        if self._began_at is None:
            try:
                self._producer.begin_transaction()
            except KafkaException as raised:
                raise self._classify(raised.args[0], "beginning a Kafka transaction") from None
            self._began_at = self._clock()

    def produce(self, records: list[Record], reported: Collection[int] = ()) -> None:
        """Produce `records`, with delivery reports for those at the indexes `reported`.

        Raises:
            TransientError: the Kafka transaction has failed.
            FatalError: it has failed and would fail again.
        """
        self._serve(Producer.poll, 0)
        if self._undelivered is not None:
            self._raise_failure()
        if self._produce_batch is None:
            self._produce_each(records, reported)
            return
        # Delivery reports belong to confluent-kafka, so its own call produces records that have
        # one.
        at = 0
        for index in sorted(reported):
            self._produce_many(self._produce_batch, records, at, index)
            self._produce_each(records[index : index + 1], (0,))
            at = index + 1
        self._produce_many(self._produce_batch, records, at, len(records))

    def flush(self) -> None:
        """Wait until every record has reached the broker.

        Raises:
            TransientError, FatalError: as `produce`.
        """
        began_at = self._clock()
        while self._serve(Producer.flush, _SLICE_S):
            self._raise_failure()
            self._go_on(_NO_ANSWER, "producing", began_at)
        self._raise_failure()

    def commit(self) -> None:
        """Commit. After a TransientError the commit may have happened nevertheless.

        Raises:
            TransientError, FatalError: as `produce`.
        """
        self._committing = True
        self._end(Producer.commit_transaction, "committing")
        self._committing = False
        self._began_at = None

    def abort(self) -> None:
        """Abort the open Kafka transaction, if any; the broker ends one that cannot be aborted.

        Raises:
            GatewayError: another gateway turned out to have taken over.
        """
        # A commit with an unknown outcome cannot be aborted: the next `start` resolves it.
        if self._began_at is None or self._committing:
            return
        try:
            self._end(Producer.abort_transaction, "aborting")
        except (GatewayError, RuntimeError):  # no other thread can be started
            if self.fenced:
                raise
        self._began_at = None

    def close(self) -> None:
        """Release the producer; the broker deals with open transactions and records in flight."""
        with contextlib.suppress(KafkaException):
            self._producer.purge(blocking=False)
        # The destructor waits for librdkafka's threads, for an unknown time.
        last = [self._producer]
        del self._producer
        self._produce_batch = None  # unusable without it
        self._uncut.close()
        destroyer = threading.Thread(target=last.clear, name="kafka-destroyer", daemon=True)
        destroyer.start()
        destroyer.join(_DESTROY_S)

    def _produce_many(
        self, produce: ProduceBatch, records: list[Record], at: int, end: int
    ) -> None:
        """Produce the records from `at` to `end`, which have no delivery reports."""
        most = end - at
        while at < end:
            at, code = produce(records, at, min(end, at + most))
            if code == KafkaError._QUEUE_FULL:
                self._produce_when_there_is_room(records[at], None)
                at, most = at + 1, _FEW
            elif code:
                error = KafkaError(code)
                raise self._classify(error, "producing", topic=topic_of(records[at]))

    def _produce_each(self, records: Sequence[Record], reported: Collection[int]) -> None:
        reports: list[_OnDelivery | None] = [None] * len(records)
        for index in reported:
            reports[index] = self._delivered
        left = zip(records, reports, strict=True)
        while (refused := self._hand_over(left)) is not None:
            record, report, error = refused
            if error is not None:
                raise self._classify(error, "producing", topic=topic_of(record))
            self._produce_when_there_is_room(record, report)

    def _hand_over(
        self, left: Iterator[tuple[Record, _OnDelivery | None]]
    ) -> tuple[Record, _OnDelivery | None, KafkaError | None] | None:
        """Produce `left`; return the first record that the full queue refuses, or None."""
        produce: Callable[..., None] = self._producer.produce
        # Positional arguments reduce the cost of a call by a quarter (2.0 against 2.7 us with five
        # headers); `produce_batch` is not used because it drops headers.
        for record, report in left:
            topic, partition, key, value, headers = record
            try:
                produce(topic, value, key, partition, report, None, 0, headers)
            except BufferError:
                return record, report, None
            except KafkaException as raised:
                return record, report, raised.args[0]
        return None

    def _produce_when_there_is_room(self, record: Record, report: _OnDelivery | None) -> None:
        topic = topic_of(record)
        began_at = self._clock()
        while True:
            self._serve(Producer.poll, _ROOM_S)
            self._go_on(_NO_ANSWER, f"producing to topic {topic}", began_at)
            if (refused := self._hand_over(iter([(record, report)]))) is None:
                return
            _, _, error = refused
            if error is not None:
                raise self._classify(error, "producing", topic=topic)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None and partition is not None and offset is not None
            self._report(topic, partition, offset)
        elif self._undelivered is None and error.code() not in _PURGED:
            self._undelivered = (error, message.topic())

    def _until(self, operation: Callable[[Producer, float], object], doing: str) -> None:
        """Call `operation` in slices until it succeeds, fails for good, or the deadline passes."""
        began_at = self._clock()
        while isinstance(error := self._call(operation, _SLICE_S), KafkaError):
            self._serve(Producer.poll, 0)
            if not error.retriable() and error.code() not in _PASSING:
                raise self._classify(error, doing)
            self._go_on(error, doing, began_at)
            if error.code() not in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE):
                time.sleep(_BACKOFF_S)  # the client's own back-off ends with the call
        self.connection_errors.clear()

    def _end(self, operation: Callable[[Producer, float], object], doing: str) -> None:
        """Call `operation`, which ends the Kafka transaction, until it succeeds or fails for good.

        At the deadline the thread is abandoned, with the producer, which lives until Kafka answers.
        """
        began_at = self._clock()
        call = partial(self._call, operation, _WITHOUT_END_S)

        def check() -> None:
            self._call(Producer.poll, 0)  # a fatal error is also the result of the call
            self._go_on(_NO_ANSWER, doing, began_at)

        while isinstance(error := self._uncut.make(call, check), KafkaError):
            if not error.retriable():
                self._committing = False  # a refused commit is over
                raise self._classify(error, doing)
            self._go_on(error, doing, began_at)
            time.sleep(_BACKOFF_S)
        self.connection_errors.clear()

    def _call(
        self, operation: Callable[[Producer, float], _Result], timeout_s: float
    ) -> _Result | KafkaError:
        """Return the result of `operation`, or its error, which is no longer being handled."""
        try:
            return operation(self._producer, timeout_s)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            return error

    def _go_on(self, error: KafkaError, doing: str, began_at: float) -> None:
        """Return, or raise `error` if waiting longer is pointless."""
        waited_s = self._clock() - began_at
        refusal = self.connection_errors.refusal() if waited_s >= PATIENCE_S else None
        if refusal is not None or self._late():
            raise self._classify(refusal or error, doing)

    def _serve(self, operation: Callable[[Producer, float], int], timeout_s: float) -> int:
        """Call `operation`, which runs the callbacks: reports, errors, log lines."""
        served = self._call(operation, timeout_s)
        if isinstance(served, KafkaError):  # a fatal one
            raise self._classify(served, "producing")
        return served

    def _raise_failure(self) -> None:
        """Raise the error that made the open Kafka transaction fail, if it has."""
        if (failure := self._failure()) is not None:
            raise self._classify(failure[0], "producing", topic=failure[1])

    def _failure(self) -> tuple[KafkaError, str | None] | None:
        """Return the error behind a failed Kafka transaction, with its topic if known; or None."""
        if self._undelivered is not None:
            return self._undelivered
        try:
            self._producer.begin_transaction()
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            return None if error.code() == KafkaError._STATE else (error, None)
        return None

    def _classify(self, error: KafkaError, doing: str, *, topic: str | None = None) -> GatewayError:
        if error.code() in _VAGUE and (failure := self._failure()) is not None:
            error, topic = failure
        if self._began_at is not None and (is_fenced(error) or error.fatal()):
            open_s = self._clock() - self._began_at
            self._began_at = None  # no longer this producer's to abort
            if open_s >= self._timeout_s:
                return KafkaTransactionTimeout(
                    f"{doing}: the Kafka transaction has been open for {open_s:.0f} s, longer than "
                    f"transaction.timeout.ms ({self._timeout_s:.0f} s), and the coordinator has "
                    "aborted it",
                    hint='raise "transaction.timeout.ms" in [kafka] and transaction.max.timeout.ms '
                    "of the brokers",
                )
        if is_missing(error):
            # Its records are lost; the next attempt finds out which topic it is.
            where = f"topic {topic}" if topic else "a topic"
            return LostRecordsError(
                f"{doing}: {where} no longer exists: it was deleted",
                topics=() if topic is None else (topic,),
            )
        if is_refused_record(error):
            where = f"topic {topic}" if topic else "a topic"
            return TopicAlteredError(
                f"{doing}: Kafka refuses the records of {where}: {' '.join(error.str().split())}",
                hint="check whether its cleanup.policy was altered",
            )
        self.fenced = self.fenced or is_fenced(error)
        return classify_kafka_error(
            error,
            doing=doing,
            transactional_id=self._id,
            topic=topic,
            reported=self.connection_errors.last,
        )


def _ask_about(topic: str, producer: Producer, timeout_s: float) -> object:
    return producer.list_topics(topic, timeout=timeout_s)
