"""In which order transactions and rows of copies fill a batch, and where that stops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from gateway.config import LimitsTable
from gateway.core.lsn import Lsn
from gateway.core.records import Record
from gateway.core.watermark import Watermark
from gateway.observe import Counters
from gateway.runtime.loop.batch_filler import BatchFiller
from gateway.runtime.loop.group_commit import GroupCommit, Turn
from gateway.runtime.loop.transaction_queue import TransactionQueue
from gateway.transactions import Assembler, KeepaliveEvent, Transaction
from tests.support.gateway.fakes import FakeCopier, FakeRouter, ManualClock
from tests.support.gateway.pipeline_scene import transaction

LIMITS = LimitsTable(max_batch_records=100)
HEARD = Lsn(9000)


class Scene:
    """Transactions 2 and 3, which end at 2010 and 3010, and have `rows` each."""

    def __init__(self, copier: FakeCopier, rows: int = 1) -> None:
        self.router = FakeRouter()
        self.commits = GroupCommit(Watermark(Lsn(1000), 1, "f", ()), ("s",), LIMITS, ManualClock())
        self.queue = TransactionQueue()
        for xid in (2, 3):
            for event in Assembler().push(transaction(xid, xid * 1000, rows)):
                assert not isinstance(event, KeepaliveEvent)
                self.queue.append(event)
        self.counters = Counters()
        self.clock = ManualClock()
        self.filler = BatchFiller(
            self.queue, self.router, self.commits, self.counters, copier, self.clock
        )

    def gathered(self) -> list[bytes]:
        turn = Turn(self.commits.routed_lsn, self.commits.routed_lsn, idle=True)
        batch = self.commits.next_batch(turn)
        return [] if batch is None else [record[3] or b"" for record in batch.records]


@pytest.fixture
def copier(request: pytest.FixtureRequest) -> Iterator[FakeCopier]:
    with closing(FakeCopier([(lsn, b"at %d" % lsn) for lsn in request.param])) as made:
        yield made


@pytest.mark.parametrize(
    ("copier", "draining", "expected"),
    [
        ([], False, [b"2", b"END 2", b"3", b"END 3"]),
        ([2000], False, [b"at 2000", b"2", b"END 2", b"3", b"END 3"]),
        ([2001], False, [b"2", b"END 2", b"at 2001", b"3", b"END 3"]),
        ([3001], False, [b"2", b"END 2", b"3", b"END 3", b"at 3001"]),
        ([9001], False, [b"2", b"END 2", b"3", b"END 3"]),
        ([2000, 3000], False, [b"at 2000", b"2", b"END 2", b"at 3000", b"3", b"END 3"]),
        ([2000], True, [b"2", b"END 2", b"3", b"END 3"]),
    ],
    indirect=["copier"],
)
def test_rows_of_copies_have_their_place_between_transactions(
    copier: FakeCopier, draining: bool, expected: list[bytes]
) -> None:
    scene = Scene(copier)

    stops = 0
    while scene.filler.fill(100, HEARD, draining=draining):
        stops += 1

    assert scene.gathered() == expected
    assert stops == len(copier.placed)
    assert scene.commits.routed_lsn == max([3010, *copier.placed])
    assert scene.counters.transactions == 2
    assert not scene.queue


@pytest.mark.parametrize("copier", [[]], indirect=True)
@pytest.mark.parametrize(
    ("rows", "enough", "records", "routing", "waiting"),
    [
        pytest.param(2, 1, 2, True, 1, id="has enough within a transaction"),
        pytest.param(2, 3, 3, True, 1, id="has enough, and it is not known that it was the last"),
        pytest.param(99, 1_000, 100, False, 1, id="full with a transaction's last piece"),
        pytest.param(120, 1_000, 120, True, 1, id="full within a transaction"),
        pytest.param(3, 1_000, 8, False, 0, id="nothing more waits"),
    ],
)
def test_filling_stops_when_the_batch_is_full_or_has_enough(
    copier: FakeCopier, rows: int, enough: int, records: int, routing: bool, waiting: int
) -> None:
    scene = Scene(copier, rows)

    assert not scene.filler.fill(enough, HEARD, draining=False)

    assert scene.commits.records == records
    assert scene.filler.routing is routing
    assert len(scene.queue) == waiting


@pytest.mark.parametrize("copier", [[]], indirect=True)
def test_a_transaction_that_waits_for_answers_is_not_work(copier: FakeCopier) -> None:
    scene = Scene(copier)
    scene.router.waits, scene.router.always_readable = {2: 2}, 0

    work = []
    for _ in range(4):
        work.append(scene.filler.has_work(draining=False))
        scene.filler.fill(100, HEARD, draining=False)

    assert work == [True, False, False, False]
    assert scene.gathered() == [b"2", b"END 2", b"3", b"END 3"]


@pytest.mark.parametrize("copier", [[]], indirect=True)
def test_filling_stops_after_a_while_although_no_record_comes_of_it(
    copier: FakeCopier, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(copier, rows=0)

    def read_the_catalog(_: Transaction) -> Iterator[list[Record]]:
        scene.clock.advance(1.0)
        yield []

    monkeypatch.setattr(scene.router, "route", read_the_catalog)

    assert not scene.filler.fill(100, HEARD, draining=False)
    assert len(scene.queue) == 1, "the loop may commit between both transactions"
    assert scene.filler.has_work(draining=False)
