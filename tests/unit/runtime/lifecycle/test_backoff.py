"""What may pass is tried again with growing pauses, and not for ever."""

from __future__ import annotations

import pytest

from gateway.core.errors import FatalError, FencedError, TransientError
from gateway.runtime.lifecycle.backoff import Retries

LOST = TransientError("the connection is gone")
FENCED = FencedError("another gateway took over")


def retries(retry_for_s: float = 300.0) -> Retries:
    return Retries(retry_for_s, "pgsluice")


def test_pauses_grow_to_a_bound() -> None:
    r = retries()

    pauses = [r.after(LOST, now=100.0, worked=False, stood_by=False) for _ in range(8)]

    assert pauses == [0.5, 1, 2, 4, 8, 15, 15, 15]


@pytest.mark.parametrize(("worked", "stood_by"), [(True, False), (False, True)])
def test_pauses_begin_anew_when_something_worked(worked: bool, stood_by: bool) -> None:
    r = retries()
    for _ in range(4):
        r.after(LOST, now=100.0, worked=False, stood_by=False)

    assert r.after(LOST, now=100.0, worked=worked, stood_by=stood_by) == 0.5


@pytest.mark.parametrize(("since", "pause_s"), [(None, 8), (100.0, 8), (39.0, 0.5)])
def test_pauses_begin_anew_when_an_idle_stream_lasted(since: float | None, pause_s: float) -> None:
    r = retries()
    for _ in range(4):
        r.after(LOST, now=100.0, worked=False, stood_by=False)

    found = r.after(LOST, now=100.0, worked=False, stood_by=False, streaming_since=since)

    assert found == pause_s


def test_it_gives_up_when_nothing_has_worked_for_so_long() -> None:
    r = retries(retry_for_s=10)
    assert r.after(LOST, now=100.0, worked=False, stood_by=False) == 0.5
    assert r.after(LOST, now=105.0, worked=False, stood_by=False) == 1

    with pytest.raises(TransientError, match="the connection is gone"):
        r.after(LOST, now=109.5, worked=False, stood_by=False)


def test_time_counts_from_the_last_that_worked() -> None:
    r = retries(retry_for_s=10)
    for now in (100.0, 200.0, 300.0):
        assert r.after(LOST, now=now, worked=True, stood_by=False) == 0.5

    r.reset()
    assert r.after(LOST, now=400.0, worked=False, stood_by=False) == 0.5


def test_a_gateway_that_is_fenced_stands_by_next() -> None:
    r = retries()

    for _ in range(10):
        assert r.after(FENCED, now=100.0, worked=True, stood_by=True) == 0.5


def test_two_gateways_that_fence_each_other_with_a_slot_each_stop() -> None:
    r = retries()
    r.after(FENCED, now=100.0, worked=True, stood_by=False)
    r.after(FENCED, now=110.0, worked=True, stood_by=False)

    with pytest.raises(FatalError, match="it reads another server"):
        r.after(FENCED, now=120.0, worked=True, stood_by=False)


def test_other_failures_in_between_are_no_duel() -> None:
    r = retries()
    for _ in range(5):
        r.after(FENCED, now=100.0, worked=True, stood_by=False)
        r.after(FENCED, now=100.0, worked=True, stood_by=False)
        r.after(LOST, now=100.0, worked=True, stood_by=False)
