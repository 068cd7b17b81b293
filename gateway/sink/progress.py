"""The watermark and the running totals: written into each Kafka transaction, read back at start.

Two compacted topics of one partition. Their keys carry the slot's identity, so many gateways can
share them. Values are schemas/progress.avsc and schemas/totals.avsc in Confluent's wire format;
reading goes by these files and never asks the registry.

Reading waits until ``read_committed`` has reached the end that ``read_uncommitted`` shows: behind
another gateway's open Kafka transaction a committed watermark of our own would be invisible, and an
older one would pass for the newest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

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

from gateway.envelope.markers import (
    decode_progress,
    decode_progress_key,
    decode_totals,
    decode_totals_key,
    encode_progress,
    encode_progress_key,
    encode_totals,
    encode_totals_key,
)
from gateway.errors import FatalError, ProtocolError, TransientError
from gateway.ports import SchemaIds
from gateway.records import Record, Watermark
from gateway.sink.clients import admin_properties, consumer_properties, make_client
from gateway.sink.failures import classify_kafka_error
from gateway.sink.identity import SlotIdentity
from gateway.sink.producer import Recovered
from schemas import load

__all__ = ["KafkaProgress", "read_compacted", "read_progress", "read_totals"]

_T = TypeVar("_T")
_POLL_S: Final = 0.05
_UNSETTLED: Final = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)
_HEADER_BYTES: Final = 5  # Confluent's wire format: 0, then the schema's id in four bytes


class KafkaProgress:
    """A `gateway.sink.producer.ProgressStore` in two topics.

    Args:
        kafka: librdkafka properties of the user.
        identity: The slot.
        schema_ids: Registers the schemas, under ``<topic>-key`` and ``<topic>-value``.

    Raises:
        SchemaError: the registry refuses the schemas.
        TransientError: the registry cannot be reached.
    """

    def __init__(
        self,
        kafka: Mapping[str, str | int | bool],
        identity: SlotIdentity,
        schema_ids: SchemaIds,
        *,
        progress_topic: str = "pgsluice.progress",
        totals_topic: str = "pgsluice.totals",
    ) -> None:
        self._kafka = kafka
        self._identity = identity
        self._progress_topic = progress_topic
        self._totals_topic = totals_topic
        register = schema_ids.register
        self._progress_id = register(f"{progress_topic}-value", load("progress"))
        self._totals_key_id = register(f"{totals_topic}-key", load("totals-key"))
        self._totals_id = register(f"{totals_topic}-value", load("totals"))
        progress_key_id = register(f"{progress_topic}-key", load("progress-key"))
        self._progress_key = _framed(progress_key_id, encode_progress_key(*identity.key))

    def encode(self, watermark: Watermark, totals: Mapping[str, tuple[int, ...]]) -> list[Record]:
        """The records that carry `watermark` and `totals`; the watermark's is the last."""
        records: list[Record] = []
        for topic, partitions in totals.items():
            key = _framed(self._totals_key_id, encode_totals_key(*self._identity.key, topic))
            value = _framed(self._totals_id, encode_totals(partitions))
            records.append((self._totals_topic, 0, key, value, []))
        value = _framed(self._progress_id, encode_progress(watermark))
        records.append((self._progress_topic, 0, self._progress_key, value, []))
        return records

    def read(self, timeout_s: float) -> Recovered:
        """What was committed last for this slot.

        Raises:
            TransientError: Kafka did not give it within `timeout_s`.
            FatalError: a record of a format this gateway does not know, or none at all.
        """
        deadline = time.monotonic() + timeout_s
        watermark = read_progress(self._kafka, self._progress_topic, self._identity, timeout_s)
        rest = max(1.0, deadline - time.monotonic())
        return Recovered(
            watermark, read_totals(self._kafka, self._totals_topic, self._identity, rest)
        )


def read_progress(
    kafka: Mapping[str, str | int | bool], topic: str, identity: SlotIdentity, timeout_s: float
) -> Watermark | None:
    """The last committed watermark of the slot, or None; see `KafkaProgress.read` for errors."""
    found: bytes | None = None
    for key, value in read_compacted(kafka, topic, timeout_s):
        if _decoded(decode_progress_key, key, topic) == identity.key:
            found = value
    return None if found is None else _decoded(decode_progress, found, topic)


def read_totals(
    kafka: Mapping[str, str | int | bool], topic: str, identity: SlotIdentity, timeout_s: float
) -> dict[str, tuple[int, ...]]:
    """The last committed totals of the slot, by topic; see `KafkaProgress.read` for errors."""
    totals: dict[str, tuple[int, ...]] = {}
    for key, value in read_compacted(kafka, topic, timeout_s):
        *slot, of = _decoded(decode_totals_key, key, topic)
        if tuple(slot) != identity.key:
            continue
        if value is None:
            totals.pop(of, None)
        else:
            totals[of] = _decoded(decode_totals, value, topic)
    return totals


def read_compacted(
    kafka: Mapping[str, str | int | bool], topic: str, timeout_s: float
) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values of partition 0 of `topic`, oldest first, up to its end at the call.

    Raises:
        TransientError: Kafka did not give all of it within `timeout_s`.
        FatalError: the topic is missing or may not be read.
    """
    deadline = time.monotonic() + timeout_s
    end = _end_offset(kafka, topic, timeout_s)
    if end == 0:
        return
    doing = f"reading topic {topic}"
    consumer = make_client(Consumer, consumer_properties(kafka))
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        position = 0
        while position < end:
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
                # Control records take offsets, too: the end may lie behind the last record.
                position = max(position, message.offset() or 0)
            elif not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN:
                raise classify_kafka_error(error, doing=doing, topic=topic)
    finally:
        consumer.close()


def _end_offset(kafka: Mapping[str, str | int | bool], topic: str, timeout_s: float) -> int:
    deadline = time.monotonic() + timeout_s
    doing = f"reading topic {topic}"
    admin = make_client(AdminClient, admin_properties(kafka))
    partition = TopicPartition(topic, 0)
    while True:
        rest = max(0.1, deadline - time.monotonic())
        try:
            future = admin.list_offsets(
                {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=rest,
            )[partition]
            return int(future.result(rest + 1.0).offset)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            # The leader of a partition that is new, or whose broker has just come back.
            if error.code() not in _UNSETTLED or time.monotonic() >= deadline:
                raise classify_kafka_error(error, doing=doing, topic=topic) from None
            time.sleep(_POLL_S)
        except TimeoutError:
            raise TransientError(f"{doing}: no answer in {timeout_s:.0f} s") from None


def _framed(schema_id: int, avro: bytes) -> bytes:
    """Confluent's wire format: a zero byte, the schema's id, the Avro datum."""
    return b"\0" + schema_id.to_bytes(4, "big") + avro


def _decoded(decode: Callable[[bytes], _T], data: bytes, topic: str) -> _T:
    try:
        if len(data) < _HEADER_BYTES or data[0] != 0:
            raise ValueError("no schema id in front")
        return decode(data[_HEADER_BYTES:])
    except (ProtocolError, ValueError, EOFError, IndexError, TypeError, OverflowError) as error:
        raise FatalError(
            f"topic {topic}: a record cannot be read: {error}",
            hint="when a newer pgsluice has written it, run that version; otherwise something "
            "else writes to this topic: name another in [topics] and repeat the initial copy",
        ) from None


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
