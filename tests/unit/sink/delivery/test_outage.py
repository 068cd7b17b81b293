"""When Kafka is said to be away, and what of it is said."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from gateway.sink.delivery.outage import OutageDetector


class Sight:
    """An `OutageDetector` with a clock that only its probes move."""

    def __init__(self) -> None:
        self.now = 100.0
        self.reported: list[str] = []
        self.away = OutageDetector(self.reported.append, lambda: self.now)

    def look(self, *, answered: bool = False, reason: str = "refused") -> None:
        """Wait for the pause, and look for as long as that may take."""
        self.now += self.away.pause_s + (0 if answered else self.away.probe_timeout_s)
        self.away.record_probe(answered=answered, reason=reason)

    def look_until_named(self) -> float:
        """How long it took."""
        began = self.now
        while not self.away.named:
            self.look()
        return self.now - began


def test_kafka_is_named_when_no_look_was_answered_for_a_while() -> None:
    sight = Sight()

    assert 8 <= sight.look_until_named() <= 15
    assert sight.reported == ["Kafka does not answer: refused"]


@pytest.mark.parametrize("silent_looks", [1, 2, 3])
def test_looks_without_an_answer_do_not_count_once_one_was_answered(silent_looks: int) -> None:
    sight = Sight()
    for _ in range(20):
        for _ in range(silent_looks):
            sight.look()
        sight.look(answered=True)

    assert not sight.away.named
    assert sight.reported == []


def test_who_is_silent_is_asked_more_often_and_given_longer() -> None:
    away = Sight().away
    pause_s, probe_timeout_s = away.pause_s, away.probe_timeout_s

    away.record_probe(answered=False, reason="refused")

    assert away.pause_s < pause_s
    assert away.probe_timeout_s > probe_timeout_s


def test_it_is_said_once_when_it_begins_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sight = Sight()
    with caplog.at_level(logging.INFO, "gateway.sink.delivery.outage"):
        sight.away.record_recovery()
        sight.look_until_named()
        sight.look(reason="timed out")
        sight.away.record_recovery()
        sight.away.record_recovery()

    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
    assert sight.reported == [
        "",
        "Kafka does not answer: refused",
        "Kafka does not answer: timed out",
        "",
        "",
    ]


def test_what_waits_and_what_failed_is_over_in_the_same_words(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures: tuple[Callable[[OutageDetector], None], ...] = (
        lambda away: away.record_wait("refused", give_up_in_s=270.0),
        lambda away: away.record_failure("refused"),
    )
    for name in failures:
        sight = Sight()
        caplog.clear()
        with caplog.at_level(logging.INFO, "gateway.sink.delivery.outage"):
            name(sight.away)
            sight.look(answered=True)  # what waits is not done yet
            assert sight.away.named
            sight.away.record_recovery()

        assert sight.reported == ["Kafka does not answer: refused", ""]
        assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
