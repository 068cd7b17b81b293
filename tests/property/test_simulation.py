"""The gateway's loop in a simulated world: any schedule of faults keeps the contract.

A failure names its schedule, which happens in the same way again; `shrunk` makes it smaller:
``python -m tools.simulate --seed SEED`` does both.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import pytest

from gateway.core.lsn import Lsn
from gateway.runtime.loop.admission import Admission, Disposition
from gateway.runtime.loop.group_commit import GroupCommit
from gateway.runtime.loop.history_check import HistoryCheck
from gateway.transactions.holds import PrepareHolds
from tests.support.simulation.checker import ContractViolation
from tests.support.simulation.world import FAULTS, Schedule, shrunk

SCHEDULES: Final = int(os.environ.get("PGSLUICE_SCHEDULES", "2000"))
ENOUGH: Final = 400
"""Schedules among which a broken loop has to show."""


@pytest.fixture(autouse=True)
def _collections() -> Iterator[None]:
    """Keep the thresholds that loops in turns leave in disorder."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)


def schedules(seed: int, count: int) -> Iterator[Schedule]:
    random = Random(f"simulation {seed}")
    for _ in range(count):
        faults = tuple(fault for fault in FAULTS if random.random() < 0.7)
        yield Schedule(random.getrandbits(40), random.choice((60, 120)), faults)


def test_every_schedule_keeps_the_contract(seed: int) -> None:
    outcomes: Counter[str] = Counter()
    published = 0
    for schedule in schedules(seed, SCHEDULES):
        world = schedule.run()
        outcomes[world.outcome] += 1
        published += len(world.checker.published)

    # Most schedules end with everything in Kafka, and few with a server that has to be refused.
    assert outcomes["complete"] > SCHEDULES / 2
    assert outcomes["refused"] > 0
    assert published > 10 * SCHEDULES


def test_a_schedule_happens_in_the_same_way_again(seed: int) -> None:
    for schedule in schedules(seed, 20):
        first, second = schedule.run(), schedule.run()

        assert first.trace == second.trace
        assert first.checker.published == second.checker.published


def confirm_everything(holds: PrepareHolds, durable: Lsn) -> Lsn:
    return durable


def know_nothing(admission: Admission, event: object, limit: Lsn | None) -> Disposition:
    return Disposition.QUEUE


def compare_nothing(history: HistoryCheck, transaction: object) -> None:
    pass


def reach_ahead(commits: GroupCommit, end_lsn: Lsn) -> None:
    commits._batch.end_lsn = Lsn(max(commits._batch.end_lsn, end_lsn) + 200)


@pytest.mark.parametrize(
    ("broken", "name", "instead"),
    [
        pytest.param(PrepareHolds, "flush_lsn", confirm_everything, id="PREPAREs are not held"),
        pytest.param(Admission, "judge", know_nothing, id="known transactions are routed again"),
        pytest.param(HistoryCheck, "check", compare_nothing, id="histories are not compared"),
        pytest.param(GroupCommit, "reach", reach_ahead, id="the watermark is ahead"),
    ],
)
def test_a_broken_loop_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    broken: type,
    name: str,
    instead: Callable[..., object],
) -> None:
    monkeypatch.setattr(broken, name, instead)

    def fails(schedule: Schedule) -> bool:
        try:
            schedule.run()
        except ContractViolation:
            return True
        return False

    found = next((s for s in schedules(seed, ENOUGH) if fails(s)), None)

    assert found is not None
    smaller = shrunk(found, fails)
    assert fails(smaller)
    assert smaller.steps <= found.steps and len(smaller.faults) <= len(found.faults)
