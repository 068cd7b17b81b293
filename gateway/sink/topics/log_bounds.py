"""Bounds of partitions' logs: the first offset, and the one after the last."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from gateway.core.errors import TransientError
from gateway.sink.clients.admin_answers import answer
from gateway.sink.clients.client_errors import ErrorCallback
from gateway.sink.clients.failures import classify_kafka_error, is_missing, is_unsettled
from gateway.sink.clients.properties import admin_properties, connect_first, make_client

__all__ = ["LogBounds", "read_bounds", "read_log_bounds", "read_partition_bounds"]

_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Bounds of one partition; as a rule, including records of open Kafka transactions."""

    start: int
    end: int


def read_log_bounds(
    kafka: Mapping[str, str | int | bool],
    topics: Mapping[str, int],
    *,
    timeout_s: float = 30.0,
) -> dict[str, tuple[LogBounds, ...]]:
    """Return the bounds of all partitions, in two requests.

    Args:
        kafka: librdkafka properties of the user.
        topics: Existing topics, with their number of partitions.
        timeout_s: Timeout in seconds.

    Raises:
        TransientError: Kafka does not answer in time, or a partition has no leader.
        FatalError: not authorised.
    """
    places = [(topic, partition) for topic, count in topics.items() for partition in range(count)]
    bounds = read_bounds(kafka, places, timeout_s=timeout_s)
    return {topic: tuple(bounds[topic, p] for p in range(count)) for topic, count in topics.items()}


def read_bounds(
    kafka: Mapping[str, str | int | bool],
    partitions: Collection[tuple[str, int]],
    *,
    committed: bool = False,
    timeout_s: float = 30.0,
) -> dict[tuple[str, int], LogBounds]:
    """Return the bounds of some partitions, in two requests.

    Args:
        kafka: librdkafka properties of the user.
        partitions: Existing topics, each with the number of a partition.
        committed: Whether the end is that for readers of committed records: the first one of an
            open Kafka transaction, if there is one.
        timeout_s: Timeout in seconds.

    Raises:
        TransientError, FatalError: see `read_log_bounds`.
    """
    if not partitions:
        return {}
    places = [TopicPartition(*partition) for partition in partitions]
    connection_errors = ErrorCallback()
    admin = make_client(AdminClient, admin_properties(kafka), connection_errors)
    deadline = time.monotonic() + timeout_s
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    ask = partial(_offsets, admin, connection_errors, places, level, deadline)
    connect_first(admin, places[0].topic)
    starts = ask(OffsetSpec.earliest())  # type: ignore[no-untyped-call]
    ends = ask(OffsetSpec.latest())  # type: ignore[no-untyped-call]
    return {place: LogBounds(starts[place], ends[place]) for place in partitions}


def _offsets(
    admin: AdminClient,
    connection_errors: ErrorCallback,
    places: list[TopicPartition],
    level: IsolationLevel,
    deadline: float,
    spec: OffsetSpec,
) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    while True:
        rest = max(0.1, deadline - time.monotonic())
        futures = admin.list_offsets(
            dict.fromkeys(places, spec), isolation_level=level, request_timeout=rest
        )
        left = []
        for place, future in futures.items():
            doing = f"looking up the offsets of topic {place.topic}"
            try:
                answered = answer(future, admin, connection_errors, rest + 1.0)
                found[place.topic, place.partition] = int(answered.offset)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if not _may_settle(error) or time.monotonic() >= deadline:
                    admin.poll(0)
                    _refuse_unknown(error, place.topic)
                    raise classify_kafka_error(
                        error, doing=doing, topic=place.topic, reported=connection_errors.last
                    ) from None
                left.append(place)
            except TimeoutError:
                raise TransientError(f"{doing}: no answer in time") from None
        if not left:
            return found
        places = left
        time.sleep(_POLL_S)


def read_partition_bounds(
    consumer: Consumer, topic: str, partition: int = 0, *, timeout_s: float
) -> LogBounds:
    """Return the bounds of one partition, without another client.

    Args:
        consumer: Client to ask with; it need not be assigned the partition.
        topic: Existing topic.
        partition: Number of the partition.
        timeout_s: Timeout in seconds.

    Raises:
        KafkaException: the last answer, if there is no other one in time.
        TransientError: Kafka does not answer in time, or not with the partition.
    """
    deadline = time.monotonic() + timeout_s
    place = TopicPartition(topic, partition)
    while True:
        rest = max(0.1, deadline - time.monotonic())
        try:
            bounds = consumer.get_watermark_offsets(place, timeout=rest)
        except KafkaException as raised:
            if not _may_settle(raised.args[0]) or time.monotonic() >= deadline:
                _refuse_unknown(raised.args[0], topic)
                raise
            time.sleep(_POLL_S)
            continue
        if bounds is None:
            raise TransientError(f"looking up the offsets of topic {topic}: no answer in time")
        return LogBounds(*bounds)


def _may_settle(error: KafkaError) -> bool:
    return is_unsettled(error) or is_missing(error)


def _refuse_unknown(error: KafkaError, topic: str) -> None:
    """Raise if the client alone lacks a partition: its metadata are old, the topic is there.

    Raises:
        TransientError: it does.
    """
    if error.code() == KafkaError._UNKNOWN_PARTITION:
        raise TransientError(f"looking up the offsets of topic {topic}: no metadata in time")
