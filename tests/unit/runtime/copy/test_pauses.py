"""Pauses between reads of one table."""

from __future__ import annotations

from gateway.runtime.copy.pauses import Pauses
from tests.support.gateway.fakes import ManualClock


def test_a_table_that_is_always_read_again_is_so_less_and_less_often() -> None:
    clock = ManualClock(0)
    pauses = Pauses(1.0, clock)
    found = []
    for _ in range(8):
        assert pauses.is_over("a"), "the pause is over"
        pauses.begin("a")
        clock.now += 500  # however long the read takes
        pauses.end("a")
        began = clock.now
        while not pauses.is_over("a"):
            clock.now += 1
        found.append(clock.now - began)
    assert found == [1, 2, 4, 8, 16, 32, 60, 60]

    assert pauses.is_over("b"), "that of another table"
    clock.now += 61
    pauses.begin("a")
    clock.now += 1
    assert pauses.is_over("a"), "that of a table that had rested"
