"""Rows of a copy have their place between two transactions, and nobody waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from gateway.config import LimitsTable
from gateway.core.descriptors import wait_readable
from gateway.core.lsn import Lsn
from gateway.core.watermark import Watermark
from gateway.observe import Counters
from gateway.runtime.loop.pipeline import Outcome, Pipeline
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.loop.stream_position import Ends
from gateway.transactions import Assembler
from tests.support.gateway.fakes import FakeCopier, FakeRouter, FakeSink, FakeSource, ManualClock
from tests.support.gateway.pipeline_scene import FORMS, transaction
from tests.support.models.pgoutput_encode import keepalive

START = Lsn(1000)
Run = Callable[..., tuple[Outcome, list[bytes]]]


@pytest.fixture
def sink() -> Iterator[FakeSink]:
    with closing(FakeSink()) as sink:
        yield sink


@pytest.fixture(params=FORMS)
def run(sink: FakeSink, request: pytest.FixtureRequest) -> Iterator[Run]:
    with ExitStack() as stack:

        def run(
            turns: Sequence[Sequence[bytes]], copier: FakeCopier, endpos: int | None = None
        ) -> tuple[Outcome, list[bytes]]:
            asked = 0

            def stopping() -> bool:
                nonlocal asked
                asked += 1
                return asked > len(turns) + 20

            stack.enter_context(closing(copier))
            pipeline = Pipeline(
                Receiver(stack.enter_context(closing(FakeSource(turns)))),
                sink,
                Assembler(series=request.param),
                FakeRouter(()),
                Watermark(START, 1, "f", ()),
                (),
                LimitsTable(),
                Counters(),
                ends=Ends(None if endpos is None else Lsn(endpos), stopping),
                clock=ManualClock(),
            )
            outcome = pipeline.run(copier)
            return outcome, [r[3] or b"" for batch in sink.committed for r in batch.records]

        yield run


def test_rows_go_out_before_the_first_transaction_at_or_behind_their_position(run: Run) -> None:
    copier = FakeCopier([(2500, b"rows")])

    _, values = run([transaction(7, 2000) + transaction(8, 2500) + transaction(9, 3000)], copier)

    assert values == [b"7", b"END 7", b"rows", b"8", b"END 8", b"9", b"END 9"]
    assert copier.placed == [2500]


def test_rows_that_come_late_are_placed_where_the_stream_is(run: Run) -> None:
    copier = FakeCopier([(1500, b"rows")])

    _, values = run([transaction(7, 2000), []], copier)

    # Before the first transaction the stream is not known to have got anywhere.
    assert values in ([b"rows", b"7", b"END 7"], [b"7", b"END 7", b"rows"])
    assert copier.placed[0] in (1500, 2010)


def test_on_an_idle_stream_a_keepalive_tells_that_their_place_is_reached(
    run: Run, sink: FakeSink
) -> None:
    copier = FakeCopier([(5000, b"rows")])

    _, values = run([[keepalive(4999)], [], [keepalive(5000)], []], copier)

    assert values == [b"rows"]
    assert copier.placed == [5000]
    assert sink.committed[-1].watermark is not None
    assert sink.committed[-1].watermark.end_lsn == 5000


def test_how_far_the_copy_is_is_committed_with_its_rows(run: Run, sink: FakeSink) -> None:
    copier = FakeCopier([(1500, b"first"), (3000, b"second")])

    run([[keepalive(2000)], [], [], [keepalive(3000)], [], []], copier)

    for batch in sink.committed:
        watermark = batch.watermark
        assert watermark is not None
        placed = [r[3] for one in sink.committed[: sink.committed.index(batch) + 1]
                  for r in one.records]  # fmt: skip
        (state,) = watermark.copies
        assert state.progress.copied == (b"%d" % len(placed),)


def test_endpos_does_not_end_the_loop_before_all_tables_are_copied(run: Run) -> None:
    copier = FakeCopier([(3500, b"rows")])

    outcome, values = run(
        [transaction(7, 2000), transaction(8, 3000), [keepalive(3500)], [], transaction(9, 4000)],
        copier,
        endpos=2010,
    )

    assert outcome is Outcome.REACHED_ENDPOS
    assert values == [b"7", b"END 7", b"8", b"END 8", b"rows"]


def test_a_table_that_was_altered_ends_the_loop_in_good_order(run: Run) -> None:
    outcome, values = run(
        [transaction(7, 2000)], FakeCopier([(1500, b"rows")], needs_successor=True)
    )

    assert outcome is Outcome.START_AGAIN
    assert b"rows" not in values


def test_where_transactions_come_they_wait_for_a_share_of_the_rows_that_are_due(
    run: Run,
) -> None:
    copier = FakeCopier([(1500, b"first"), (1500, b"second")], records=2000)

    _, values = run([transaction(6, 1200), transaction(7, 2000), []], copier)

    assert list(dict.fromkeys(values)) == [b"6", b"END 6", b"first", b"7", b"END 7", b"second"]
    assert copier.placed == [1500, 2010]


def test_rows_that_are_due_go_out_together_where_nothing_else_comes(run: Run) -> None:
    copier = FakeCopier([(1500, b"first"), (1500, b"second")], records=2000)

    _, values = run([transaction(7, 2000), []], copier)

    assert list(dict.fromkeys(values)) == [b"first", b"second", b"7", b"END 7"]


def test_full_batches_of_rows_share_a_kafka_transaction_where_nothing_else_comes(
    run: Run, sink: FakeSink
) -> None:
    copier = FakeCopier([(900, b"%d" % n) for n in range(12)], records=5_000)

    _, values = run([[], []], copier)

    assert list(dict.fromkeys(values)) == [b"%d" % n for n in range(12)]
    assert [batch.watermark is not None for batch in sink.batches[:8]] == [*[False] * 7, True]
    assert [len(batch.records) for batch in sink.committed[:2]] == [40_000, 20_000]


def test_full_batches_of_rows_are_committed_each_where_transactions_come(
    run: Run, sink: FakeSink
) -> None:
    copier = FakeCopier([(1500, b"%d" % n) for n in range(3)], records=5_000)

    run([transaction(6, 1200), transaction(7, 2000), [], []], copier)

    assert all(batch.watermark is not None for batch in sink.batches)


def test_rows_that_wait_for_a_batch_do_not_keep_the_loop_awake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    copier = FakeCopier([(1500, b"first"), (1500, b"second")], records=2000)
    turns = waits = 0

    def wait(edges: Iterable[int], timeout_s: float) -> frozenset[int]:
        nonlocal waits
        if copier.fileno() not in edges or not wait_readable([copier.fileno()], 0.0):
            waits += 1
            clock.advance(timeout_s)
        return frozenset()

    def stopping() -> bool:
        nonlocal turns
        turns += 1
        return turns > 100

    monkeypatch.setattr("gateway.runtime.loop.pipeline.wait_readable", wait)
    frames = [transaction(6, 1200), transaction(7, 2000)]
    with ExitStack() as stack:
        Pipeline(
            Receiver(stack.enter_context(closing(FakeSource(frames)))),
            stack.enter_context(closing(FakeSink(delay=1_000))),
            Assembler(),
            FakeRouter(()),
            Watermark(START, 1, "f", ()),
            (),
            LimitsTable(),
            Counters(),
            ends=Ends(stopping=stopping),
            clock=clock,
        ).run(stack.enter_context(closing(copier)))

    assert waits > 90


@pytest.mark.parametrize("series", FORMS)
def test_a_second_run_goes_on_in_the_middle_of_a_transaction_with_another_copier(
    sink: FakeSink, series: bool
) -> None:
    """As when a request for a copy is taken between two runs of the loop."""
    eight = transaction(8, 3000)
    renewed = 0
    turns = [transaction(7, 2000) + eight[:2], eight[2:] + transaction(9, 4000), []]

    def renew() -> bool:
        nonlocal renewed
        renewed += 1
        return renewed > 1

    asked = 0

    def stopping() -> bool:
        nonlocal asked
        asked += 1
        return asked > 20

    with ExitStack() as stack:
        source = stack.enter_context(closing(FakeSource(turns)))
        first = stack.enter_context(closing(FakeCopier([])))
        second = stack.enter_context(closing(FakeCopier([(2500, b"rows")])))
        pipeline = Pipeline(
            Receiver(source),
            sink,
            Assembler(series=series),
            FakeRouter(()),
            Watermark(START, 1, "f", ()),
            (),
            LimitsTable(),
            Counters(),
            ends=Ends(stopping=stopping),
            clock=ManualClock(),
        )
        assert pipeline.run(first, renew=renew) is Outcome.START_AGAIN
        assert [r[3] for batch in sink.committed for r in batch.records] == [b"7", b"END 7"]

        pipeline.go_on_from(replace(pipeline.durable, copies=second.states()))

        assert pipeline.run(second) is Outcome.STOPPED
    values = [r[3] for batch in sink.committed for r in batch.records]
    assert values == [b"7", b"END 7", b"rows", b"8", b"END 8", b"9", b"END 9"]
    assert pipeline.durable.end_lsn == 4010
    assert pipeline.durable.copies == second.states()
