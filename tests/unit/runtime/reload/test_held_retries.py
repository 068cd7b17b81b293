"""Held tables are looked at ever more rarely, over attempts, until nothing is held."""

from __future__ import annotations

from gateway.runtime.reload.held_retries import HeldLooks


def looks(held: HeldLooks, since: int, upto: int) -> list[int]:
    return [now for now in range(since, upto) if held.due(float(now), held=True, settled=False)]


def test_pauses_double_up_to_ten_minutes() -> None:
    assert looks(HeldLooks(5.0), 0, 3000) == [20, 60, 140, 300, 620, 1220, 1820, 2420]


def test_a_copy_that_is_tried_again_does_not_begin_the_pauses_anew() -> None:
    held = HeldLooks(5.0)
    assert looks(held, 0, 61) == [20, 60]
    assert not held.due(61.0, held=False, settled=False)  # it is being copied
    assert looks(held, 62, 301) == [140, 300]


def test_what_is_held_after_all_was_copied_is_looked_at_soon() -> None:
    held = HeldLooks(5.0)
    assert looks(held, 0, 61) == [20, 60]
    assert not held.due(61.0, held=False, settled=True)
    assert looks(held, 100, 141) == [120]
