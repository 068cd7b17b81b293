"""What the loop tells of itself is in Kafka: totals count when their transaction is committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.core.lsn import Lsn
from gateway.observe import Counters
from gateway.routing.row.counters import RowOperation, Tally
from gateway.runtime.loop.reporter import Reporter
from tests.support.gateway.fakes import FakeRouter, ManualClock
from tests.unit.monitor.figures import loop_state

T = ("s", "public.t")


class CountingRouter(FakeRouter):
    """Its totals are what a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.total = Tally()
        self.on_tally: Callable[[], object] = int

    def tally(self) -> Tally:
        self.on_tally()
        return self.total

    def count(self, changes: int, **rows: int) -> None:
        operations: tuple[RowOperation, ...] = ("insert", "update", "delete", "truncate", "copy")
        self.total = Tally({(*T, o): rows.get(o, 0) for o in operations}, {T: changes})


def reporter() -> tuple[Reporter, CountingRouter, Counters, ManualClock]:
    router, counters, clock = CountingRouter(), Counters(), ManualClock()
    return Reporter(counters, router, clock), router, counters, clock


def test_rows_count_when_they_are_committed() -> None:
    report, router, counters, clock = reporter()
    router.count(5, insert=3, update=1)

    report.hand_over(4, commits=True)
    assert counters.rows == {}
    clock.advance(0.2)
    report.committed()

    assert counters.rows[*T, "insert"] == 3
    assert counters.filtered[T] == 1
    assert counters.commit_records.total == 4
    assert 0.2 <= counters.commit_seconds.total < 0.3


def test_a_kafka_transaction_in_pieces_is_one_commit() -> None:
    report, _, counters, _ = reporter()

    report.hand_over(1_000, commits=False)
    report.hand_over(500, commits=True)
    report.committed()

    assert (counters.commit_records.total, sum(counters.commit_records.counts)) == (1_500, 1)


def test_the_rest_counts_as_soon_as_nothing_is_under_way() -> None:
    report, router, counters, _ = reporter()
    router.count(1, insert=1)
    report.hand_over(1, commits=True)
    report.committed()
    router.count(4, insert=2, copy=7)
    report.hand_over(1, commits=True)  # too soon for another look at all tables
    report.committed()
    assert counters.rows[*T, "insert"] == 1

    report.post(loop_state(), settled=True)

    assert counters.posted is not None
    assert counters.posted.rows[*T, "insert"] == 2
    assert counters.posted.rows[*T, "copy"] == 7
    assert counters.posted.filtered[T] == 2


def test_a_second_loop_counts_on() -> None:
    report, router, counters, clock = reporter()
    router.count(2, insert=2)
    report.post(loop_state(), settled=True)
    again = CountingRouter()
    again.count(3, delete=3)

    Reporter(counters, again, clock).post(loop_state(), settled=True)

    assert counters.rows[*T, "insert"] == 2
    assert counters.rows[*T, "delete"] == 3


def test_what_is_posted_does_not_change() -> None:
    report, router, counters, _ = reporter()
    report.post(loop_state(durable_lsn=Lsn(7)), settled=True)
    posted = counters.posted
    router.count(1, insert=1)
    counters.frames = 9
    report.post(loop_state(durable_lsn=Lsn(8)), settled=True)

    assert posted is not None and posted.loop is not None
    assert (posted.frames, posted.rows, posted.loop.durable_lsn) == (0, {}, 7)


@pytest.mark.parametrize(("takes", "soonest"), [(0.0, 0.1), (0.02, 0.18), (0.2, 0.5)])
def test_copies_that_change_are_posted_soon_and_not_with_each_commit(
    takes: float, soonest: float
) -> None:
    report, router, _, clock = reporter()
    router.on_tally = lambda: clock.advance(takes)
    report.post(loop_state(), settled=True)

    posted_at = clock.now
    while not report.is_due():
        report.hurry()

    assert clock.now - posted_at == pytest.approx(soonest, abs=0.03)
