"""Properties of the Kafka clients: defaults, the user's settings, and fixed values."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from gateway.core.errors import ConfigError
from gateway.core.shortage import shortage
from gateway.sink.clients.client_errors import ErrorCallback, RepeatFilter
from gateway.sink.clients.token_clients import kept_admin, token_failure, with_callback
from schemas.kafka_tokens import PLUGIN

__all__ = [
    "DEFAULT_BATCH_BYTES",
    "DEFAULT_COMPRESSION",
    "admin_properties",
    "connect_first",
    "consumer_properties",
    "make_client",
    "producer_properties",
    "sender_properties",
]

_FIXED: Final = {
    "transactional.id": "it is derived from the slot, so that two gateways cannot both write",
    "enable.idempotence": "exactly-once delivery needs it",
    "acks": "exactly-once delivery needs acks=all",
    "request.required.acks": "exactly-once delivery needs acks=all",
    "enable.gapless.guarantee": "exactly-once delivery depends on it",
    "isolation.level": "the watermark is read with read_committed",
    "partitioner": "the gateway chooses the partition: docs/envelope.md",
    "delivery.report.only.error": "the gateway asks for the delivery reports that it needs",
    "enable.auto.commit": "the gateway keeps no consumer offsets",
    "enable.auto.offset.store": "the gateway keeps no consumer offsets",
    "enable.partition.eof": "the end of the progress topic must be seen",
    "max.in.flight": "exactly-once delivery limits it to 5, the client's default here",
    "max.in.flight.requests.per.connection": "exactly-once delivery limits it",
    "retries": "the client retries until delivery.timeout.ms",
    "message.send.max.retries": "the client retries until delivery.timeout.ms",
}

DEFAULT_BATCH_BYTES: Final = 1_000_000
DEFAULT_COMPRESSION: Final = "lz4"

_QUEUE_KBYTES: Final = 16_384

_CONNECTION_DEFAULTS: Final[Mapping[str, str | int | bool]] = {
    # A dead open connection is given up after this time; with the client's default of 60 s, a later
    # request would need minutes. Kafka answers far sooner, or has a reason not to.
    "socket.timeout.ms": 15_000,
    "socket.keepalive.enable": True,
    "socket.connection.setup.timeout.ms": 10_000,
    # A new client asks its bootstrap server for the brokers, and may connect to one of them only
    # after half of this; a start needs some fifteen clients. Doubled at each failure.
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 2_000,
    # Topics are created by the gateway, with their settings, never by a metadata request.
    "allow.auto.create.topics": False,
}

_PRODUCER_DEFAULTS: Final[Mapping[str, str | int | bool]] = {
    **_CONNECTION_DEFAULTS,
    "request.timeout.ms": 15_000,
    # A batch is flushed by its commit; a longer linger would only delay that.
    "linger.ms": 5,
    "batch.size": DEFAULT_BATCH_BYTES,
    "compression.type": DEFAULT_COMPRESSION,
    # The limit counts payload only; librdkafka's overhead (mainly headers) exceeds a short row. A
    # few hundred milliseconds' worth of records is enough for full throughput.
    "queue.buffering.max.kbytes": _QUEUE_KBYTES,
    "queue.buffering.max.messages": 15_000,
    "transaction.timeout.ms": 900_000,
}

_ONLY_PRODUCER: Final = frozenset(
    {
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.timeout.ms",
        "linger.ms",
        "message.timeout.ms",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "request.timeout.ms",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
    }
)

_CONNECT_S: Final = 1.0
"""Seconds to wait for a connection before the next request is made regardless."""

_logger: Final = logging.getLogger(__name__)
_logger.addFilter(RepeatFilter())


def producer_properties(
    user: Mapping[str, str | int | bool], transactional_id: str
) -> dict[str, Any]:
    """Return the transactional producer's properties: defaults, then `user`, then fixed values.

    Raises:
        ConfigError: `user` sets a property that must not be changed.
    """
    _refuse_fixed(user)
    return {
        **_PRODUCER_DEFAULTS,
        **_request_limits(user),
        **_queue_limits(user),
        **user,
        "transactional.id": transactional_id,
        "enable.idempotence": True,
        "acks": "all",
        "logger": _logger,
    }


def sender_properties(user: Mapping[str, str | int | bool]) -> dict[str, Any]:
    """Return properties for a producer without Kafka transactions, besides the gateway's own.

    Raises:
        ConfigError: `user` sets a property that must not be changed.
    """
    transactional = ("transactional.id", "transaction.timeout.ms")
    properties = producer_properties(user, "")
    return {name: value for name, value in properties.items() if name not in transactional}


def _request_limits(user: Mapping[str, str | int | bool]) -> dict[str, int]:
    """Return the limits that must be below `transaction.timeout.ms` if the user has lowered that.

    librdkafka's own check reports a value that is not a number.
    """
    with contextlib.suppress(KeyError, ValueError):
        most = int(user["transaction.timeout.ms"]) - 100
        return {name: min(15_000, most) for name in ("socket.timeout.ms", "request.timeout.ms")}
    return {}


def _queue_limits(user: Mapping[str, str | int | bool]) -> dict[str, int]:
    """Return queue limits with room for two records of maximum size; a larger one never fits."""
    with contextlib.suppress(KeyError, ValueError):
        return {
            "queue.buffering.max.kbytes": max(
                _QUEUE_KBYTES, 2 * int(user["message.max.bytes"]) // 1024
            )
        }
    return {}


def consumer_properties(
    user: Mapping[str, str | int | bool], *, follows: bool = False
) -> dict[str, Any]:
    """Return properties for reading a topic without a consumer group.

    `follows` is for a reader that goes on after the end of the topic.

    Raises:
        ConfigError: `user` sets a property that must not be changed.
    """
    return {
        # librdkafka requires a group id; nothing is ever committed under it.
        "group.id": "pgsluice",
        # The end of a topic shows as an empty response, which the broker delays this long.
        "fetch.wait.max.ms": 50 if follows else 10,
        **admin_properties(user),
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }


def admin_properties(user: Mapping[str, str | int | bool]) -> dict[str, Any]:
    """Return properties for the admin client: `user` without producer properties.

    Raises:
        ConfigError: `user` sets a property that must not be changed.
    """
    _refuse_fixed(user)
    kept = {name: value for name, value in user.items() if name not in _ONLY_PRODUCER}
    return {**_CONNECTION_DEFAULTS, **kept, "logger": _logger}


_Client = TypeVar("_Client")
_PROPERTY_IN_TEXT: Final = re.compile(r'property:? "([a-z0-9._]+)"')
_LACKING: Final = "sasl.username and sasl.password must be set"
"""Text of librdkafka without a value in it; the password is easily left out of the environment."""


def make_client(
    kind: Callable[[dict[str, Any]], _Client],
    properties: Mapping[str, Any],
    errors: ErrorCallback | None = None,
) -> _Client:
    """Construct a client of `kind` that reports its errors to `errors`.

    Raises:
        ConfigError: librdkafka does not know a property, or rejects its value. The message names
            the property and omits the value, which may be a password. Or the plugin for tokens
            cannot work.
        TransientError: threads or descriptors have run out, or there is no token now.
    """
    if PLUGIN not in properties:
        return _construct(kind, properties, errors)
    if kind is AdminClient:
        return kept_admin(properties, errors, _construct)  # type: ignore[return-value]
    return _construct(kind, with_callback(properties), errors)


def _construct(
    kind: Callable[[dict[str, Any]], _Client],
    properties: Mapping[str, Any],
    errors: Callable[[KafkaError], None] | None,
) -> _Client:
    try:
        return kind({**properties, **({} if errors is None else {"error_cb": errors})})
    except (KafkaException, TypeError, ValueError) as error:
        if passing := shortage(error) or token_failure(error):
            raise passing from None
        if _LACKING in str(error):
            raise ConfigError(
                _LACKING,
                key="[kafka]",
                hint="set the password by PGSLUICE_KAFKA__SASL_PASSWORD_FILE in the environment",
            ) from None
        match = _PROPERTY_IN_TEXT.search(str(error))
        raise ConfigError(
            "librdkafka does not accept this property or its value",
            key=f"kafka.{match[1]}" if match else "[kafka]",
            hint="see CONFIGURATION.md of librdkafka for the names and values",
        ) from None


def connect_first(client: Producer | Consumer | AdminClient, topic: str) -> None:
    """Let a new client connect before its first request, which reports any error.

    Without a connection, librdkafka looks for a coordinator, or for the leader of a partition,
    half a second to three seconds later than it could. The first answer may come from the bootstrap
    connection, which is closed then; the second one comes from the broker itself.
    """
    with contextlib.suppress(KafkaException):
        for _ in range(2):
            client.list_topics(topic, timeout=_CONNECT_S)


def _refuse_fixed(user: Mapping[str, str | int | bool]) -> None:
    for name in user:
        if name in _FIXED:
            raise ConfigError(
                "must not be set", key=f"kafka.{name}", hint=f"{_FIXED[name]}; remove the line"
            )
