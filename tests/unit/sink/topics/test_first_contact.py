"""How long brokers that refuse access, or are away, are asked for metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from gateway.core.errors import AccessError, GatewayError, TransientError
from gateway.sink.clients.client_errors import ErrorCallback
from gateway.sink.topics.topics import _Metadata
from schemas.kafka_errors import PATIENCE_S

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._metadata import ClusterMetadata

REFUSED: Final = KafkaError(KafkaError._AUTHENTICATION, "sasl_ssl://a:1/bootstrap: wrong password")
DOWN: Final = KafkaError(KafkaError._TRANSPORT, "sasl_ssl://a:1/bootstrap: Connection refused")


class Unanswered:
    """A client whose requests time out, by a clock that nothing else moves.

    Args:
        reported: Errors of its connections, by the second at which they come.
    """

    def __init__(self, reported: Mapping[float, KafkaError], errors: ErrorCallback) -> None:
        self.now = 0.0
        self.answers = False
        self._reported = dict(reported)
        self._errors = errors

    def list_topics(self, name: str | None, timeout: float) -> ClusterMetadata:
        if self.answers:
            return cast("ClusterMetadata", name)
        self.now += timeout
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, timeout: float) -> int:
        """Call back with the errors so far, as `list_topics` does not."""
        due = [at for at in sorted(self._reported) if at <= self.now]
        for at in due:
            self._errors(self._reported.pop(at))
        return len(due)


def given_up(
    monkeypatch: pytest.MonkeyPatch,
    reported: Mapping[float, KafkaError],
    *,
    await_restart: bool = True,
) -> tuple[GatewayError, float]:
    """The error of a request that may take a minute, and after how many seconds it comes."""
    errors = ErrorCallback()
    client = Unanswered(reported, errors)
    monkeypatch.setattr("time.monotonic", lambda: client.now)
    metadata = _Metadata(cast("AdminClient", client), errors, 60.0, await_restart)
    with pytest.raises(GatewayError) as raised:
        metadata._ask("t")
    return raised.value, client.now


def test_a_refusal_that_lasts_is_said_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    error, after_s = given_up(monkeypatch, {0: REFUSED})

    assert isinstance(error, AccessError) and "wrong password" in error.message
    assert PATIENCE_S <= after_s < PATIENCE_S + 1


def test_a_broker_that_comes_up_late_has_as_long_to_know_its_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error, after_s = given_up(monkeypatch, {0: DOWN, 10: REFUSED})

    assert isinstance(error, AccessError)
    assert 10 + PATIENCE_S <= after_s <= 10 + 2 * PATIENCE_S


def test_a_refusal_before_a_broker_goes_down_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    error, after_s = given_up(monkeypatch, {0: REFUSED, 1: DOWN})

    assert isinstance(error, TransientError)
    assert after_s >= 60


def test_a_broker_that_is_away_is_not_waited_for_where_none_is_to_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error, after_s = given_up(monkeypatch, {0: DOWN}, await_restart=False)

    assert isinstance(error, TransientError) and "Connection refused" in error.message
    assert PATIENCE_S <= after_s < PATIENCE_S + 1


def test_a_refusal_is_forgotten_once_there_is_an_answer() -> None:
    errors = ErrorCallback()
    errors(REFUSED)
    client = Unanswered({0: DOWN}, errors)
    client.answers = True

    _Metadata(cast("AdminClient", client), errors, 60.0, await_restart=True)._ask("t")

    assert errors.last is None
