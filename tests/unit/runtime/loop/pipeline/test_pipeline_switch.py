"""Changed definitions end the loop at their point of the stream."""

from __future__ import annotations

import pytest

from gateway.core.lsn import Lsn
from gateway.runtime.loop.pipeline import Outcome
from tests.support.gateway.pipeline_scene import BenchFactory, transaction
from tests.support.models.pgoutput_encode import keepalive


class ScriptedSwitch:
    """Holds the loop from its `hold`-th question on, and names its point three questions later."""

    def __init__(self, hold: int, point: int) -> None:
        self._hold, self._point = hold, Lsn(point)
        self.asked = 0

    def holds(self) -> bool:
        self.asked += 1
        return self._hold <= self.asked

    def confirm_hold(self) -> None:
        assert self._hold <= self.asked

    def point(self) -> Lsn | None:
        return self._point if self.asked >= self._hold + 3 else None


def test_a_switch_ends_the_loop_at_its_point(bench: BenchFactory) -> None:
    switch = ScriptedSwitch(hold=2, point=2500)
    b = bench([transaction(7, 2000), transaction(8, 2490), transaction(9, 3000)])

    assert b.pipeline.run(switch=switch) is Outcome.REACHED_SWITCH

    # 2490 + 10 = 2500 is the point itself.
    assert [v for v in b.values() if v.startswith(b"END")] == [b"END 7", b"END 8"]
    assert b.pipeline.durable.end_lsn == 2500


def test_what_comes_while_a_switch_holds_waits_for_its_point(bench: BenchFactory) -> None:
    switch = ScriptedSwitch(hold=1, point=2500)
    b = bench([transaction(7, 2000), transaction(8, 3000)])

    assert b.pipeline.run(switch=switch) is Outcome.REACHED_SWITCH

    assert [v for v in b.values() if v.startswith(b"END")] == [b"END 7"]
    assert b.pipeline.durable.end_lsn == 2500


def test_a_source_without_writes_is_asked_whether_the_point_is_reached(
    bench: BenchFactory,
) -> None:
    # Later than the feedback that follows the first watermark; the next one is due after seconds.
    switch = ScriptedSwitch(hold=40, point=2500)
    b = bench([], replies=[[], [keepalive(2600)]], stop_after=80)

    assert b.pipeline.run(switch=switch) is Outcome.REACHED_SWITCH


def test_an_endpos_before_the_switch_ends_the_loop_first(bench: BenchFactory) -> None:
    switch = ScriptedSwitch(hold=1, point=5000)
    b = bench([transaction(7, 2000), [keepalive(2600)]], endpos=2500)

    assert b.pipeline.run(switch=switch) is Outcome.REACHED_ENDPOS


class HastySwitch(ScriptedSwitch):
    """Names its point, and lets go, while the loop asks."""

    def holds(self) -> bool:
        self.asked += 1
        return self.asked < self._hold

    def point(self) -> Lsn | None:
        self.asked += 1
        return self._point if self.asked > self._hold else None

    def confirm_hold(self) -> None:
        assert self.asked <= self._hold


@pytest.mark.parametrize("hold", range(1, 6))
def test_a_switch_that_lets_go_while_it_is_asked_has_named_its_point(
    bench: BenchFactory, hold: int
) -> None:
    switch = HastySwitch(hold, point=1500)
    b = bench([transaction(7, 2000)])

    assert b.pipeline.run(switch=switch) is Outcome.REACHED_SWITCH

    assert not any(v.startswith(b"END") for v in b.values())
    assert b.pipeline.durable.end_lsn == 1500
