"""IDs of topics: by them a topic that was made again differs from the one that had its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._topic import TopicDescription

from gateway.errors import TransientError
from gateway.sink.clients import admin_properties, make_client
from gateway.sink.failures import classify_kafka_error

__all__ = ["other_topics", "read_topic_ids"]

_NONE: Final = str(Uuid(0, 0))
_GRACE_S: Final = 1.0


def read_topic_ids(
    kafka: Mapping[str, str | int | bool], topics: Iterable[str], *, timeout_s: float = 10.0
) -> dict[str, str]:
    """Return Kafka's IDs of those topics that exist, by name; brokers before 2.8 have none.

    Raises:
        TransientError: Kafka does not answer in time.
        FatalError: not authorised.
    """
    names = sorted(topics)
    if not names:
        return {}
    admin = make_client(AdminClient, admin_properties(kafka))
    futures: Mapping[str, Future[TopicDescription]] = admin.describe_topics(
        TopicCollection(names), request_timeout=timeout_s
    )
    found: dict[str, str] = {}
    for name, future in futures.items():
        doing = f"describing topic {name}"
        try:
            found[name] = str(future.result(timeout_s + _GRACE_S).topic_id)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise classify_kafka_error(error, doing=doing, topic=name) from None
        except TimeoutError:
            raise TransientError(f"{doing}: no answer within {timeout_s:.0f} s") from None
    return {name: one for name, one in found.items() if one != _NONE}


def other_topics(known: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the topics that are not the ones whose IDs are known."""
    return sorted(name for name, one in known.items() if now.get(name, one) != one)
