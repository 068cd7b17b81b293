"""Whose turn it is to get a PROGRESS marker."""

from __future__ import annotations

import pytest

from gateway.core.lsn import Lsn
from gateway.runtime.loop.progress_markers import ProgressMarkers

FIRST, SECOND = Lsn(100), Lsn(200)


class Clock:
    """Seconds, set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def taken(progress: ProgressMarkers, published: Lsn) -> list[str]:
    """Who gets a marker in a commit at this moment."""
    idle = progress.lagging(published)
    progress.end_turns()
    progress.mark(idle, {}, published)
    return idle


def names(number: int) -> list[str]:
    return [f"s{index}" for index in range(number)]


def test_a_few_get_theirs_together_and_once_in_an_interval() -> None:
    clock = Clock()
    progress = ProgressMarkers(names(3), 2.0, clock)
    assert taken(progress, FIRST) == names(3)
    clock.now += 1.9
    assert taken(progress, SECOND) == []
    assert progress.due_at(SECOND, moved=False) == pytest.approx(1002.0)
    clock.now += 0.2
    assert taken(progress, SECOND) == names(3)


@pytest.mark.parametrize("number", [30, 95, 1000])
def test_many_take_turns_and_each_is_marked_in_every_interval(number: int) -> None:
    clock = Clock()
    progress = ProgressMarkers(names(number), 1.0, clock)
    last = dict.fromkeys(names(number), clock.now)
    largest = 0
    for step in range(1, 400):
        clock.now += 0.01
        idle = taken(progress, Lsn(100 + step))
        largest = max(largest, len(idle))
        for name in idle:
            assert clock.now - last[name] < 1.02
            last[name] = clock.now
    assert all(clock.now - at < 1.02 for at in last.values())
    assert largest <= max(10, number / 20)


def test_turns_that_fell_due_together_are_drawn_apart_again() -> None:
    clock = Clock()
    progress = ProgressMarkers(names(50), 1.0, clock)
    clock.now += 10  # Kafka was away
    assert len(taken(progress, FIRST)) == 50
    sizes = []
    for step in range(195):
        clock.now += 0.01
        sizes.append(len(taken(progress, Lsn(200 + step))))
    assert max(sizes) == 10
    assert sum(sizes) == 50


def test_who_has_records_or_is_marked_needs_no_turn() -> None:
    clock = Clock()
    progress = ProgressMarkers(names(2), 1.0, clock)
    progress.mark(["s0"], {"s1": FIRST}, FIRST)
    assert progress.lagging(FIRST) == []
    assert progress.due_at(FIRST, moved=False) is None
    assert progress.due_at(FIRST, moved=True) == pytest.approx(1000.0)
    assert progress.lagging(SECOND) == ["s0", "s1"]


def test_everyone_is_marked_when_there_is_no_time_for_turns() -> None:
    clock = Clock()
    progress = ProgressMarkers(names(40), 1.0, clock)
    taken(progress, FIRST)
    assert len(progress.lagging(FIRST, everyone=True)) == 30
