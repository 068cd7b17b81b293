"""When what has been routed is handed over, kept and committed, step by step."""

from __future__ import annotations

import pytest

from gateway.config import LimitsTable
from gateway.core.lsn import Lsn
from gateway.core.records import RESENDABLE, Batch, Record
from gateway.core.watermark import Watermark
from gateway.runtime.loop.commit_cost import MEASURED
from gateway.runtime.loop.group_commit import GroupCommit, Turn
from tests.support.gateway.fakes import ManualClock

LIMITS = LimitsTable(max_batch_records=1_000, max_batch_ms=200)
AGE_S = 0.2
SPREAD_S = 2.0


def records(number: int, topics: int) -> list[Record]:
    return [(f"topic{n % topics}", 0, None, b"value", []) for n in range(number)]


class Scene:
    """A group commit whose sink takes no time, and a clock that stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock(step_s=0.0)
        self.commits = GroupCommit(Watermark(Lsn(10), 1, "f", ()), ("s",), LIMITS, self.clock)
        self.batches: list[Batch] = []

    def turn(self, *, idle: bool = False, waiting: bool = True) -> Turn:
        position = self.commits.routed_lsn
        return Turn(position, position, idle=idle, waiting=waiting)

    def submit(self, *, idle: bool = False, waiting: bool = True) -> None:
        """Ask once, and let the sink finish."""
        batch = self.commits.next_batch(self.turn(idle=idle, waiting=waiting))
        if batch is not None:
            self.batches.append(batch)
            self.commits.collected(batch)

    def due_at(self, *, waiting: bool) -> list[float]:
        return self.commits.due_at(self.turn(waiting=waiting))

    @property
    def handed_over(self) -> list[tuple[int, bool, bool]]:
        """Of each batch, how many records, whether it is committed, and whether it is kept."""
        return [(len(b.records), b.watermark is not None, b.kept) for b in self.batches]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_batch_is_due_when_it_is_old(scene: Scene) -> None:
    scene.commits.add(records(999, topics=200))

    for waiting in (False, True):
        assert scene.clock.now + AGE_S in scene.due_at(waiting=waiting)
    scene.clock.advance(AGE_S)
    scene.submit()
    assert scene.handed_over == [(999, True, True)]


def test_a_batch_that_is_not_whole_is_not_due_by_the_clock(scene: Scene) -> None:
    before = scene.due_at(waiting=True)

    scene.commits.add(records(10, topics=1), whole=False)

    assert scene.due_at(waiting=True) == before
    scene.clock.advance(10)
    scene.submit()
    assert not any(size for size, _, _ in scene.handed_over)


def test_what_is_spread_thin_is_not_committed_for_its_age_while_more_waits(scene: Scene) -> None:
    scene.commits.add(records(1_200, topics=20))  # 1,600 are enough

    assert scene.clock.now + AGE_S in scene.due_at(waiting=False)
    assert scene.clock.now + SPREAD_S in scene.due_at(waiting=True)
    scene.clock.advance(SPREAD_S - 0.01)
    scene.submit()
    assert scene.handed_over == []

    scene.clock.advance(0.02)
    scene.submit()
    assert scene.handed_over == [(1_200, True, True)]


def test_what_is_spread_thin_is_committed_at_once_when_nothing_more_comes(scene: Scene) -> None:
    scene.commits.add(records(1_200, topics=20))

    scene.submit(idle=True, waiting=False)

    assert scene.handed_over == [(1_200, True, True)]


def test_pieces_of_what_is_spread_thin_end_in_a_commit_after_two_seconds(scene: Scene) -> None:
    for _ in range(3):
        scene.commits.add(records(1_600, topics=20))
        scene.submit()
        scene.clock.advance(0.5)
    scene.clock.advance(0.6)
    scene.commits.add(records(1_600, topics=20))
    scene.submit()

    assert scene.handed_over == [(1_600, False, False)] * 3 + [(1_600, True, True)]


@pytest.mark.parametrize("topics", [1, 20, 200])
def test_rows_of_copies_are_as_many_as_can_be_sent_again_for_any_number_of_topics(
    scene: Scene, topics: int
) -> None:
    for _ in range(RESENDABLE):
        assert scene.commits.room_for_copies == 1_000
        scene.commits.add_copied(records(1_000, topics))
        scene.submit(waiting=False)

    pieces = RESENDABLE - 1
    assert scene.handed_over == [(1_000, False, True)] * pieces + [(1_000, True, True)]


def commit(scene: Scene, duration_s: float, size: int = 1) -> None:
    """Route some records, and let the sink take some time over them."""
    scene.commits.add(records(size, topics=1))
    batch = scene.commits.next_batch(scene.turn(idle=True, waiting=False))
    assert batch is not None and batch.watermark is not None
    scene.clock.advance(duration_s)
    assert scene.commits.collected(batch)


def test_small_commits_keep_a_pause_if_the_last_ones_were_refused(scene: Scene) -> None:
    commit(scene, 0.005)
    commit(scene, 0.025)
    resume_at = scene.clock.now + MEASURED.pause_step_s
    idle = scene.turn(idle=True, waiting=False)

    scene.commits.add(records(1, topics=1))

    assert scene.commits.next_batch(idle) is None
    assert min(scene.due_at(waiting=False)) == resume_at, "nobody asks before that in vain"
    scene.commits.add(records(2, topics=1))
    scene.clock.advance(MEASURED.pause_step_s)
    batch = scene.commits.next_batch(idle)
    assert batch is not None and len(batch.records) == 3, "what has come meanwhile goes with it"


def test_nothing_waits_for_the_pause_but_a_small_batch(scene: Scene) -> None:
    for duration_s in (0.005, 0.025):
        commit(scene, duration_s)
    scene.commits.add(records(1_000, topics=1))

    full = scene.commits.next_batch(scene.turn(waiting=True))
    assert full is not None and len(full.records) == 1_000
    scene.commits.collected(full)

    position = scene.commits.routed_lsn
    scene.commits.add(records(1, topics=1))
    last = scene.commits.next_batch(Turn(position, position, idle=True, hurry=True))
    assert last is not None, "a gateway that ends does not wait"


def test_large_commits_say_nothing_about_the_pause(scene: Scene) -> None:
    commit(scene, 0.005)
    commit(scene, 0.100, size=1_001)
    scene.commits.add(records(1, topics=1))

    assert scene.commits.next_batch(scene.turn(idle=True, waiting=False)) is not None


def test_a_broker_that_becomes_slower_is_not_taken_for_one_that_refuses(scene: Scene) -> None:
    commit(scene, 0.005)
    for _ in range(2_000):
        commit(scene, 0.040)
        scene.clock.advance(MEASURED.longest_pause_s)
    scene.commits.add(records(1, topics=1))

    scene.clock.advance(MEASURED.longest_pause_s / 100)
    assert scene.commits.next_batch(scene.turn(idle=True, waiting=False)) is not None
