"""Classification of Kafka errors: retry, or ask an operator."""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaError

from gateway.core.errors import (
    AccessError,
    ConfigError,
    FatalError,
    FencedError,
    GatewayError,
    TransientError,
)
from schemas.kafka_errors import is_refusal

__all__ = [
    "RIGHTS",
    "classify_kafka_error",
    "is_fenced",
    "is_missing",
    "is_refused_record",
    "is_unsettled",
]

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
    }
)
_TOO_LARGE: Final = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.RECORD_LIST_TOO_LARGE,
    }
)
_AUTHORIZATION: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
_UNSETTLED: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    }
)
_REFUSED: Final = frozenset(
    {
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError._UNSUPPORTED_FEATURE,
        KafkaError._NOT_IMPLEMENTED,
    }
)
_UNREADABLE: Final = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG})
_UNREACHABLE: Final = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
    }
)
# librdkafka: "ProduceRequest for <topic> [<partition>] with ... failed: ..."
_TOPIC_IN_TEXT: Final = re.compile(r"ProduceRequest for (\S+) \[")


RIGHTS: Final = (
    "grant Describe and Write on the topics and on the transactional.id, DescribeConfigs on the "
    "topics, Read on the progress topic and those of markers, Describe on the group, and Create "
    "if topics are to be created; docs/operations.md has a table"
)
"""Hint for a principal with insufficient rights."""


def is_fenced(error: KafkaError) -> bool:
    """Whether the producer is fenced: a newer one has its id, or it was too slow."""
    return error.code() in _FENCED


def is_missing(error: KafkaError) -> bool:
    """Whether a topic or partition that existed when it was checked is missing."""
    return error.code() in _MISSING


def is_unsettled(error: KafkaError) -> bool:
    """Whether a partition has no leader that answers yet: it is new, or its leader changes.

    A broker names a new partition's leader before that leader serves it, and requests for offsets
    are not repeated by the client. `KafkaError.retriable` is false for all errors but those of
    transactions.
    """
    return error.code() in _UNSETTLED


def is_refused_record(error: KafkaError) -> bool:
    """Whether a topic refuses a record of its kind, such as one without a key if compacted."""
    return error.code() == KafkaError.INVALID_RECORD


def classify_kafka_error(
    error: KafkaError,
    *,
    doing: str,
    transactional_id: str = "",
    topic: str | None = None,
    reported: KafkaError | None = None,
) -> GatewayError:
    """Return the gateway's error for a Kafka error.

    Args:
        error: Error from the client. Its text names brokers and topics, never a record.
        doing: Current activity of the gateway, such as "committing".
        transactional_id: Transactional id, for the message about a fenced producer.
        topic: Topic at fault, if the caller knows it.
        reported: Last error of the client's connections; used if `error` only says that Kafka
            could not be reached.
    """
    if reported is not None and error.code() in _UNREACHABLE:
        error = reported
    code = error.code()
    text = " ".join(error.str().split())
    if topic is None and (match := _TOPIC_IN_TEXT.search(text)):
        topic = match[1]
    place = f" (topic {topic})" if topic else ""
    if code in _FENCED:
        return FencedError(
            f"{doing}: another gateway took over (transactional.id {transactional_id})",
            hint="one slot has one gateway; this one stands by until the slot is free",
        )
    if code in _TOO_LARGE:
        return FatalError(
            f"{doing}: a record is larger than Kafka accepts{place}",
            hint="raise the topic's max.message.bytes (its default is the broker's "
            'message.max.bytes) and, if the record exceeds it, "message.max.bytes" in [kafka]; or '
            'set [on_error] size = "quarantine" to send such changes to the error topic',
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(
            "longer than the broker allows",
            key="kafka.transaction.timeout.ms",
            hint="lower it, or raise transaction.max.timeout.ms of the brokers",
        )
    if code in _AUTHORIZATION:
        return AccessError(
            f"{doing}: not authorised{place}: {text}",
            hint=RIGHTS,
            cause="topic_rights",
        )
    if is_refusal(error):
        return AccessError(
            f"{doing}: {text}",
            hint="check the security, SASL and ssl properties in [kafka]: user, password, "
            '"ssl.ca.location"',
        )
    if code in _MISSING:
        return FatalError(
            f"{doing}: a topic is missing{place}: {text}",
            hint="find out who deleted it",
        )
    if code in _REFUSED:
        return FatalError(f"{doing}: Kafka refuses it{place}: {text}")
    if code in _UNREADABLE:
        # The client never gets past it, and the records after it may be the ones that matter.
        return FatalError(
            f"{doing}: a record in Kafka cannot be read{place}: {text}",
            hint="no gateway wrote it: check who else may write to the topic; "
            "kafka-delete-records up to the next offset removes it (from a compacted topic only "
            "while its cleanup.policy is compact,delete)",
        )
    if error.fatal():
        return TransientError(
            f"{doing}: the producer has failed{place}: {text}",
            hint="a new one continues from the watermark",
        )
    return TransientError(
        f"{doing}: {text}", hint='check that the brokers of "bootstrap.servers" in [kafka] are up'
    )
