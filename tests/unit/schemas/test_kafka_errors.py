"""Errors that clients report beside the results of calls: refusals, and when they count."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

import pytest
from confluent_kafka import KafkaError

from schemas import kafka_errors
from schemas.kafka_errors import (
    PATIENCE_S,
    LastError,
    is_lost_connection,
    is_refusal,
    wait_for_answer,
)

REFUSALS: Final = (
    KafkaError._AUTHENTICATION,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.SASL_AUTHENTICATION_FAILED,
)
HANDSHAKE: Final = "sasl_ssl://a:1/bootstrap: SASL PLAIN mechanism handshake failed"
REFUSED: Final = KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://a:1/bootstrap: wrong password")
DOWN: Final = "Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)"


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
    for local in ("Broker transport failure", "Timed out"):
        text = f"{HANDSHAKE}: Local: {local}: broker's supported mechanisms: (n/a)"
        assert not is_refusal(KafkaError(KafkaError._AUTHENTICATION, text))
    text = f"{HANDSHAKE}: Broker: Unsupported SASL mechanism: broker's supported mechanisms: GSSAPI"
    assert is_refusal(KafkaError(KafkaError._AUTHENTICATION, text))


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("Send failed: Broken pipe (after 0ms in state UP)", True),
        ("Receive failed: Connection reset by peer (after 3ms in state UP)", True),
        ("Disconnected (after 3ms in state APIVERSION_QUERY)", True),
        (DOWN, False),
    ],
)
def test_a_connection_that_was_open_is_lost(text: str, lost: bool) -> None:
    assert is_lost_connection(KafkaError(KafkaError._TRANSPORT, f"a:1/1: {text}")) is lost


@pytest.mark.parametrize(
    "code", [KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE]
)
def test_an_error_that_says_nothing_does_not_replace_one_that_does(code: int) -> None:
    errors = LastError[KafkaError]()
    refused = KafkaError(KafkaError._AUTHENTICATION, "wrong password")
    errors(refused)
    errors(KafkaError(code))

    assert errors.last is refused


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, of which none passes by itself."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(kafka_errors, "_STEP_S", 0.0)
    return now


def refused_after(now: list[float], reported: Mapping[int, KafkaError], timeout_s: float) -> float:
    """Wait for an answer while errors are reported at some seconds; the seconds until refused."""
    errors = LastError[KafkaError]()
    began_at = now[0]

    def poll(timeout_s: float) -> None:
        if (error := reported.get(round(now[0] - began_at))) is not None:
            errors(error)
        now[0] += 1

    refused = wait_for_answer(Future(), poll, errors, timeout_s)
    assert refused is REFUSED
    return now[0] - began_at


def test_brokers_may_refuse_for_a_while(now: list[float]) -> None:
    refused = dict.fromkeys(range(30), REFUSED)

    assert refused_after(now, refused, 30) == PATIENCE_S


def test_the_while_begins_with_the_first_refusal(now: list[float]) -> None:
    down = KafkaError(KafkaError._TRANSPORT, f"sasl_ssl://a:1/1: {DOWN}")

    assert refused_after(now, {0: down, 10: REFUSED}, 30) == 10 + PATIENCE_S


@pytest.mark.parametrize(
    "between",
    [
        f"sasl_ssl://a:1/1: {DOWN}",
        f"{HANDSHAKE}: Local: Broker transport failure: broker's supported mechanisms: (n/a)",
        "Failed to acquire SASL OAUTHBEARER token: no answer",
    ],
)
def test_an_error_that_says_something_else_begins_it_again(now: list[float], between: str) -> None:
    reported = {
        0: REFUSED,
        3: KafkaError(KafkaError._AUTHENTICATION if "SASL" in between else -195, between),
    }
    with pytest.raises(TimeoutError):
        refused_after(now, reported, 20)

    assert refused_after(now, {**reported, 9: REFUSED}, 20) == 9 + PATIENCE_S


@pytest.mark.parametrize(
    "beside",
    [f"sasl_ssl://b:1/2: {DOWN}", "sasl_ssl://a:1/1: Disconnected (after 3ms in state UP)"],
)
def test_a_broker_that_is_down_beside_one_that_refuses_does_not(
    now: list[float], beside: str
) -> None:
    down = KafkaError(KafkaError._TRANSPORT, beside)

    assert refused_after(now, {0: REFUSED, 1: down, 3: down}, 30) == PATIENCE_S


def test_a_name_with_an_address_that_is_down_refuses_at_the_other(now: list[float]) -> None:
    down = KafkaError(KafkaError._TRANSPORT, f"sasl_ssl://a:1/bootstrap: {DOWN}")
    in_turn = {second: (REFUSED, down)[second % 3 % 2] for second in range(10)}

    assert PATIENCE_S <= refused_after(now, in_turn, 30) < PATIENCE_S + 3


def test_a_request_has_time_to_log_in_after_an_earlier_refusal(now: list[float]) -> None:
    errors = LastError[KafkaError]()
    errors(REFUSED)
    now[0] += 60
    began_at = now[0]

    def poll(timeout_s: float) -> None:
        now[0] += 1

    assert wait_for_answer(Future(), poll, errors, 30) is REFUSED
    assert now[0] - began_at == PATIENCE_S
    errors.clear()
    assert errors.refusal() is None


def test_a_request_without_an_answer_ends_in_time() -> None:
    with pytest.raises(TimeoutError):
        wait_for_answer(Future(), lambda _: None, LastError[KafkaError](), 0.0)
