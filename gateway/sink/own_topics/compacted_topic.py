"""Reading of a compacted topic of one partition, from its beginning to its end.

Reading waits until ``read_committed`` has reached the end that ``read_uncommitted`` shows: after
another gateway's open Kafka transaction, a committed watermark of our own would be invisible, and
an older one would pass for the newest. A transaction that the reader's own predecessor has left
open hides nothing, since a producer has one at a time: what was committed before is the newest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from gateway.core.errors import TransientError
from gateway.sink.clients.admin_answers import answer
from gateway.sink.clients.client_errors import ErrorCallback
from gateway.sink.clients.failures import classify_kafka_error, is_unsettled
from gateway.sink.clients.properties import (
    admin_properties,
    connect_first,
    consumer_properties,
    make_client,
)

__all__ = ["read_compacted"]

_POLL_S: Final = 0.05
_COMMIT_S: Final = 2.0
"""Seconds for which a Kafka transaction of a predecessor may be on its way to its end."""


def read_compacted(
    kafka: Mapping[str, str | int | bool],
    topic: str,
    timeout_s: float,
    *,
    settled: bool = True,
    is_own: Callable[[bytes], bool] | None = None,
) -> Iterator[tuple[bytes, bytes | None]]:
    """Return keys and values of partition 0 of `topic`, oldest first, until its end at the call.

    Args:
        kafka: librdkafka properties of the user.
        topic: Name of the topic.
        timeout_s: Timeout in seconds.
        settled: Whether to read to the end that ``read_uncommitted`` shows, which an open Kafka
            transaction hides; otherwise to that of ``read_committed``.
        is_own: Whether a key is of the reader's own transactional id: an open transaction that
            begins with one is waited for `_COMMIT_S` seconds only. None to wait for any.

    Raises:
        TransientError: Kafka did not return all of it within `timeout_s`.
        FatalError: the topic is missing or may not be read.
    """
    deadline = time.monotonic() + timeout_s
    isolation = IsolationLevel.READ_UNCOMMITTED if settled else IsolationLevel.READ_COMMITTED
    end = _end_offset(kafka, topic, timeout_s, isolation)
    if end == 0:
        return
    doing = f"reading topic {topic}"
    consumer = make_client(Consumer, consumer_properties(kafka))
    try:
        connect_first(consumer, topic)
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        position = 0
        look_at = time.monotonic() + _COMMIT_S
        while position < end:
            if is_own is not None and time.monotonic() >= look_at:
                if _is_hidden_by(is_own, kafka, topic, position, timeout_s):
                    return
                look_at = time.monotonic() + _COMMIT_S
            rest = deadline - time.monotonic()
            if rest <= 0:
                raise TransientError(
                    f"{doing}: offset {position} of {end} after {timeout_s:.0f} s",
                    hint="Kafka is slow, or another gateway's Kafka transaction is still open "
                    "there: wait until it ends or times out",
                )
            message = consumer.poll(min(rest, 1.0))
            if message is None:
                continue
            if (error := message.error()) is None:
                position = (message.offset() or 0) + 1
                if (key := message.key()) is not None:
                    yield _bytes(key), None if (v := message.value()) is None else _bytes(v)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Control records have offsets, too: the end may lie after the last record.
                position = max(position, message.offset() or 0)
            elif error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise classify_kafka_error(error, doing=doing, topic=topic)
    finally:
        consumer.close()


def _is_hidden_by(
    is_own: Callable[[bytes], bool],
    kafka: Mapping[str, str | int | bool],
    topic: str,
    position: int,
    timeout_s: float,
) -> bool:
    """Whether all is read up to the first open Kafka transaction, and that is the reader's own."""
    stable = _end_offset(kafka, topic, timeout_s, IsolationLevel.READ_COMMITTED)
    if position < stable:
        return False
    deadline = time.monotonic() + timeout_s
    uncommitted = {**consumer_properties(kafka), "isolation.level": "read_uncommitted"}
    consumer = make_client(Consumer, uncommitted)
    try:
        connect_first(consumer, topic)
        consumer.assign([TopicPartition(topic, 0, stable)])
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is None:
                key = message.key()
                return message.offset() == stable and key is not None and is_own(_bytes(key))
            if error.code() == KafkaError._PARTITION_EOF:
                return False
            if error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise classify_kafka_error(error, doing=f"reading topic {topic}", topic=topic)
        return False
    finally:
        consumer.close()


def _end_offset(
    kafka: Mapping[str, str | int | bool], topic: str, timeout_s: float, isolation: IsolationLevel
) -> int:
    deadline = time.monotonic() + timeout_s
    doing = f"reading topic {topic}"
    connection_errors = ErrorCallback()
    admin = make_client(AdminClient, admin_properties(kafka), connection_errors)
    connect_first(admin, topic)
    partition = TopicPartition(topic, 0)
    while True:
        rest = max(0.1, deadline - time.monotonic())
        try:
            future = admin.list_offsets(
                {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=isolation,
                request_timeout=rest,
            )[partition]
            return int(answer(future, admin, connection_errors, rest + 1.0).offset)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            # The leader of a new partition, or of one whose broker has just come back.
            if not is_unsettled(error) or time.monotonic() >= deadline:
                admin.poll(0)
                raise classify_kafka_error(
                    error, doing=doing, topic=topic, reported=connection_errors.last
                ) from None
            time.sleep(_POLL_S)
        except TimeoutError:
            raise TransientError(f"{doing}: no answer in {timeout_s:.0f} s") from None


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
