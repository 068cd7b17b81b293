"""When the transactions of a batch were received, routed, handed over and committed."""

from __future__ import annotations

import pytest

from gateway.core.errors import TransientError
from gateway.core.lsn import Lsn
from gateway.core.records import Batch, Record
from gateway.core.watermark import Watermark
from gateway.observe import BatchTimes
from gateway.pgoutput.messages import LogicalMessage
from gateway.runtime.loop.batch_clock import BatchClock
from gateway.transactions import Assembler, Series, StandaloneMessage
from tests.support.gateway.fakes import FakeSink
from tests.support.gateway.pipeline_scene import BenchFactory, transaction

RECORD: Record = ("t", 0, None, b"", [])


class Scene:
    """A clock that stands at `now`, and the times that it has reported."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reported: list[BatchTimes] = []
        self.batches = BatchClock(self.reported.append, lambda: self.now)

    def receive(self, at: float, lsn: int) -> None:
        """A message that is one byte long."""
        self.now = at
        message = LogicalMessage(False, Lsn(lsn), "p", b"")
        self.batches.receive(StandaloneMessage(message, Lsn(lsn)))

    def hand_over(self, at: float, routed_at: float, until: int | None, records: int = 1) -> None:
        """`until`: the watermark; None for a piece."""
        self.now = at
        watermark = None if until is None else Watermark(Lsn(until), 1, "f", ())
        self.batches.hand_over(Batch([RECORD] * records, watermark), routed_at)

    def end(self, at: float, error: Exception | None = None) -> None:
        self.now = at
        self.batches.end(error)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_batch_begins_with_the_first_of_its_transactions(scene: Scene) -> None:
    scene.receive(1, 10)
    scene.receive(2, 20)
    scene.receive(3, 30)
    scene.hand_over(5, routed_at=4, until=21, records=2)
    scene.end(6)
    scene.hand_over(7, routed_at=6.5, until=31)
    scene.end(8)

    assert scene.reported == [
        BatchTimes(1, 4, 5, 5, 6, records=2, pieces=1, end_lsn=21),
        BatchTimes(3, 6.5, 7, 7, 8, records=1, pieces=1, end_lsn=31),
    ]


def test_a_batch_in_pieces_is_one(scene: Scene) -> None:
    scene.receive(1, 10)
    scene.hand_over(3, routed_at=2, until=None, records=4)
    scene.hand_over(5, routed_at=4, until=11)
    scene.end(6)

    assert scene.reported == [BatchTimes(1, 2, 3, 5, 6, records=5, pieces=2, end_lsn=11)]


def test_a_batch_of_copied_rows_begins_with_its_first_record(scene: Scene) -> None:
    scene.receive(1, 10)  # after the rows
    scene.hand_over(3, routed_at=2, until=10)
    scene.end(4)

    assert scene.reported == [BatchTimes(2, 2, 3, 3, 4, records=1, pieces=1, end_lsn=10)]


def test_transactions_without_records_are_forgotten_and_make_no_trace(scene: Scene) -> None:
    scene.receive(1, 10)
    scene.hand_over(2, routed_at=0, until=11, records=0)
    scene.end(3)
    scene.hand_over(5, routed_at=4, until=20)
    scene.end(6)

    assert scene.reported == [BatchTimes(4, 4, 5, 5, 6, records=1, pieces=1, end_lsn=20)]


def test_a_failure_says_which_error_it_was(scene: Scene) -> None:
    scene.hand_over(3, routed_at=2, until=None)
    scene.end(4, TransientError("the broker is gone"))

    (reported,) = scene.reported
    assert (reported.error, reported.end_lsn, reported.ended_at) == ("TransientError", 0, 4)


def test_a_series_that_is_divided_among_batches_was_received_once(scene: Scene) -> None:
    frames = [frame for lsn in (10, 30) for frame in transaction(7, lsn)]
    (series,) = Assembler(series=True).push(frames)
    if not isinstance(series, Series):
        pytest.skip("short transactions come in series where the scanner is compiled")
    scene.now = 1
    scene.batches.receive(series)
    for at, until in ((2, 20), (4, 40)):
        scene.hand_over(at, routed_at=at, until=until)
        scene.end(at + 1)

    assert [reported.received_at for reported in scene.reported] == [1, 1]


@pytest.mark.parametrize("fail", [None, 0], ids=["committed", "failed"])
def test_the_loop_tells_of_every_batch(bench: BenchFactory, fail: int | None) -> None:
    reported: list[BatchTimes] = []
    sink = FakeSink(delay=3, fail_at_commit=fail)
    turns = [transaction(7, 2000, rows=2), transaction(8, 3000)]
    b = bench(turns, sink=sink, on_batch=reported.append)

    if fail is None:
        b.pipeline.run()
        assert [(one.records, one.error) for one in reported] == [(3, ""), (2, "")]
        assert [one.end_lsn for one in reported] == [2010, 3010]
    else:
        with pytest.raises(TransientError):
            b.pipeline.run()
        assert [(one.records, one.error) for one in reported] == [(3, "TransientError")]
    for one in reported:
        times = (one.received_at, one.routed_at, one.handed_over_at, one.ended_at)
        assert list(times) == sorted(times) and len(set(times)) == 4
