"""What librdkafka says of its connections: kept for the error, and not repeated in the log."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from gateway.core.errors import AccessError, GatewayError, TransientError
from gateway.sink.clients.client_errors import ErrorCallback, RepeatFilter
from gateway.sink.clients.failures import classify_kafka_error
from tests.support.gateway.fakes import ManualClock


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error: wrong password", AccessError),
        (KafkaError._SSL, "SSL handshake failed: certificate verify failed", AccessError),
        (KafkaError._SSL, "SSL handshake failed: tlsv1 alert unknown ca", AccessError),
        (KafkaError._SSL, "SSL handshake failed: Disconnected", TransientError),
        (KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token", TransientError),
        (KafkaError._TRANSPORT, "Connect to ipv4#10.0.0.1:9092 failed: refused", TransientError),
    ],
)
def test_a_time_out_is_classified_by_what_it_is_about(
    code: int, text: str, kind: type[GatewayError]
) -> None:
    connection_errors = ErrorCallback()
    connection_errors(KafkaError(code, text))
    connection_errors(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))

    error = classify_kafka_error(
        KafkaError(KafkaError._TIMED_OUT), doing="committing", reported=connection_errors.last
    )

    assert type(error) is kind
    assert text in str(error)


def test_an_error_that_says_what_it_is_about_is_not_blamed_on_connections() -> None:
    refused = KafkaError(KafkaError._AUTHENTICATION, "wrong password")

    error = classify_kafka_error(
        KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), doing="committing", topic="t", reported=refused
    )

    assert "larger than Kafka accepts (topic t)" in str(error)


def test_a_fatal_error_of_the_producer_is_retried_with_another_one() -> None:
    error = classify_kafka_error(
        KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "sequence", True), doing="producing"
    )

    assert type(error) is TransientError


def line(text: str) -> logging.LogRecord:
    return logging.LogRecord(
        "gateway.sink.clients.properties", logging.ERROR, "", 0, text, (), None
    )


def test_lines_that_differ_in_numbers_alone_pass_once_in_a_minute_and_are_counted() -> None:
    clock = ManualClock(step_s=0)
    gathered = RepeatFilter(60, clock)

    first = line("connect to port 7 failed (after 7 ms)")
    assert gathered.filter(first)
    assert first.levelno == logging.INFO  # a remark in passing, unless it comes again
    passed = [gathered.filter(line(f"connect to port {n} failed (after {n} ms)")) for n in range(5)]
    other = gathered.filter(line("fenced"))
    clock.advance(60)
    again = line("connect to port 9 failed (after 9 ms)")

    assert passed == [False] * 5
    assert other
    assert gathered.filter(again)
    assert again.getMessage() == "connect to port 9 failed (after 9 ms) (5 more like it since)"
    assert again.levelno == logging.ERROR


def test_a_remark_that_lasts_is_a_warning_after_some_seconds_and_one_in_passing_never() -> None:
    clock = ManualClock(step_s=0)
    gathered = RepeatFilter(60, clock, lasts_s=5)
    remarks = [line("coordinator load in progress") for _ in range(8)]
    passed = []
    for remark in remarks:
        passed.append(gathered.filter(remark))
        clock.advance(1)
    clock.advance(61)
    later = line("coordinator load in progress")

    shown = [(n, r.levelname) for n, r in enumerate(remarks) if passed[n]]
    assert shown == [(0, "INFO"), (5, "ERROR")]
    assert gathered.filter(later)
    assert later.levelno == logging.INFO
