"""Classes of the broker's errors about one topic."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from devkit.embedded.processes import free_port
from schemas.settings.tables import ConsumerTable
from spark_consumer.errors import FatalConsumerError, TransientConsumerError
from spark_consumer.kafka.topics import Topics, topic_failure
from spark_consumer.settings import with_connections
from spark_consumer.spark.failures import TableTransientError


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_change_of_leader_may_pass(code: int) -> None:
    failure = topic_failure("shop.public.orders", KafkaException(KafkaError(code)))

    assert isinstance(failure, TableTransientError)
    assert "shop.public.orders" in str(failure)


def test_a_refusal_is_final_and_an_answer_that_is_missing_is_nobodys_fault() -> None:
    refused = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    absent = KafkaException(KafkaError(KafkaError._TIMED_OUT))

    assert isinstance(topic_failure("shop.public.orders", refused), FatalConsumerError)
    assert topic_failure("shop.public.orders", absent) is absent


def test_a_refusal_from_before_an_answer_is_not_why_a_later_request_gets_none() -> None:
    kafka = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    topics = Topics(with_connections(ConsumerTable(), kafka, {"url": "http://x"}))
    topics._errors(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error"))

    assert topics.describe([]) == {}
    assert "does not answer" in str(topics._failure(KafkaError(KafkaError._TIMED_OUT)))


def test_brokers_that_cannot_be_reached_are_said_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_consumer.kafka.topics._TIMEOUT_S", 2.0)
    kafka = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    topics = Topics(with_connections(ConsumerTable(), kafka, {"url": "http://x"}))

    with pytest.raises(TransientConsumerError, match=r"does not answer: .*Connection refused"):
        topics.describe(["shop.public.orders"])
