"""A server that is stopping is let go; one that merely asks is answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from gateway.config import LimitsTable
from gateway.core.errors import KafkaTransactionTimeout, TransientError
from gateway.core.lsn import Lsn
from gateway.core.records import Batch
from gateway.core.watermark import Watermark
from gateway.observe import Counters
from gateway.pgoutput.messages import Begin, BeginPrepare, Commit, Insert, Prepare
from gateway.runtime.loop.pipeline import Outcome, Pipeline
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.loop.shutdown_keepalives import GAP_S, PATIENCE_S, ShutdownKeepalives
from gateway.runtime.loop.stream_position import Ends
from gateway.transactions import Assembler
from tests.support.gateway.fakes import FakeRouter, FakeSink, FakeSource, ManualClock
from tests.support.models.pgoutput_encode import keepalive, xlogdata

START = Lsn(1000)


def insisted(questions: Sequence[tuple[float, int, int]]) -> list[bool]:
    keepalives = ShutdownKeepalives()
    return [
        keepalives.is_shutting_down(Lsn(wal_end), Lsn(flush), now)
        for now, wal_end, flush in questions
    ]


def every(
    gap_s: float, count: int, wal_end: int = 2000, flush: int = 1000
) -> Iterator[tuple[float, int, int]]:
    return ((gap_s * n, wal_end, flush) for n in range(count))


def test_the_same_question_again_and_again_is_a_server_that_stops() -> None:
    answers = insisted(list(every(0.25, 40)))

    assert answers.index(True) == int(PATIENCE_S / 0.25) + 1


@pytest.mark.parametrize(
    "questions",
    [
        pytest.param(list(every(GAP_S * 1.1, 100)), id="no hurry: wal_sender_timeout is short"),
        pytest.param(list(every(0.1, 100, flush=2000)), id="confirmed"),
        pytest.param([(0.1 * n, 2000 + n, 1000) for n in range(100)], id="the WAL grows"),
        pytest.param(list(every(0.1, int(PATIENCE_S / 0.1))), id="not for long enough"),
    ],
)
def test_other_questions_are_not(questions: list[tuple[float, int, int]]) -> None:
    assert not any(insisted(questions))


def test_data_in_between_means_that_the_server_works() -> None:
    keepalives = ShutdownKeepalives()
    found = []
    for now, wal_end, flush in every(0.1, 100):
        keepalives.reset()
        found.append(keepalives.is_shutting_down(Lsn(wal_end), Lsn(flush), now))

    assert not any(found)


class PingingSource(FakeSource):
    """After its turns it asks again 50 ms after every answer, as WalSndDone does."""

    def __init__(self, turns: Sequence[Sequence[bytes]], wal_end: int, clock: ManualClock) -> None:
        super().__init__(turns)
        self._wal_end = wal_end
        self._test_clock = clock

    def receive(self, limit: int) -> Sequence[bytes]:
        if frames := super().receive(limit):
            return frames
        self._test_clock.advance(0.05)
        return [keepalive(self._wal_end, reply_requested=True)]


def run(source: FakeSource, sink: FakeSink, clock: ManualClock, *, turns: int) -> Outcome:
    asked = iter(range(turns))
    pipeline = Pipeline(
        Receiver(source, clock=clock),
        sink,
        Assembler(version=3),
        FakeRouter(),
        Watermark(START, 1, "f", ()),
        ("s",),
        LimitsTable(),
        Counters(),
        ends=Ends(stopping=lambda: next(asked, None) is None),
        clock=clock,
    )
    try:
        return pipeline.run()
    finally:
        source.close()
        sink.close()


def prepared() -> list[bytes]:
    return [
        xlogdata(BeginPrepare(Lsn(2000), Lsn(2010), 0, 7, "g"), wal_start=1990),
        xlogdata(Insert(1, (b"1",)), wal_start=1995),
        xlogdata(Prepare(0, Lsn(2000), Lsn(2010), 0, 7, "g"), wal_start=2000),
    ]


def committed() -> list[bytes]:
    return [
        xlogdata(Begin(Lsn(2000), 0, 7), wal_start=1990),
        xlogdata(Insert(1, (b"1",)), wal_start=1995),
        xlogdata(Commit(0, Lsn(2000), Lsn(2010), 0), wal_start=2000),
    ]


def test_a_held_prepare_does_not_keep_the_server_from_stopping() -> None:
    clock = ManualClock()

    with pytest.raises(TransientError, match="server is stopping"):
        run(PingingSource([prepared()], 2010, clock), FakeSink(), clock, turns=500)


def test_nor_does_a_broker_that_is_down() -> None:
    clock = ManualClock()

    with pytest.raises(TransientError, match="server is stopping"):
        run(PingingSource([committed()], 2010, clock), FakeSink(delay=10**9), clock, turns=500)


def test_what_can_be_committed_is_committed_first() -> None:
    clock = ManualClock()
    source = PingingSource([committed()], 2010, clock)

    assert run(source, FakeSink(delay=20), clock, turns=500) is Outcome.STOPPED
    assert source.feedback[-1] == 2010


class ExpiringSink(FakeSink):
    """The broker has ended its transaction when the batch number `at` comes back."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._at = at

    def collect(self) -> Batch | None:
        if self.busy and len(self.batches) == self._at:
            raise KafkaTransactionTimeout("it has been open for 900 s", hint="raise them")
        return super().collect()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_transaction_that_does_not_fit_is_named(at: int) -> None:
    frames = [*committed()[:1], *[committed()[1]] * 2500, committed()[2]]
    size = sum(map(len, frames[1:-1]))
    clock = ManualClock()
    sink = ExpiringSink(at)
    source = FakeSource([frames])
    pipeline = Pipeline(
        Receiver(source, clock=clock),
        sink,
        Assembler(),
        FakeRouter(),
        Watermark(START, 1, "f", ()),
        ("s",),
        LimitsTable(max_batch_records=1000),
        Counters(),
        clock=clock,
    )

    with pytest.raises(KafkaTransactionTimeout) as caught:
        pipeline.run()

    source.close()
    sink.close()
    message = f"transaction 7 (2500 messages, {size} bytes, commit_lsn 0/7D0) does not fit"
    assert message in caught.value.message
    assert caught.value.hint == "raise them"
