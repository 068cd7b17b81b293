"""Limits on the size of records, of the producer and of topics.

The producer counts an uncompressed record (`gateway.core.records.wire_size`). The broker counts the
compressed batch against the topic's ``max.message.bytes``: a batch has at least one record, whose
compression ratio is not known in advance.
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
    """Return the maximum size of a record in bytes, by topic.

    Args:
        kafka: librdkafka properties of the user.
        topics: Current topics.
        sure: Whether the limit is one that the broker accepts however badly a record compresses.
            Otherwise it rejects no record that the broker may accept.
    """
    producer = record_bytes(kafka)
    if _QUEUE_LIMIT in kafka:  # a record too large for the queue would wait forever
        producer = min(producer, 1024 * _number(kafka, _QUEUE_LIMIT, producer))
    codec = kafka.get("compression.codec", kafka.get("compression.type", DEFAULT_COMPRESSION))
    if not sure and codec != "none":
        return {topic.name: producer for topic in topics}
    return {
        topic.name: min(producer, _number(topic.config, _TOPIC_LIMIT, producer) - BATCH_OVERHEAD)
        for topic in topics
    }


def record_bytes(kafka: Mapping[str, str | int | bool]) -> int:
    """Return the producer's limit on the size of a record, in bytes."""
    return _number(kafka, "message.max.bytes", _DEFAULT_MESSAGE_BYTES)


def batch_bytes(kafka: Mapping[str, str], topics: Iterable[TopicDescription]) -> int | None:
    """Return the largest batch size at which no topic refuses records that fit individually.

    None means that the producer's own limit is small enough.
    """
    wanted = _number(kafka, "batch.size", DEFAULT_BATCH_BYTES)
    least = min(_number(topic.config, _TOPIC_LIMIT, wanted) for topic in topics)
    return least if least < wanted else None


def _number(values: Mapping[str, str | int | bool], name: str, default: int) -> int:
    with contextlib.suppress(ValueError):  # reported by the client itself
        return int(values.get(name, default))
    return default
