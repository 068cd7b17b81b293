"""Topic reader: committed records, decoded by the registry's schemas."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from gateway.core.errors import ProtocolError
from gateway.observe import event
from gateway.sink.clients.failures import classify_kafka_error
from gateway.sink.clients.properties import admin_properties, consumer_properties, make_client
from gateway.sink.reading.decoding import RegisteredSchemas
from gateway.sink.registry.registry import Registry

__all__ = ["Followed", "follow", "list_topics"]

_LOG: Final = logging.getLogger(__name__)
_ANSWER_S: Final = 15.0
_POLL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Followed:
    """Decoded record.

    Attributes:
        value: Decoded value; None for a tombstone.
        is_readable: Whether it is a record of its schema; if not, the log says why.
    """

    topic: str
    value: Mapping[str, Any] | None
    headers: Mapping[str, str]
    is_readable: bool = True


def list_topics(kafka: Mapping[str, str | int | bool]) -> list[str]:
    """Return the names of all topics.

    Raises:
        TransientError: Kafka does not answer.
    """
    admin = make_client(AdminClient, admin_properties(kafka))
    try:
        return sorted(admin.list_topics(timeout=_ANSWER_S).topics)
    except KafkaException as raised:
        raise classify_kafka_error(raised.args[0], doing="listing topics") from None


def follow(
    kafka: Mapping[str, str | int | bool],
    registry: Registry,
    topics: Sequence[str],
    *,
    from_beginning: bool,
    to_end: bool,
) -> Iterator[Followed]:
    """Yield the committed records of `topics`, each partition's in order.

    Args:
        kafka: librdkafka properties of the user.
        registry: Registry with the schemas.
        topics: Existing topics.
        from_beginning: Whether to include existing records.
        to_end: Whether to stop at the current end; otherwise never.

    Raises:
        TransientError: Kafka or the registry cannot be reached.
        FatalError: not authorised.
    """
    consumer = make_client(Consumer, consumer_properties(kafka))
    # One per topic: a topic that names too many schemas must not keep others from being read.
    schemas = {topic: RegisteredSchemas(registry) for topic in topics}
    try:
        left = _assign(consumer, topics, from_beginning=from_beginning)
        while left or not to_end:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                yield _decoded(message, schemas)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard((message.topic(), message.partition()))
            elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise classify_kafka_error(error, doing="reading", topic=message.topic())
    except KafkaException as raised:
        raise classify_kafka_error(raised.args[0], doing="reading topics") from None
    finally:
        consumer.close()


def _assign(
    consumer: Consumer, topics: Sequence[str], *, from_beginning: bool
) -> set[tuple[str | None, int | None]]:
    assigned = []
    for topic in topics:
        for number in consumer.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions:
            partition = TopicPartition(topic, number, OFFSET_BEGINNING)
            if not from_beginning:
                _, end = consumer.get_watermark_offsets(partition, timeout=_ANSWER_S)
                partition.offset = end
            assigned.append(partition)
    consumer.assign(assigned)
    return {(partition.topic, partition.partition) for partition in assigned}


def _decoded(message: Message, schemas: Mapping[str, RegisteredSchemas]) -> Followed:
    topic, wire = message.topic() or "", message.value()
    headers = {
        name: value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        for name, value in dict(message.headers() or ()).items()
    }
    if wire is None:
        return Followed(topic, None, headers)
    try:
        return Followed(topic, schemas[topic].decode(wire), headers)
    except ProtocolError as error:
        event(
            _LOG,
            logging.WARNING,
            "record cannot be read, skipped",
            topic=topic,
            partition=message.partition(),
            offset=message.offset(),
            error=error.reason,
        )
        return Followed(topic, None, headers, is_readable=False)
