"""Kafka's errors and ours."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient

from gateway.core.errors import (
    AccessError,
    ConfigError,
    FatalError,
    FencedError,
    GatewayError,
    TransientError,
)
from gateway.sink.clients.failures import classify_kafka_error
from gateway.sink.clients.identity import SlotIdentity
from gateway.sink.clients.properties import make_client


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError._FENCED, FencedError, "took over"),
        (KafkaError.PRODUCER_FENCED, FencedError, "took over"),
        (KafkaError.MSG_SIZE_TOO_LARGE, FatalError, "topic t"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AccessError, "not authorised"),
        (KafkaError._AUTHENTICATION, AccessError, "SASL"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, FatalError, "missing"),
        (KafkaError.INVALID_RECORD, FatalError, "refuses"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, ConfigError, "kafka.transaction.timeout.ms"),
        (KafkaError._TIMED_OUT, TransientError, "bootstrap.servers"),
        (KafkaError._TRANSPORT, TransientError, "bootstrap.servers"),
        (KafkaError.NOT_ENOUGH_REPLICAS, TransientError, "committing"),
    ],
)
def test_code_decides_whether_it_may_pass(code: int, kind: type[GatewayError], says: str) -> None:
    error = classify_kafka_error(KafkaError(code), doing="committing", topic="t")

    assert type(error) is kind
    assert says in str(error)


def test_topic_is_read_from_the_clients_text() -> None:
    text = "ProduceRequest for s.public.t [3] with 1 message(s) failed: too large"

    error = classify_kafka_error(
        KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, text), doing="committing"
    )

    assert "topic s.public.t" in str(error)


def test_transactional_id_follows_from_cluster_database_and_slot() -> None:
    identity = SlotIdentity("7000000000000000001", "shop", "pgsluice")

    assert identity.transactional_id == "pgsluice-7000000000000000001-shop-pgsluice"


def test_a_password_that_is_not_set_is_named() -> None:
    # What reads the environment has left it out.
    lacking = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    with pytest.raises(ConfigError, match=r"sasl\.username and sasl\.password must be set") as seen:
        make_client(AdminClient, {"bootstrap.servers": "127.0.0.1:1", **lacking})
    assert "PGSLUICE_KAFKA__SASL_PASSWORD_FILE" in str(seen.value.hint)
