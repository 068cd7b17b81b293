"""How long a producer waits for brokers that refuse access."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import KafkaError

from devkit.embedded.processes import free_port
from gateway.core.errors import AccessError
from gateway.sink.delivery.producer import TransactionalProducer
from schemas.kafka_errors import PATIENCE_S

REFUSED: Final = KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://a:1/bootstrap: wrong password")
OTHERS: Final = KafkaError(KafkaError._TRANSPORT, "sasl_ssl://b:1/2: Connection refused")
NO_ANSWER: Final = KafkaError(KafkaError._TIMED_OUT)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, of which none passes by itself."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def producer(now: list[float]) -> Iterator[TransactionalProducer]:
    made = TransactionalProducer(
        {"bootstrap.servers": f"127.0.0.1:{free_port()}"},
        "id",
        report=lambda *_: None,
        late=lambda: False,
        clock=lambda: now[0],
    )
    yield made
    made.close()


def test_the_wait_begins_with_the_first_refusal(
    now: list[float], producer: TransactionalProducer
) -> None:
    began_at = now[0]
    now[0] += 60
    producer.connection_errors(REFUSED)
    producer._go_on(NO_ANSWER, "connecting", began_at)
    now[0] += PATIENCE_S
    producer.connection_errors(OTHERS)  # of another broker, which is not up either

    with pytest.raises(AccessError, match="wrong password"):
        producer._go_on(NO_ANSWER, "connecting", began_at)


def test_a_call_has_time_to_log_in_after_an_earlier_refusal(
    now: list[float], producer: TransactionalProducer
) -> None:
    producer.connection_errors(REFUSED)
    now[0] += 60
    began_at = now[0]
    producer._go_on(NO_ANSWER, "connecting", began_at)
    now[0] += PATIENCE_S

    with pytest.raises(AccessError, match="wrong password"):
        producer._go_on(NO_ANSWER, "connecting", began_at)
