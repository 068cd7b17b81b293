"""Reader of one subscription's topics, with Confluent's clients of Kafka and the registry.

The markers say which topics there are and until where each is to be read; so there is no consumer
group, nothing is committed to Kafka, and a position is all that a restart needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from pgsluice_client.assembly import Assembly, Partition
from pgsluice_client.changes import Transaction
from pgsluice_client.decoding import Decoder, Record
from pgsluice_client.errors import LostRecordsError, ReadError, UnavailableError
from pgsluice_client.position import Position
from schemas.kafka_errors import FIRST_ANSWER_S, PATIENCE_S, LastError, is_lost_connection
from schemas.kafka_tokens import TokenError, with_tokens
from schemas.topic_names import topic_part

__all__ = ["STEP_S", "Reader", "check_arguments"]

_BATCH: Final = 1_000
_REQUEST_S: Final = 30.0
_ANSWER_S: Final = 2.0
"""Time for an answer after the first try; then it is asked for again."""
_OFTEN: Final = 3
"""Connections lost in a few seconds; one to a server that is silent is given up after ten."""
STEP_S: Final = 0.1
"""Longest time without a look at whether the end is reached."""
_LATE_S: Final = 30.0
"""Longest time between a marker and the records that it names."""
_NOT_FOUND: Final = 404
_NO_ACCESS: Final = (401, 403)
_FIRST: Final = -2
"""Time that stands for the first offset, in Kafka's protocol."""
_END: Final = -1
"""Time that stands for the offset after the last committed record."""


class Reader:
    """Whole transactions of one subscription, in commit order. It is of one thread.

    Args:
        subscription: Name of the subscription.
        kafka: Properties of librdkafka: ``bootstrap.servers`` and what the cluster requires.
        registry: Properties of Confluent's `SchemaRegistryClient`: ``url`` and the like.
        start: Position to continue from; None for the beginning.
        topics: Topics of tables to read; None for all of the subscription.

    Raises:
        UnavailableError: the plugin for tokens has none now: construct it again.
        ReadError: an argument or the plugin cannot work.
    """

    def __init__(
        self,
        subscription: str,
        kafka: Mapping[str, Any],
        registry: Mapping[str, Any],
        *,
        start: Position | None = None,
        topics: Collection[str] | None = None,
    ) -> None:
        check_arguments(subscription, start, topics)
        self._start = start or Position(subscription)
        self._marker_topic = f"{topic_part(subscription)}.transaction"
        self._topics = topics
        try:
            connection = with_tokens(kafka)
        except TokenError as error:
            kind = UnavailableError if error.may_pass else ReadError
            raise kind(f"no token for Kafka: {error.message}", hint=error.hint) from None
        self._registry = SchemaRegistryClient(dict(registry))
        self._reports = _Reports(kafka.get("error_cb"))
        try:
            self._consumer = Consumer(
                {
                    "group.id": "pgsluice_client",  # asked for; there is no group
                    "allow.auto.create.topics": False,
                    **connection,
                    "error_cb": self._reports,
                    "auto.offset.reset": "error",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                }
            )
        except KafkaException as error:
            self._registry.close()
            raise ReadError(
                f"the properties of Kafka do not work: {error.args[0].str()}", hint=_PROPERTIES
            ) from None
        self._assembly: Assembly | None = None
        self._paused: set[Partition] = set()
        self._assigned: set[Partition] = set()
        self._unreadable: list[Partition] = []
        # Partitions without further records for now; those of deleted topics; since when a
        # transaction lacks records of one without.
        self._ended: set[Partition] = set()
        self._deleted: set[Partition] = set()
        self._late: dict[Partition, float] = {}
        self._failure: ReadError | None = None
        self._marker_end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Transaction]:
        return self.transactions()

    @property
    def position(self) -> Position:
        """Position after the last transaction, or beyond it, where Kafka has no more changes."""
        return self._start if self._assembly is None else self._assembly.position

    def close(self) -> None:
        """Close the clients."""
        self._consumer.close()
        self._registry.close()

    def transactions(self, *, to_end: bool = False) -> Iterator[Transaction]:
        """Yield transactions as they are committed.

        Args:
            to_end: Whether to stop after those that are in Kafka at the call.

        Raises:
            ReadError: see `poll`.
        """
        end = self._end_of_markers() if to_end else None
        while end is None or not self._has_all(end):
            if (transaction := self.poll(STEP_S)) is not None:
                yield transaction

    def poll(self, timeout: float = 1.0) -> Transaction | None:
        """Return the next transaction; None if there is none within `timeout` seconds.

        Raises:
            UnavailableError: Kafka or the registry fails temporarily: call again.
            LostRecordsError: records that the position needs are gone.
            UnsupportedTopicError: a topic has another format than ``pgsluice``.
            ReadError: something else is wrong; the message says what.
        """
        if self._failure is not None:
            raise self._failure
        assembly = self._assembly or self._open()
        until, asked = time.monotonic() + timeout, False
        while True:
            if (transaction := assembly.pop()) is not None:
                return transaction
            self._look_for_ends(assembly)
            self._assign(assembly)
            self._pause(assembly)
            left = until - time.monotonic()
            if left <= 0 and asked:
                return None
            first, asked = self._consumer.poll(max(left, 0)), True
            if first is not None:
                failure = None
                for message in (first, *self._consumer.consume(_BATCH, 0)):
                    failure = self._receive(assembly, message) or failure
                if failure is not None:  # those after it have been received, too
                    if not isinstance(failure, UnavailableError):
                        self._failure = failure
                    raise failure

    def _log_in(self) -> None:
        """Wait for Kafka's first answer, but not for brokers that refuse access.

        The client itself tries to log in until a request's timeout, and then reports only that.
        """
        began_at, timeout_s = time.monotonic(), FIRST_ANSWER_S
        while True:
            try:
                self._consumer.list_topics(self._marker_topic, timeout=timeout_s)
                self._reports.clear()
                return
            except KafkaException as raised:
                failure = _failure(raised.args[0])
            timeout_s = _ANSWER_S
            passed_s = time.monotonic() - began_at
            self._consumer.poll(0)  # calls back with errors; nothing is assigned yet
            # Brokers may have refused an earlier call, too: this one has time of its own to log in.
            if passed_s >= PATIENCE_S and (refusal := self._reports.refusal()) is not None:
                self._failure = ReadError(
                    f"Kafka refuses access: {refusal.str()}", hint=_CREDENTIALS
                )
                raise self._failure
            if not isinstance(failure, UnavailableError):
                raise failure
            reason = self._reports.last
            is_closed = reason is None and self._reports.lost >= _OFTEN
            if is_closed and passed_s >= PATIENCE_S:
                raise UnavailableError(
                    "Kafka closes connections without an answer",
                    hint=f"{_PROPERTIES}; are the brokers up?",
                )
            if passed_s >= _REQUEST_S:
                if reason is None:
                    raise failure
                raise UnavailableError(f"Kafka does not answer: {reason.str()}", hint=_ADDRESS)

    def _open(self) -> Assembly:
        start = self._start
        self._log_in()
        first, end = self._offset_of_markers(_FIRST), self._offset_of_markers(_END)
        if start.marker > end:
            raise LostRecordsError(
                f"topic {self._marker_topic} has fewer records than the position says",
                hint="if the topics were recreated, start without a stored position",
            )
        self._consumer.assign([TopicPartition(self._marker_topic, 0, max(first, start.marker))])
        self._assembly = Assembly(
            Decoder(self._schema_text),
            start,
            topics=self._topics,
            whole=first <= start.marker,
        )
        return self._assembly

    def _assign(self, assembly: Assembly) -> None:
        self._seek(assembly.pop_wanted())
        # From its first record on, unless the position needs earlier ones.
        firsts = self._offsets(self._unreadable, _FIRST)
        self._unreadable.clear()
        self._seek({one: first for one, first in firsts.items() if assembly.skip_to(one, first)})

    def _seek(self, wanted: Mapping[Partition, int]) -> None:
        if again := self._assigned.intersection(wanted):
            places = [TopicPartition(*partition) for partition in again]
            self._consumer.resume(places)
            self._consumer.incremental_unassign(places)
        if wanted:
            self._consumer.incremental_assign(
                [TopicPartition(*partition, offset) for partition, offset in wanted.items()]
            )
        self._assigned.update(wanted)
        for known in (self._paused, self._ended, self._deleted):
            known.difference_update(wanted)
        self._unreadable = [one for one in self._unreadable if one not in wanted]

    def _look_for_ends(self, assembly: Assembly) -> None:
        """Look for partitions that end before what the markers say: not at once, they may grow."""
        now, lacking = time.monotonic(), assembly.lacking()
        for partition in self._deleted.intersection(lacking):
            assembly.ends_at(partition, 0)
        self._late = {
            partition: self._late.get(partition, now)
            for partition in self._ended.intersection(lacking)
        }
        late = [partition for partition, since in self._late.items() if now - since >= _LATE_S]
        self._late.update(dict.fromkeys(late, now))
        for partition, end in self._offsets(late, _END).items():
            if end < lacking[partition]:
                assembly.ends_at(partition, end)

    def _pause(self, assembly: Assembly) -> None:
        paused = assembly.paused()
        if assembly.has_enough_markers():
            paused.add((self._marker_topic, 0))
        if paused != self._paused:
            self._consumer.pause([TopicPartition(*one) for one in paused - self._paused])
            self._consumer.resume([TopicPartition(*one) for one in self._paused - paused])
            self._paused = paused

    def _receive(self, assembly: Assembly, message: Message) -> ReadError | None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                if topic == self._marker_topic:
                    self._marker_end = max(self._marker_end, offset or 0)
                elif topic is not None and partition is not None:
                    self._ended.add((topic, partition))
            elif error.code() == KafkaError._AUTO_OFFSET_RESET and topic != self._marker_topic:
                assert topic is not None and partition is not None
                self._unreadable.append((topic, partition))
            elif error.code() in _NO_TOPIC and (topic, partition) in self._assigned:
                assert topic is not None and partition is not None
                self._deleted.add((topic, partition))
            else:
                return _failure(error, topic or "")
            return None
        assert topic is not None and partition is not None and offset is not None
        key, value = message.key(), message.value()
        if topic == self._marker_topic:
            assert isinstance(value, bytes)
            assembly.receive_marker(offset, value)
        else:
            self._ended.discard((topic, partition))
            headers: Any = dict(message.headers() or ())
            assembly.receive(Record(topic, partition, offset, key, value, headers))
        return None

    def _end_of_markers(self) -> int:
        if self._assembly is None:
            self._open()
        return self._offset_of_markers(_END)

    def _has_all(self, end: int) -> bool:
        assert self._assembly is not None
        return self._marker_end >= end and self._assembly.is_drained()

    def _offset_of_markers(self, which: int) -> int:
        return self._offsets([(self._marker_topic, 0)], which)[self._marker_topic, 0]

    def _offsets(self, partitions: Collection[Partition], which: int) -> dict[Partition, int]:
        """Return the first or last offset of some partitions; 0 for those deleted since."""
        if not partitions:
            return {}
        # One request: asked for one by one, those of many partitions far away would take minutes.
        places = [TopicPartition(*partition, which) for partition in partitions]
        try:
            places = self._consumer.offsets_for_times(places, _REQUEST_S)
            errors = [place.error for place in places]
        except KafkaException as raised:  # it has no answer about any of them
            errors = [raised.args[0]] * len(places)
        found = {}
        for place, error in zip(places, errors, strict=True):
            partition = (place.topic, place.partition)
            if error and not (error.code() in _NO_TOPIC and partition in self._assigned):
                raise _failure(error, place.topic)
            found[partition] = 0 if error else place.offset
        return found

    def _schema_text(self, schema_id: int) -> str:
        status = None
        try:
            text = self._registry.get_schema(schema_id).schema_str
        except Exception as error:  # the client lets its HTTP library's own errors through
            if isinstance(error, SchemaRegistryError):
                status = error.http_status_code
            if status == _NOT_FOUND:
                raise ReadError(
                    f"the schema registry has no schema with ID {schema_id}",
                    hint="is it the registry that the gateway writes to?",
                ) from error
            if status in _NO_ACCESS:
                raise ReadError(
                    f"the schema registry refuses access: {error}",
                    hint='check "basic.auth.user.info" in the registry\'s properties, or how else '
                    "it knows users",
                ) from error
            if status is not None:
                raise UnavailableError(f"the schema registry fails: {error}") from error
            raise UnavailableError(f"the schema registry does not answer: {error}") from error
        if text is None:
            raise ReadError(f"the schema registry has no text of schema {schema_id}")
        return text


def check_arguments(
    subscription: str, start: Position | None, topics: Collection[str] | None
) -> None:
    """Check the arguments of a reader, without connecting.

    Raises:
        ReadError: one is wrong.
    """
    if start is not None and start.subscription != subscription:
        raise ReadError(f"the position is one of subscription {start.subscription}")
    if isinstance(topics, str):
        raise ReadError("topics is a collection of names, not one name")


def _failure(error: KafkaError, topic: str = "") -> ReadError:
    place = f"topic {topic}: " if topic else ""
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        return LostRecordsError(
            f"{place}the records at the position are gone: {error.str()}",
            hint="copy the table again (pgsluice copy), and read it without a stored position",
        )
    if error.code() in _NO_TOPIC:
        return ReadError(
            f"{place}{error.str()}",
            hint=_NAME,
        )
    if error.code() in _PASSING:
        return UnavailableError(f"{place}{error.str()}", hint=_REASONS.get(error.code()))
    return ReadError(f"{place}{error.str()}")


class _Reports(LastError[KafkaError]):
    """Errors of connections, known to the client's callback alone, which passes them on.

    Attributes:
        lost: How often the last connection was lost. An error says so as well if no address can be
            reached, but not if a broker accepts connections and closes them, or at most that one
            was closed, which is no reason.
    """

    def __init__(self, then: Callable[[KafkaError], object] | None) -> None:
        super().__init__()
        self._then = then
        self.lost = 0

    def __call__(self, error: KafkaError) -> None:
        if is_lost_connection(error):
            self.lost += 1
        else:
            super().__call__(error)
        self.lost += error.code() == KafkaError._ALL_BROKERS_DOWN
        if self._then is not None:
            self._then(error)

    def clear(self) -> None:
        super().clear()
        self.lost = 0


_ADDRESS: Final = "check bootstrap.servers, and whether the brokers are up"
_PROPERTIES: Final = (
    "check the properties of Kafka: brokers that want a password or TLS need security.protocol, "
    "sasl.mechanism, sasl.username and sasl.password, or ssl.ca.location"
)
_CREDENTIALS: Final = "check the properties of Kafka: user, password, ssl.ca.location"
_NAME: Final = "is the name of the subscription right, and has the gateway started?"
_REASONS: Final = {
    KafkaError._ALL_BROKERS_DOWN: "are the brokers up, and the user and password right? the lines "
    "of librdkafka on standard error say what has failed",
    KafkaError._UNKNOWN_PARTITION: _NAME,
}
"""Questions that lead from an error that may pass to its cause, where it does not pass."""
_NO_TOPIC: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_PASSING: Final = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._UNKNOWN_PARTITION,
)
