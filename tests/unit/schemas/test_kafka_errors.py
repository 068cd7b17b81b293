"""Errors that clients report beside the results of calls: refusals, and when they count."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Final

import pytest
from confluent_kafka import KafkaError

from schemas import kafka_errors
from schemas.kafka_errors import LastError, is_refusal, wait_for_answer

REFUSALS: Final = (
    KafkaError._AUTHENTICATION,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.SASL_AUTHENTICATION_FAILED,
)


def test_only_refused_logins_are_refusals() -> None:
    codes = {
        value
        for name, value in vars(KafkaError).items()
        if isinstance(value, int) and name.lstrip("_").isupper()
    }

    assert {code for code in codes if is_refusal(KafkaError(code, "no"))} == set(REFUSALS)
    assert not is_refusal(KafkaError(KafkaError._AUTHENTICATION, "Failed to acquire a token"))


def test_a_handshake_that_was_cut_short_is_no_refusal() -> None:
    assert not is_refusal(KafkaError(KafkaError._SSL, "SSL handshake failed: Disconnected"))
    assert is_refusal(
        KafkaError(KafkaError._SSL, "certificate verify failed: unable to get issuer")
    )


@pytest.mark.parametrize(
    "code", [KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE]
)
def test_an_error_that_says_nothing_does_not_replace_one_that_does(code: int) -> None:
    errors = LastError[KafkaError]()
    refused = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
    errors(refused)
    errors(KafkaError(code))

    assert errors.last is refused


def test_brokers_may_refuse_for_a_while_and_then_the_request_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(kafka_errors, "_STEP_S", 0.0)
    errors = LastError[KafkaError]()
    polled: list[float] = []

    def poll(timeout_s: float) -> None:
        polled.append(now[0])
        errors(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
        now[0] += 1

    refused = wait_for_answer(Future(), poll, errors, 30.0)

    assert refused is not None and refused.str() == "wrong password"
    assert polled == [0.0, 1.0, 2.0, 3.0]


def test_a_request_without_an_answer_ends_in_time() -> None:
    with pytest.raises(TimeoutError):
        wait_for_answer(Future(), lambda _: None, LastError[KafkaError](), 0.0)
