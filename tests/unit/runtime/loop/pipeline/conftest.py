"""The pipeline that the tests of the loop run, with both forms of short transactions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from gateway.config import LimitsTable
from gateway.core.lsn import Lsn
from gateway.core.watermark import Watermark
from gateway.observe import Counters, OnBatch
from gateway.runtime.loop.pipeline import Pipeline
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.loop.stream_position import Ends
from gateway.transactions import Assembler
from tests.support.gateway.fakes import FakeRouter, FakeSink, FakeSource, ManualClock
from tests.support.gateway.pipeline_scene import (
    FORMS,
    LAST,
    START,
    Bench,
    BenchFactory,
)


@pytest.fixture(params=FORMS)
def bench(request: pytest.FixtureRequest) -> Iterator[BenchFactory]:
    made: list[Bench] = []

    def make(
        turns: Sequence[Sequence[bytes]],
        *,
        replies: Sequence[Sequence[bytes]] = (),
        sink: FakeSink | None = None,
        endpos: int | None = None,
        limits: LimitsTable | None = None,
        subscriptions: Sequence[str] = ("s",),
        routed: Sequence[str] = ("s",),
        stop_after: int = 20,
        stop_at: int | None = None,
        give_up_after: int | None = None,
        confirmed: int | None = None,
        series: bool = True,
        on_batch: OnBatch | None = None,
    ) -> Bench:
        clock = ManualClock()
        source = FakeSource(turns, replies)
        used = sink or FakeSink()
        router, counters = FakeRouter(routed), Counters()
        asked = 0

        def stopping() -> bool:
            nonlocal asked
            asked += 1
            if stop_at is not None:
                return pipeline.durable.end_lsn >= stop_at
            return asked > len(turns) + stop_after

        def time_is_up() -> bool:
            return give_up_after is not None and asked > len(turns) + give_up_after

        receiver = Receiver(source, clock=clock)
        watermark = Watermark(START, 1, "f", (), LAST)
        pipeline = Pipeline(
            receiver,
            used,
            Assembler(series=request.param and series),
            router,
            watermark,
            subscriptions,
            limits or LimitsTable(),
            counters,
            ends=Ends(None if endpos is None else Lsn(endpos), stopping, time_is_up),
            confirmed_lsn=None if confirmed is None else Lsn(confirmed),
            clock=clock,
            on_batch=on_batch,
        )
        made.append(Bench(source, receiver, used, router, pipeline, clock, counters))
        return made[-1]

    yield make
    for one in made:
        one.receiver.close()
        one.sink.close()
