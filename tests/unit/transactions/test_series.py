"""Which transactions are given out together, and that all others are assembled as before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway._speedups.loader import INTERPRETED, load_compiled
from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn
from gateway.pgoutput.frames import Keepalive
from gateway.pgoutput.messages import Insert, LogicalMessage, Origin, StreamStart, StreamStop
from gateway.transactions import Assembler, Event, Series, Transaction
from tests.support.models.pgoutput_encode import keepalive, xlogdata
from tests.support.models.stream import (
    begin,
    begin_prepare,
    commit,
    frames_of,
    insert,
    prepare,
    relation,
    stream_commit,
)

SCANNED = not isinstance(load_compiled("scanning"), str)
MESSAGE = xlogdata(LogicalMessage(True, Lsn(90), "told", b"content"))
LARGE = xlogdata(Insert(1, (b"x" * 20_000,)))
HALF = xlogdata(Insert(1, (b"x" * 9_000,)))


@pytest.fixture
def assembler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Assembler]:
    monkeypatch.setenv(INTERPRETED, "0")
    made = Assembler(version=3, series=True)
    yield made
    made.close()


def one(xid: int, *rows: bytes) -> list[bytes]:
    """Frames of a transaction of these rows, else of one."""
    return [begin(xid, xid * 100), *(rows or (insert(xid),)), commit(xid, xid * 100)]


def sizes(events: list[Event]) -> list[int]:
    """Of each event, how many transactions it has as a series; 0: it is none."""
    return [len(event) if isinstance(event, Series) else 0 for event in events]


if SCANNED:

    def test_short_transactions_come_out_together_up_to_what_is_not_there_yet(
        assembler: Assembler,
    ) -> None:
        first = assembler.push([*one(7), *one(8, insert(1), insert(2)), *one(9)[:2]])
        second = assembler.push([*one(9)[2:], *one(10)])

        assert (sizes(first), sizes(second)) == ([2], [0, 1])
        (series,) = first
        assert isinstance(series, Series)
        assert (series.commit_lsn, series.commit_time, series.end_lsn) == (700, 1007, 808)
        seven, eight = series.pop(), series.pop()
        assert not series
        assert frames_of(seven) == [insert(7)]
        assert (eight.xid, eight.commit_lsn, eight.end_lsn) == (8, 800, 808)
        assert (eight.message_count, eight.byte_size) == (2, 2 * len(insert(1)))
        assert isinstance(second[0], Transaction)

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(one(8, relation(), insert(1)), id="announces a relation"),
            pytest.param(one(8, xlogdata(Origin(Lsn(1), "o")), insert(1)), id="has an origin"),
            pytest.param(one(8, MESSAGE), id="has a message"),
            pytest.param([begin(8, 800), commit(8, 800)], id="is empty"),
            pytest.param(one(8, *[insert(n) for n in range(17)]), id="has many rows"),
            pytest.param(one(8, LARGE), id="has a large row"),
            pytest.param(one(8, HALF, HALF), id="has large rows"),
            pytest.param(
                [
                    *(xlogdata(StreamStart(8, True)), insert(1, xid=8), xlogdata(StreamStop())),
                    stream_commit(8, 800),
                ],
                id="is streamed",
            ),
            pytest.param(
                [begin_prepare(8, 800, "g"), insert(1), prepare(8, 800, "g")], id="is prepared"
            ),
            pytest.param([keepalive(750)], id="is none"),
        ],
    )
    def test_every_other_transaction_ends_a_series(
        assembler: Assembler, other: list[bytes]
    ) -> None:
        events = assembler.push([*one(7), *other, *one(9), *one(10)])

        assert sizes(events) == [1, 0, 2]

    def test_as_many_rows_as_a_short_transaction_may_have(assembler: Assembler) -> None:
        events = assembler.push(one(7, *[insert(n) for n in range(16)]))

        assert sizes(events) == [1]

    def test_a_keepalive_keeps_its_place(assembler: Assembler) -> None:
        events = assembler.push([*one(7), keepalive(750), *one(8)])

        assert sizes(events) == [1, 0, 1]
        assert isinstance(events[1], Keepalive)

    def test_nothing_is_scanned_where_that_is_switched_off(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv(INTERPRETED, "1")

        assert sizes(Assembler(series=True).push([*one(7), *one(8)])) == [0, 0]

    def test_memory_is_what_the_frames_cost(assembler: Assembler) -> None:
        frames = [*one(7), *one(8)]
        (series,) = assembler.push(frames)

        assert isinstance(series, Series)
        assert series.memory == sum(len(frame) + 48 for frame in frames)


@pytest.mark.parametrize(
    "ended",
    [
        pytest.param(commit(7, 701), id="at another position"),
        pytest.param(commit(8, 700), id="at another time"),
    ],
)
def test_a_commit_that_was_not_announced_is_refused(assembler: Assembler, ended: bytes) -> None:
    with pytest.raises(ProtocolError, match="announced a commit at"):
        assembler.push([begin(7, 700), insert(1), ended])
