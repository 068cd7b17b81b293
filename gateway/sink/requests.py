"""Sends a request to the gateway of a slot: a record of the progress topic, which waits there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from gateway.errors import TransientError
from gateway.records import CopyRequest
from gateway.routing.ports import SchemaIds
from gateway.sink.clients import make_client, sender_properties
from gateway.sink.complaints import Complaints
from gateway.sink.failures import classify_kafka_error
from gateway.sink.identity import SlotIdentity
from gateway.sink.progress import KafkaProgress

__all__ = ["send_request"]

_TIMEOUT_S: Final = 30.0


def send_request(
    kafka: Mapping[str, str | int | bool],
    topic: str,
    identity: SlotIdentity,
    schema_ids: SchemaIds,
    request: CopyRequest,
) -> None:
    """Return when Kafka has `request`; the gateway that writes there is not disturbed.

    Raises:
        TransientError: Kafka or the registry cannot be reached.
        FatalError: one of them does not let us in.
    """
    name, partition, key, value, _ = KafkaProgress(
        kafka, identity, schema_ids, topic=topic
    ).encode_request(request)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failed.append(error)

    doing = f"writing a request to topic {topic}"
    complaints = Complaints()
    producer = make_client(Producer, sender_properties(kafka), complaints)
    producer.produce(name, value, key, partition, on_delivery=delivered)
    waiting = producer.flush(_TIMEOUT_S)
    if failed:
        raise classify_kafka_error(failed[0], doing=doing, topic=topic, complaint=complaints.last)
    if waiting:
        raise TransientError(f"{doing}: no answer in {_TIMEOUT_S:.0f} s")
