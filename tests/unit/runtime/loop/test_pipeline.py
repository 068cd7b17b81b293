"""The loop's promises, with scripted edges and a clock that only tests move."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from gateway._speedups.loader import load_compiled
from gateway.config import LimitsTable
from gateway.core.errors import SlotError, TransientError
from gateway.core.lsn import Lsn
from gateway.core.watermark import LastCommit, Watermark
from gateway.observe import Counters
from gateway.pgoutput.messages import Begin, Commit, Insert, LogicalMessage
from gateway.runtime.loop.history_check import HistoryCheck
from gateway.runtime.loop.pipeline import Outcome, Pipeline
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.ports import Switch
from gateway.transactions import Assembler
from tests.support.gateway.fakes import FakeRouter, FakeSink, FakeSource, ManualClock
from tests.support.models.pgoutput_encode import keepalive, xlogdata

START = Lsn(1000)
LAST = LastCommit(Lsn(990), xid=6, commit_time=0)


def transaction(xid: int, commit_lsn: int, rows: int = 1) -> list[bytes]:
    """Frames of a transaction that ends 10 bytes behind its commit LSN."""
    return [
        xlogdata(Begin(Lsn(commit_lsn), 0, xid), wal_start=commit_lsn - 5),
        *[xlogdata(Insert(1, (b"1",)), wal_start=commit_lsn - 4)] * rows,
        xlogdata(Commit(0, Lsn(commit_lsn), Lsn(commit_lsn + 10), 0), wal_start=commit_lsn),
    ]


def message(lsn: int, content: bytes) -> bytes:
    return xlogdata(LogicalMessage(False, Lsn(lsn), "p", content), wal_start=lsn)


@dataclass
class Bench:
    """One pipeline on fakes, told to stop `stop_after` turns after the last frames.

    Or when it has committed up to `stop_at`.
    """

    source: FakeSource
    receiver: Receiver
    sink: FakeSink
    router: FakeRouter
    pipeline: Pipeline
    clock: ManualClock
    counters: Counters

    def values(self) -> list[bytes]:
        return [r[3] or b"" for batch in self.sink.committed for r in batch.records]


BenchFactory = Callable[..., Bench]


FORMS = [False] if isinstance(load_compiled("scanning"), str) else [False, True]
"""Whether short transactions come in series."""


@pytest.fixture(params=FORMS)
def bench(request: pytest.FixtureRequest) -> Iterator[BenchFactory]:
    made: list[Bench] = []

    def make(
        turns: Sequence[Sequence[bytes]],
        *,
        sink: FakeSink | None = None,
        endpos: int | None = None,
        limits: LimitsTable | None = None,
        subscriptions: Sequence[str] = ("s",),
        routed: Sequence[str] = ("s",),
        stop_after: int = 20,
        stop_at: int | None = None,
        switch: Switch | None = None,
        confirmed: int | None = None,
        series: bool = True,
    ) -> Bench:
        clock = ManualClock()
        source = FakeSource(turns)
        used = sink or FakeSink()
        router, counters = FakeRouter(routed), Counters()
        asked = 0

        def stopping() -> bool:
            nonlocal asked
            asked += 1
            if stop_at is not None:
                return pipeline.durable.end_lsn >= stop_at
            return asked > len(turns) + stop_after

        receiver = Receiver(source, clock=clock)
        watermark = Watermark(START, 1, "f", (), LAST)
        history = HistoryCheck(watermark, None if confirmed is None else Lsn(confirmed))
        pipeline = Pipeline(
            receiver,
            used,
            Assembler(series=request.param and series),
            router,
            watermark,
            subscriptions,
            limits or LimitsTable(),
            counters,
            endpos=None if endpos is None else Lsn(endpos),
            stopping=stopping,
            switch=switch,
            history=history,
            clock=clock,
        )
        made.append(Bench(source, receiver, used, router, pipeline, clock, counters))
        return made[-1]

    yield make
    for one in made:
        one.receiver.close()
        one.sink.close()


def test_transactions_reach_kafka_whole_and_in_order(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000, rows=2) + transaction(8, 3000)])

    assert b.pipeline.run() is Outcome.STOPPED

    rows = [v for v in b.values() if not v.startswith(b"PROGRESS")]
    assert rows == [b"7", b"7", b"END 7", b"8", b"END 8"]
    assert b.pipeline.durable.end_lsn == 3010


def test_a_transaction_that_is_left_out_of_a_series_keeps_its_place(bench: BenchFactory) -> None:
    frames = [f for xid in range(7, 12) for f in transaction(xid, xid * 1000)]
    b = bench([frames], sink=FakeSink(delay=3))
    b.router.refused = frozenset({9})

    b.pipeline.run()

    rows = [v for v in b.values() if not v.startswith(b"PROGRESS")]
    assert rows == [v for xid in range(7, 12) for v in (b"%d" % xid, b"END %d" % xid)]
    assert b.router.in_series in ([], [2, 2])
    assert bool(b.router.in_series) is (b.router.foreseen == [])
    last = b.sink.committed[-1].watermark
    assert last is not None
    assert last.last is not None
    assert (last.last.commit_lsn, last.last.xid) == (11_000, 11)
    assert (last.end_lsn, b.counters.transactions) == (11_010, 5)


def test_feedback_never_passes_what_kafka_has_committed(bench: BenchFactory) -> None:
    sink = FakeSink(delay=5)
    b = bench([transaction(7, 2000), [keepalive(2500, reply_requested=True)]], sink=sink)

    b.pipeline.run()

    watermarks = {START} | {c.watermark.end_lsn for c in sink.committed if c.watermark}
    assert set(b.source.feedback) <= watermarks
    assert b.source.feedback[-1] == 2500


def test_a_transaction_that_waits_for_answers_holds_back_nothing_before_it(
    bench: BenchFactory,
) -> None:
    b = bench(
        [transaction(7, 2000), transaction(8, 3000) + transaction(9, 4000), [keepalive(9000)]],
        series=False,  # as for every router that asks the server
    )
    b.router.waits = {8: 5}
    b.router.always_readable = b.source.fileno()

    b.pipeline.run()

    assert b.router.foreseen == [7, 8, 9]
    rows = [v for v in b.values() if not v.startswith(b"PROGRESS")]
    assert rows == [b"7", b"END 7", b"8", b"END 8", b"9", b"END 9"]
    watermarks = [c.watermark.end_lsn for c in b.sink.committed if c.watermark]
    assert watermarks[0] == 2010  # while the next one waits, and not a byte further
    assert b.pipeline.durable.end_lsn == 9000


def test_feedback_does_not_move_when_the_commit_fails(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000)], sink=FakeSink(fail_at_commit=0))

    with pytest.raises(TransientError):
        b.pipeline.run()

    assert set(b.source.feedback) == {START}


def test_feedback_never_passes_what_this_server_has_sent(bench: BenchFactory) -> None:
    later = [*transaction(6, 990), keepalive(5000)]
    b = bench([[keepalive(700, reply_requested=True)], later], confirmed=500)

    b.pipeline.run()

    # The watermark is 1000, but the slot stands at 500, and the server has got to 700 at first.
    assert b.source.feedback[:2] == [500, 700]
    assert b.source.feedback[-1] == 5000


def test_a_stream_that_does_not_continue_what_kafka_has_confirms_nothing(
    bench: BenchFactory,
) -> None:
    b = bench([[keepalive(700)], transaction(9, 990), transaction(10, 2000)], confirmed=500)

    with pytest.raises(SlotError, match="does not have transaction 6"):
        b.pipeline.run()

    assert max(b.source.feedback) <= 700
    assert b.values() == []


def test_transactions_that_the_watermark_covers_are_dropped(bench: BenchFactory) -> None:
    b = bench([transaction(5, 500) + transaction(6, 990) + transaction(7, 995)])

    b.pipeline.run()

    # 990 + 10 = 1000 is the watermark itself; 995 commits before it but ends behind it.
    assert [v for v in b.values() if v.startswith(b"END")] == [b"END 7"]
    # The server does not announce their relations again.
    assert b.router.learnt == [5, 6]


def test_transactions_share_a_kafka_transaction_while_the_sink_is_busy(
    bench: BenchFactory,
) -> None:
    turns = [transaction(xid, 1000 + 100 * xid) for xid in range(1, 9)]
    b = bench(turns, sink=FakeSink(delay=20), stop_after=200)

    b.pipeline.run()

    with_rows = [c for c in b.sink.committed if any(r[3] == b"END 8" for r in c.records)]
    assert len(with_rows) == 1
    assert any(r[3] == b"END 2" for r in with_rows[0].records)


def test_a_transaction_larger_than_a_batch_is_one_kafka_transaction(bench: BenchFactory) -> None:
    limits = LimitsTable(max_batch_records=1500)
    b = bench([transaction(7, 2000, rows=5000)], limits=limits)

    b.pipeline.run()

    pieces = [batch for batch in b.sink.batches if any(r[3] == b"7" for r in batch.records)]
    whole = [c for c in b.sink.committed if any(r[3] == b"7" for r in c.records)]
    assert len(pieces) > 1
    assert len(whole) == 1
    assert sum(r[3] == b"7" for r in whole[0].records) == 5000
    assert whole[0].records[-1][3] == b"END 7" or b"PROGRESS" in (whole[0].records[-1][3] or b"")


def test_a_full_batch_is_committed_although_more_waits(bench: BenchFactory) -> None:
    limits = LimitsTable(max_batch_records=1000)
    frames = [f for xid in range(1, 101) for f in transaction(xid, 1000 * xid, rows=99)]
    b = bench([frames], limits=limits)

    b.pipeline.run()

    sizes = [len(c.records) for c in b.sink.committed]
    assert sum(sizes) >= 10_000
    assert max(sizes) < 1000 + 100 + 10  # a transaction more, and PROGRESS
    assert all(b.watermark is not None for b in b.sink.batches)


@pytest.mark.parametrize(
    ("topics", "delay", "most"),
    [(9, 0, 1_000), (20, 0, 20_000), (20, 2_500, 3_200)],
    ids=["few topics", "many topics", "many topics, slow broker"],
)
def test_what_has_few_records_for_each_of_many_topics_is_committed_less_often(
    bench: BenchFactory, topics: int, delay: int, most: int
) -> None:
    # A turn takes a millisecond and more: of a slow broker, a piece takes more than two seconds.
    limits = LimitsTable(max_batch_records=1000)
    frames = [f for xid in range(1, 1001) for f in transaction(xid, 1000 * xid, rows=49)]
    b = bench([frames], sink=FakeSink(delay=delay), limits=limits, stop_at=1_000_010)
    b.router.topics = topics

    b.pipeline.run()

    piece = max(1_000, 80 * topics)
    sizes = [len(c.records) for c in b.sink.committed]
    assert sum(sizes) >= 50_000
    assert most <= max(sizes) < most + piece + 50 + 10
    assert not any(batch.kept for batch in b.sink.batches if batch.watermark is None)
    ends = [v for v in b.values() if v.startswith(b"END")]
    assert ends == [b"END %d" % xid for xid in range(1, 1001)]


@pytest.mark.parametrize(("topics", "size"), [(1, 2_000), (25, 2_000), (50, 4_000), (200, 6_000)])
def test_of_many_topics_more_is_gathered_so_that_each_gets_a_request_worth_sending(
    bench: BenchFactory, topics: int, size: int
) -> None:
    # After each turn a batch is older than max_batch_ms, which does not cut it short here.
    limits = LimitsTable(max_batch_records=2_000, max_batch_ms=1)
    frames = [f for xid in range(1, 5_001) for f in transaction(xid, 1000 * xid, rows=4)]
    b = bench([frames], limits=limits, stop_at=5_000_010)
    b.router.topics = topics

    b.pipeline.run()

    *sizes, _ = (len(batch.records) for batch in b.sink.batches if batch.records)
    assert size <= min(sizes) <= max(sizes) < size + 50


@pytest.mark.parametrize(
    ("rows", "kept"), [(3_000, True), (18_000, False)], ids=["a few pieces", "many pieces"]
)
def test_pieces_are_kept_only_where_all_of_them_can_be(
    bench: BenchFactory, rows: int, kept: bool
) -> None:
    limits = LimitsTable(max_batch_records=2_000)
    b = bench([transaction(7, 2000, rows), transaction(8, 20_000)], limits=limits)

    b.pipeline.run()

    pieces = [batch for batch in b.sink.batches if batch.watermark is None]
    assert pieces
    assert {batch.kept for batch in pieces} == {kept}
    assert all(batch.kept for batch in b.sink.batches if batch.watermark is not None)


def test_a_piece_that_is_larger_because_of_its_many_topics_is_not_kept(
    bench: BenchFactory,
) -> None:
    limits = LimitsTable(max_batch_records=1_000)
    small = [f for xid in range(1, 201) for f in transaction(xid, 1000 * xid, rows=4)]
    b = bench([small + transaction(201, 300_000, rows=3_000)], limits=limits)
    b.router.topics = 200

    b.pipeline.run()

    first, *_ = (batch for batch in b.sink.batches if batch.watermark is None)
    assert len(first.records) >= 3_000
    assert not first.kept


def test_idle_positions_advance_the_slot_with_a_progress_marker(bench: BenchFactory) -> None:
    b = bench([[keepalive(5000)]])

    b.pipeline.run()

    assert b.pipeline.durable.end_lsn == 5000
    assert b.values()[-1] == b"PROGRESS s 5000"


def test_a_keepalive_inside_a_transaction_moves_nothing(bench: BenchFactory) -> None:
    frames = transaction(7, 2000)
    b = bench([[*frames[:2], keepalive(1990)]])

    b.pipeline.run()

    assert b.pipeline.durable.end_lsn == START


def test_progress_goes_also_to_the_subscriptions_that_had_no_end(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000)], subscriptions=("s", "idle"), routed=("s",))

    b.pipeline.run()

    assert b"PROGRESS idle 2010" in b.values()


def test_progress_is_limited_to_one_in_an_interval(bench: BenchFactory) -> None:
    turns = [[keepalive(2000 + n)] for n in range(50)]
    b = bench(turns, limits=LimitsTable(progress_interval_s=1000.0))

    b.pipeline.run()

    # One at the start, one at the stop.
    assert sum(v.startswith(b"PROGRESS") for v in b.values()) == 2


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(transaction(8, 3000), id="passed by a later transaction"),
        pytest.param([keepalive(2010)], id="reached by a keepalive"),
        pytest.param([keepalive(9000)], id="passed by a keepalive"),
    ],
)
def test_endpos_publishes_up_to_it_and_stops(bench: BenchFactory, frames: list[bytes]) -> None:
    b = bench([transaction(7, 2000), frames], endpos=2010, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert [v for v in b.values() if v.startswith(b"END")] == [b"END 7"]
    assert b.pipeline.durable.end_lsn == 2010


def test_endpos_that_was_published_before_still_gets_its_marker(bench: BenchFactory) -> None:
    b = bench([[keepalive(1000)]], endpos=900, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert b.values()[-1] == b"PROGRESS s 1000"


def test_endpos_inside_a_commit_record_is_published_but_never_confirmed(
    bench: BenchFactory,
) -> None:
    # The next transaction's commit record is at 3000 to 3010. A server whose slot is confirmed
    # between them would skip it.
    b = bench([transaction(7, 2000), transaction(8, 3000)], endpos=3005, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert b.values()[-1] == b"PROGRESS s 3005"
    assert b.pipeline.durable.end_lsn == 3000
    assert b.source.feedback[-1] == 3000


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(transaction(9, 4000), id="transaction"),
        pytest.param([message(4000, b"m")], id="message"),
        pytest.param([keepalive(5000)], id="keepalive"),
    ],
)
def test_what_comes_with_the_transaction_after_endpos_moves_nothing(
    bench: BenchFactory, after: list[bytes]
) -> None:
    b = bench([transaction(7, 2000), transaction(8, 3000) + after], endpos=3005, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert b.pipeline.durable.end_lsn == 3000
    assert b.source.feedback[-1] == 3000
    assert b"m" not in b.values()


def test_a_message_after_endpos_is_not_published(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000), [message(2500, b"m")]], endpos=2400, stop_after=10_000)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS

    assert b"m" not in b.values()
    assert b.pipeline.durable.end_lsn == 2400


def test_endpos_waits_for_the_server_to_pass_it(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000), [keepalive(2400)]], endpos=2500)

    assert b.pipeline.run() is Outcome.STOPPED


def test_stop_commits_what_is_complete_and_leaves_the_rest(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000) + transaction(8, 3000)[:2]], stop_after=0)

    assert b.pipeline.run() is Outcome.STOPPED

    assert [v for v in b.values() if v.startswith(b"END")] == [b"END 7"]
    assert b.pipeline.durable.end_lsn == 2010


def test_stop_gives_up_when_the_sink_does_not_commit_in_time(bench: BenchFactory) -> None:
    limits = LimitsTable(shutdown_timeout_s=0.2)
    b = bench([transaction(7, 2000)], sink=FakeSink(delay=10**9), limits=limits, stop_after=0)

    assert b.pipeline.run() is Outcome.STOPPED

    assert b.pipeline.durable.end_lsn == START
    assert set(b.source.feedback) == {START}


@pytest.mark.parametrize(
    ("turn_s", "expected"), [(0.01, False), (0.3, True)], ids=["for a moment", "for longer"]
)
def test_what_does_not_fit_into_memory_waits_at_the_server_and_then_on_disk(
    bench: BenchFactory, turn_s: float, expected: bool
) -> None:
    limits = LimitsTable(max_buffer_bytes=1, max_batch_records=1)
    turns = [transaction(xid, 1000 + 100 * xid) for xid in range(1, 6)]
    b = bench(turns, sink=FakeSink(delay=3), limits=limits, stop_after=500)

    spool = 0

    def counted() -> int:
        nonlocal spool
        moved = Receiver.spool(b.receiver)
        spool += moved
        return moved

    def wait() -> None:
        b.clock.advance(turn_s)
        Receiver.defer(b.receiver)

    b.receiver.spool = counted  # type: ignore[method-assign]
    b.receiver.defer = wait  # type: ignore[method-assign]

    b.pipeline.run()

    assert (spool > 0) is expected
    ends = [v for v in b.values() if v.startswith(b"END")]
    assert ends == [b"END %d" % xid for xid in range(1, 6)]


def test_messages_outside_transactions_are_published_once(bench: BenchFactory) -> None:
    b = bench([[message(990, b"old")], [message(1000, b"at the watermark")]])

    b.pipeline.run()

    assert [v for v in b.values() if not v.startswith(b"PROGRESS")] == [b"at the watermark"]
    assert b.pipeline.durable.end_lsn == 1001


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
    b = bench([transaction(7, 2000), transaction(8, 2490), transaction(9, 3000)], switch=switch)

    assert b.pipeline.run() is Outcome.REACHED_SWITCH

    # 2490 + 10 = 2500 is the point itself.
    assert [v for v in b.values() if v.startswith(b"END")] == [b"END 7", b"END 8"]
    assert b.pipeline.durable.end_lsn == 2500


def test_what_comes_while_a_switch_holds_waits_for_its_point(bench: BenchFactory) -> None:
    switch = ScriptedSwitch(hold=1, point=2500)
    b = bench([transaction(7, 2000), transaction(8, 3000)], switch=switch)

    assert b.pipeline.run() is Outcome.REACHED_SWITCH

    assert [v for v in b.values() if v.startswith(b"END")] == [b"END 7"]
    assert b.pipeline.durable.end_lsn == 2500


def test_an_endpos_before_the_switch_ends_the_loop_first(bench: BenchFactory) -> None:
    switch = ScriptedSwitch(hold=1, point=5000)
    b = bench([transaction(7, 2000), [keepalive(2600)]], switch=switch, endpos=2500)

    assert b.pipeline.run() is Outcome.REACHED_ENDPOS


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
    b = bench([transaction(7, 2000)], switch=switch)

    assert b.pipeline.run() is Outcome.REACHED_SWITCH

    assert not any(v.startswith(b"END") for v in b.values())
    assert b.pipeline.durable.end_lsn == 1500
