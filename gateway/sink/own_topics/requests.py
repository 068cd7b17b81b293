"""Requests of commands to the gateway of a slot, as records of the progress topic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from gateway.core.errors import TransientError
from gateway.core.records import Record
from gateway.core.watermark import CopyRequest
from gateway.routing.ports import SchemaIds
from gateway.sink.clients.client_errors import ErrorCallback
from gateway.sink.clients.failures import classify_kafka_error
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.clients.properties import connect_first, make_client, sender_properties
from gateway.sink.own_topics.progress import KafkaProgress

__all__ = ["forget_offsets", "send", "send_request"]

_TIMEOUT_S: Final = 30.0


def send_request(
    kafka: Mapping[str, str | int | bool],
    topic: str,
    identity: SlotIdentity,
    schema_ids: SchemaIds,
    request: CopyRequest,
) -> None:
    """Send `request` and wait for Kafka, without fencing the gateway that writes there.

    Raises:
        TransientError: Kafka or the registry cannot be reached.
        FatalError: one of them refuses access.
    """
    progress = KafkaProgress(kafka, identity, schema_ids, topic=topic)
    send(kafka, [progress.encode_request(request)], f"writing a request to topic {topic}")


def forget_offsets(
    kafka: Mapping[str, str | int | bool],
    topic: str,
    identity: SlotIdentity,
    schema_ids: SchemaIds,
    topics: Iterable[str],
) -> None:
    """Remove the offsets that a stopped gateway has stored for `topics`.

    Raises:
        TransientError: Kafka or the registry cannot be reached.
        FatalError: one of them refuses access.
    """
    progress = KafkaProgress(kafka, identity, schema_ids, topic=topic)
    send(kafka, progress.encode_forgotten(topics), f"writing to topic {topic}")


def send(
    kafka: Mapping[str, str | int | bool], records: Iterable[Record], doing: str
) -> dict[str, int]:
    """Produce `records` outside of Kafka transactions; return the greatest offset in each topic.

    Args:
        kafka: librdkafka properties of the user.
        records: A small number of records.
        doing: Description of the activity, for errors.

    Raises:
        TransientError: Kafka cannot be reached.
        FatalError: Kafka refuses access.
    """
    failed: list[tuple[KafkaError, str]] = []
    offsets: dict[str, int] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        topic, offset = message.topic() or "", message.offset()
        if error is not None:
            failed.append((error, topic))
        elif offset is not None:
            offsets[topic] = max(offset, offsets.get(topic, 0))

    connection_errors = ErrorCallback()
    producer = make_client(Producer, sender_properties(kafka), connection_errors)
    for number, (topic, partition, key, value, headers) in enumerate(records):
        if not number:
            connect_first(producer, topic)
        producer.produce(topic, value, key, partition, on_delivery=delivered, headers=[*headers])
    waiting = producer.flush(_TIMEOUT_S)
    if failed:
        error, topic = failed[0]
        raise classify_kafka_error(error, doing=doing, topic=topic, reported=connection_errors.last)
    if waiting:
        raise TransientError(f"{doing}: no answer in {_TIMEOUT_S:.0f} s")
    return offsets
