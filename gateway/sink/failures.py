"""What a KafkaError means for the gateway: try again, or call a person."""

from __future__ import annotations

import re
from typing import Final

from confluent_kafka import KafkaError

from gateway.errors import ConfigError, FatalError, GatewayError, TransientError

__all__ = ["classify_kafka_error", "is_fenced"]

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
_AUTHENTICATION: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
        KafkaError._SSL,
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
# librdkafka: "ProduceRequest for <topic> [<partition>] with ... failed: ..."
_TOPIC_IN_TEXT: Final = re.compile(r"ProduceRequest for (\S+) \[")


def is_fenced(error: KafkaError) -> bool:
    """The broker no longer takes this producer: a younger one has its id, or it was too slow."""
    return error.code() in _FENCED


def classify_kafka_error(
    error: KafkaError, *, doing: str, transactional_id: str = "", topic: str | None = None
) -> GatewayError:
    """Turn a Kafka error into ours.

    Args:
        error: As the client gave it. Its text names brokers and topics, never a record.
        doing: What the gateway was doing: "committing".
        transactional_id: For the message when the producer was fenced.
        topic: The topic at fault where the caller knows it.
    """
    code = error.code()
    text = " ".join(error.str().split())
    if topic is None and (match := _TOPIC_IN_TEXT.search(text)):
        topic = match[1]
    place = f" (topic {topic})" if topic else ""
    if code in _FENCED:
        return FatalError(
            f"{doing}: another gateway with the same slot took over "
            f"(transactional.id {transactional_id})",
            hint="one slot has one gateway: stop this one, or give it a slot of its own "
            "(source.slot)",
        )
    if code in _TOO_LARGE:
        return FatalError(
            f"{doing}: a record is larger than Kafka takes{place}",
            hint="raise max.message.bytes of the topic and, when the record is above it, "
            '"message.max.bytes" in [kafka]; the broker\'s message.max.bytes is the default of '
            "the first",
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError(
            "longer than the broker allows",
            key="kafka.transaction.timeout.ms",
            hint="lower it, or raise transaction.max.timeout.ms of the brokers",
        )
    if code in _AUTHORIZATION:
        return FatalError(
            f"{doing}: not authorised: {text}",
            hint="grant Write and Describe on the topics and on the transactional.id, Read on "
            "the progress and totals topics, Create where topics are to be made",
        )
    if code in _AUTHENTICATION:
        return FatalError(
            f"{doing}: {text}", hint="check the security and SASL properties in [kafka]"
        )
    if code in _MISSING:
        return FatalError(
            f"{doing}: a topic is missing{place}: {text}",
            hint="somebody deleted it while the gateway ran: its records are gone for its "
            "consumers; drop the slot and repeat the initial copy",
        )
    if code in _REFUSED or error.fatal():
        return FatalError(f"{doing}: Kafka refuses it{place}: {text}")
    return TransientError(
        f"{doing}: {text}", hint='check that the brokers of "bootstrap.servers" in [kafka] are up'
    )
