"""IDs of topics, and permission to read and to write them.

The ID distinguishes a topic from an earlier one of the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._topic import TopicDescription

from gateway.core.errors import AccessError, FatalError, TransientError
from gateway.sink.clients.failures import RIGHTS, classify_kafka_error
from gateway.sink.clients.properties import admin_properties, make_client

__all__ = [
    "KnownTopic",
    "ids_of",
    "other_topics",
    "read_denied",
    "read_topic_ids",
    "read_topics",
    "write_denied",
]

_NONE: Final = str(Uuid(0, 0))
_GRACE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """Existing topic.

    Attributes:
        topic_id: ID; empty if the brokers have none (before 2.8).
        may_read: Whether this user may read; True if the brokers do not say.
        may_write: Whether this user may write; True if the brokers do not say.
    """

    topic_id: str
    may_read: bool
    may_write: bool


def read_topics(
    kafka: Mapping[str, str | int | bool],
    topics: Iterable[str],
    *,
    timeout_s: float = 10.0,
    refused: dict[str, FatalError] | None = None,
    admin: AdminClient | None = None,
) -> dict[str, KnownTopic]:
    """Return the topics that exist, by name.

    Args:
        kafka: librdkafka properties of the user.
        topics: Names of the topics.
        timeout_s: Timeout of the request, in seconds.
        refused: Receives the errors of topics that may not be described, instead of raising them.
        admin: Client that is connected already; None for a new one.

    Raises:
        TransientError: Kafka does not answer in time.
        FatalError: not authorised.
    """
    names = sorted(set(topics))
    if not names:
        return {}
    if admin is None:
        admin = make_client(AdminClient, admin_properties(kafka))
    futures: Mapping[str, Future[TopicDescription]] = admin.describe_topics(
        TopicCollection(names), include_authorized_operations=True, request_timeout=timeout_s
    )
    found: dict[str, KnownTopic] = {}
    for name, future in futures.items():
        doing = f"describing topic {name}"
        try:
            topic = future.result(timeout_s + _GRACE_S)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                failure = classify_kafka_error(error, doing=doing)
                if refused is None or not isinstance(failure, FatalError):
                    raise failure from None
                refused[name] = failure
            continue
        except TimeoutError:
            raise TransientError(f"{doing}: no answer within {timeout_s:.0f} s") from None
        known, operations = str(topic.topic_id), topic.authorized_operations
        found[name] = KnownTopic(
            "" if known == _NONE else known,
            may_read=not operations or AclOperation.READ in operations,
            may_write=not operations or AclOperation.WRITE in operations,
        )
    return found


def read_topic_ids(
    kafka: Mapping[str, str | int | bool], topics: Iterable[str], *, timeout_s: float = 10.0
) -> dict[str, str]:
    """Return the IDs of existing topics that have one; raises as `read_topics`."""
    return ids_of(read_topics(kafka, topics, timeout_s=timeout_s))


def ids_of(topics: Mapping[str, KnownTopic]) -> dict[str, str]:
    """Return the IDs of topics that have one."""
    return {name: topic.topic_id for name, topic in topics.items() if topic.topic_id}


def read_denied(topics: Mapping[str, KnownTopic]) -> dict[str, AccessError]:
    """Return the errors of topics that may not be read, by name."""
    return {
        name: AccessError(
            f"reading topic {name}: not authorised", hint=RIGHTS, cause="topic_rights"
        )
        for name, topic in topics.items()
        if not topic.may_read
    }


def write_denied(topics: Mapping[str, KnownTopic]) -> dict[str, AccessError]:
    """Return the errors of topics that may not be written, by name."""
    return {
        name: AccessError(
            f"writing to topic {name}: not authorised", hint=RIGHTS, cause="topic_rights"
        )
        for name, topic in topics.items()
        if not topic.may_write
    }


def other_topics(known: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the topics whose IDs differ from the known ones."""
    return sorted(name for name, one in known.items() if now.get(name, one) != one)
