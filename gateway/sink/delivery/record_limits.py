"""How large a record may be: for the producer, and for its topic.

The producer counts a record as it is (`gateway.core.records.wire_size`). The broker counts the
batch that brings the record, compressed, against the topic's ``max.message.bytes``: a batch has at
least one record, and how far that can be compressed is not known before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Final

from gateway.core.records import BATCH_OVERHEAD
from gateway.sink.clients.properties import DEFAULT_BATCH_BYTES, DEFAULT_COMPRESSION
from gateway.sink.topics.topics import TopicDescription

__all__ = ["batch_bytes", "most_bytes", "record_bytes"]

_TOPIC_LIMIT: Final = "max.message.bytes"
_QUEUE_LIMIT: Final = "queue.buffering.max.kbytes"
_DEFAULT_MESSAGE_BYTES: Final = 1_000_000


def most_bytes(
    kafka: Mapping[str, str], topics: Iterable[TopicDescription], *, sure: bool
) -> dict[str, int]:
    """Return, by topic, the bytes that a record may have.

    Args:
        kafka: librdkafka properties of the user.
        topics: As they are now.
        sure: No larger one is let through than what the broker takes however badly it compresses.
            Otherwise no smaller one is held back than what the broker may take.
    """
    producer = record_bytes(kafka)
    if _QUEUE_LIMIT in kafka:  # what the queue cannot have would wait in vain
        producer = min(producer, 1024 * _number(kafka, _QUEUE_LIMIT, producer))
    codec = kafka.get("compression.codec", kafka.get("compression.type", DEFAULT_COMPRESSION))
    if not sure and codec != "none":
        return {topic.name: producer for topic in topics}
    return {
        topic.name: min(producer, _number(topic.config, _TOPIC_LIMIT, producer) - BATCH_OVERHEAD)
        for topic in topics
    }


def record_bytes(kafka: Mapping[str, str | int | bool]) -> int:
    """Return how many bytes of a record the producer takes, whatever its topic takes."""
    return _number(kafka, "message.max.bytes", _DEFAULT_MESSAGE_BYTES)


def batch_bytes(kafka: Mapping[str, str], topics: Iterable[TopicDescription]) -> int | None:
    """Return how large a batch may be so that no topic refuses records that fit one by one.

    None: as large as the producer makes it.
    """
    wanted = _number(kafka, "batch.size", DEFAULT_BATCH_BYTES)
    least = min(_number(topic.config, _TOPIC_LIMIT, wanted) for topic in topics)
    return least if least < wanted else None


def _number(values: Mapping[str, str | int | bool], name: str, default: int) -> int:
    with contextlib.suppress(ValueError):  # the client names it
        return int(values.get(name, default))
    return default
