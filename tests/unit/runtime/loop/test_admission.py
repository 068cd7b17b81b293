"""Which events of a stream are routed, as a table, and what may be confirmed meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from gateway.core.errors import FatalError, SlotError
from gateway.core.lsn import Lsn
from gateway.core.watermark import LastCommit, Watermark
from gateway.pgoutput.messages import LogicalMessage
from gateway.runtime.loop.admission import Admission, Disposition
from gateway.runtime.loop.transaction_queue import Item
from gateway.transactions import (
    Assembler,
    CommitWithoutRows,
    PreparedTransaction,
    RolledBack,
    Series,
    StandaloneMessage,
    Transaction,
)
from tests.support.gateway.pipeline_scene import transaction
from tests.support.models.stream import commit_prepared

QUEUE, KNOWN, BEYOND, SPLIT = Disposition
START = Lsn(1000)
LAST = LastCommit(Lsn(990), 6, 0)


def admission(last: LastCommit | None = None, confirmed: int | None = None) -> Admission:
    watermark = Watermark(START, 1, "f", (), last)
    slot = None if confirmed is None else Lsn(confirmed)
    return Admission(watermark, slot)


def one(commit_lsn: int, *, series: bool = False) -> Transaction | Series:
    """A transaction that ends 10 bytes after its commit LSN."""
    (event,) = Assembler(series=series).push(transaction(7, commit_lsn))
    assert isinstance(event, Transaction | Series)
    return event


def message(lsn: int) -> StandaloneMessage:
    return StandaloneMessage(LogicalMessage(False, Lsn(lsn), "p", b""), Lsn(lsn))


def prepared(end_lsn: int) -> PreparedTransaction:
    return PreparedTransaction(7, "g", Lsn(end_lsn - 10), Lsn(end_lsn), 0)


def rolled_back(end_lsn: int) -> RolledBack:
    return RolledBack(7, "g", Lsn(1), Lsn(end_lsn), 0, 0)


KINDS = [
    pytest.param(lambda end: one(end - 10), id="transaction"),
    pytest.param(lambda end: message(end - 1), id="message"),
    pytest.param(prepared, id="prepare"),
    pytest.param(rolled_back, id="rollback"),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("end_lsn", "limit", "verdict"),
    [
        (900, None, KNOWN),
        (1000, None, KNOWN),
        (1001, None, QUEUE),
        (1001, 1001, QUEUE),
        (1001, 1000, BEYOND),
        (1000, 1000, KNOWN),
        (1000, 999, BEYOND),
        (9000, 8000, BEYOND),
    ],
)
def test_what_ends_after_the_watermark_and_before_the_limit_is_routed(
    kind: Callable[[int], Item], end_lsn: int, limit: int | None, verdict: Disposition
) -> None:
    given = None if limit is None else Lsn(limit)

    assert admission(LAST).judge(kind(end_lsn), given) is verdict


@pytest.mark.parametrize(
    ("commit_lsn", "limit", "verdict"),
    [
        pytest.param(2000, None, QUEUE, id="as a whole"),
        pytest.param(2000, 2010, QUEUE, id="up to the limit"),
        pytest.param(2000, 2009, SPLIT, id="across the limit"),
        pytest.param(1000, None, SPLIT, id="begins at the watermark"),
        pytest.param(990, None, SPLIT, id="known"),
    ],
)
def test_a_series_is_split_where_one_of_it_needs_a_decision(
    commit_lsn: int, limit: int | None, verdict: Disposition
) -> None:
    series = one(commit_lsn, series=True)
    if not isinstance(series, Series):
        pytest.skip("short transactions come in series only where C was built")
    given = None if limit is None else Lsn(limit)

    assert admission().judge(series, given) is verdict


def flushed(
    judge: Admission, events: Iterable[Transaction | PreparedTransaction | RolledBack], durable: int
) -> int:
    for event in events:
        judge.judge(event, None)
    return judge.flush_lsn(Lsn(durable))


def test_nothing_is_confirmed_that_was_not_received_or_is_prepared() -> None:
    judge = admission(confirmed=500)

    assert flushed(judge, [], 1000) == 500
    judge.advance(Lsn(700))
    assert flushed(judge, [], 1000) == 700
    judge.advance(Lsn(5000))
    assert flushed(judge, [prepared(2000)], 4000) == 1990
    assert flushed(judge, [], 4000) == 1990  # asked again, nothing has changed
    assert flushed(judge, [rolled_back(4000)], 4000) == 4000


def test_a_stream_of_another_history_is_refused() -> None:
    judge = admission(LAST, confirmed=500)

    with pytest.raises(SlotError, match="does not have transaction 6"):
        judge.judge(one(2000), None)


def without_rows(end_lsn: int) -> CommitWithoutRows:
    """COMMIT PREPARED of what was prepared before the slot's position."""
    frame = commit_prepared(7, end_lsn - 8, "g")
    (event,) = Assembler(version=3).push([frame])
    assert isinstance(event, CommitWithoutRows)
    return event


def test_rows_that_are_not_sent_again_matter_only_if_kafka_lacks_them() -> None:
    judge = admission(confirmed=500)

    assert judge.judge(without_rows(900), None) is KNOWN
    assert judge.judge(without_rows(1000), None) is KNOWN
    with pytest.raises(FatalError, match="its rows are not here"):
        judge.judge(without_rows(1001), None)


@pytest.mark.parametrize("event", [message(2000), prepared(2000), rolled_back(2000)])
def test_nothing_of_another_history_is_routed(event: Item) -> None:
    with pytest.raises(SlotError, match="does not have transaction 6"):
        admission(LAST, confirmed=500).judge(event, None)
