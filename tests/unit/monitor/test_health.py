"""Alive is what a restart cannot mend; ready is what can be relied on."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.watermark import CopyState, Refusal
from gateway.monitor.health import doing, has_started, lag_seconds, why_not_alive, why_not_ready
from gateway.observe import Phase
from tests.unit.monitor.figures import COPIES, figures, loop_state


def test_a_loop_that_turns_and_hears_its_server_is_alive_and_ready() -> None:
    assert why_not_alive(figures(), 51.0, 0.0) == []
    assert why_not_ready(figures(), 51.0, 0.0) == []


def test_a_loop_that_does_not_turn_is_not_alive() -> None:
    (why,) = why_not_alive(figures(), 200.0, 0.0)

    assert why == "the loop has made no progress for 150 s"


def test_a_stream_that_should_have_been_given_up_is_not_alive() -> None:
    (why,) = why_not_alive(figures(at=180.0, phase_since=50.0), 181.0, 0.0)

    assert why == "no message from the server for 131 s"


def test_silence_before_the_stream_began_does_not_count() -> None:
    assert why_not_alive(figures(at=180.0, phase_since=170.0), 181.0, 0.0) == []


@pytest.mark.parametrize("phase", ["starting", "standby", "retrying", "stopped"])
def test_nothing_but_a_stuck_stream_is_a_reason_to_restart(phase: Phase) -> None:
    assert why_not_alive(figures(phase=phase), 1_000.0, 0.0) == []


@pytest.mark.parametrize(
    ("phase", "ready"),
    [("starting", False), ("standby", True), ("retrying", False), ("stopped", False)],
)
def test_who_streams_or_stands_by_is_ready(phase: Phase, ready: bool) -> None:
    assert (why_not_ready(figures(phase=phase), 51.0, 0.0) == []) == ready


def test_a_standby_that_does_not_take_over_is_not_ready_and_has_started() -> None:
    standby = figures(phase="standby", takeover_refused="why")

    assert why_not_ready(standby, 51.0, 0.0) == ["this standby does not take over: why"]
    assert has_started(standby)
    assert not has_started(figures(phase="starting"))


def test_who_has_not_begun_is_alive_and_not_ready() -> None:
    assert why_not_alive(None, 1.0, 0.0) == []
    assert why_not_ready(None, 1.0, 0.0) == ["starting"]


@pytest.mark.parametrize(
    ("phase", "loop", "lag"),
    [
        ("streaming", {"waiting_since": None}, 0.0),
        ("streaming", {"waiting_since": 990.0}, 20.0),
        ("retrying", {"waiting_since": None}, 10.0),
        ("retrying", {"waiting_since": 990.0}, 20.0),
        ("standby", {"waiting_since": 990.0}, None),
    ],
)
def test_the_lag_counts_from_the_oldest_that_waits_or_from_when_it_was_known_last(
    phase: Phase, loop: dict[str, Any], lag: float | None
) -> None:
    assert lag_seconds(figures(phase=phase, loop=loop_state(**loop)), 1_010.0) == lag


def test_what_a_gateway_does_is_its_phase_and_how_many_tables_are_copied() -> None:
    held = CopyState("nsw", "public", "v", "held", reason="no key")

    assert doing(None) == "starting"
    assert doing(figures(phase="standby")) == "standby"
    assert doing(figures(loop=None)) == "streaming"
    assert doing(figures()) == "streaming, 1 of 2 tables copied"
    assert doing(figures(loop=loop_state(copies=COPIES[:1]))) == "streaming, all tables copied"
    assert (
        doing(figures(loop=loop_state(copies=(*COPIES[:1], held))))
        == "streaming, 1 of 2 tables copied, 1 held"
    )
    missing = CopyState("nsw", "public", "w", "missing", reason="dropped")
    assert (
        doing(figures(loop=loop_state(copies=(*COPIES[:1], held, missing))))
        == "streaming, 1 of 3 tables copied, 1 held, 1 missing"
    )


def test_who_is_too_far_behind_is_not_ready_and_names_what_is_away() -> None:
    late = figures(
        loop=loop_state(waiting_since=990.0),
        away="Kafka does not answer: refused",
        away_since=1_005.0,
    )

    assert why_not_ready(late, 51.0, 1_010.0, max_lag_s=30.0) == []
    assert why_not_ready(late, 51.0, 1_010.0, max_lag_s=0.0) == []
    assert why_not_ready(late, 51.0, 1_010.0, max_lag_s=10.0) == [
        "20 s behind the source, 10 s are allowed (monitor.max_lag_s): "
        "Kafka does not answer: refused"
    ]


def test_a_kafka_that_is_away_is_a_reason_once_it_has_been_for_too_long_without_a_lag() -> None:
    away = figures(away="Kafka does not answer: refused", away_since=990.0)

    assert why_not_ready(away, 51.0, 1_010.0, max_lag_s=30.0) == []
    assert why_not_ready(away, 51.0, 1_010.0, max_lag_s=0.0) == []
    assert why_not_ready(away, 51.0, 1_010.0, max_lag_s=10.0) == ["Kafka does not answer: refused"]


def test_refused_definitions_and_what_is_tried_again_are_reasons_not_to_be_ready() -> None:
    refusal = Refusal(1_795_579_200_000, 1_795_579_205_000, "", 'relation "t2" does not exist')

    assert why_not_ready(figures(refusal=refusal), 51.0, 0.0) == [
        'changed definitions are refused since 2026-11-25 04:00:00 UTC: relation "t2" does not '
        "exist"
    ]
    assert why_not_ready(figures(phase="retrying", away="connection lost"), 51.0, 0.0) == [
        "retrying: connection lost"
    ]
