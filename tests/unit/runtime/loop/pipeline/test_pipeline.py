"""The loop's promises, with scripted edges and a clock that only tests move."""

from __future__ import annotations

import pytest

from gateway.config import LimitsTable
from gateway.core.errors import SlotError, TransientError
from gateway.runtime.loop.pipeline import Outcome
from gateway.runtime.loop.receiver import Receiver
from tests.support.gateway.fakes import FakeSink
from tests.support.gateway.pipeline_scene import (
    START,
    BenchFactory,
    message,
    transaction,
)
from tests.support.models.pgoutput_encode import keepalive


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


def test_stop_commits_what_is_complete_and_leaves_the_rest(bench: BenchFactory) -> None:
    b = bench([transaction(7, 2000) + transaction(8, 3000)[:2]], stop_after=0)

    assert b.pipeline.run() is Outcome.STOPPED

    assert [v for v in b.values() if v.startswith(b"END")] == [b"END 7"]
    assert b.pipeline.durable.end_lsn == 2010


def test_stop_gives_up_when_the_sink_does_not_commit_in_time(bench: BenchFactory) -> None:
    sink = FakeSink(delay=10**9)
    b = bench([transaction(7, 2000)], sink=sink, stop_after=0, give_up_after=20)

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
