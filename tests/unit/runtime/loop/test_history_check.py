"""A stream that does not continue what Kafka has is refused before anything of it is dropped."""

from __future__ import annotations

import pytest

from gateway.core.errors import SlotError
from gateway.core.lsn import Lsn
from gateway.core.watermark import LastCommit, Watermark
from gateway.pgoutput.messages import Begin, Commit, Insert, LogicalMessage
from gateway.runtime.loop.history_check import HistoryCheck
from gateway.transactions import Assembler, Transaction
from tests.support.models.pgoutput_encode import xlogdata

LAST = LastCommit(Lsn(900), xid=7, commit_time=5)
WATERMARK = Watermark(Lsn(1000), 1, "d", (), LAST)


def transaction(commit_lsn: int, xid: int, *, time: int = 5, rows: bool = True) -> Transaction:
    """One that ends 10 bytes behind its commit LSN."""
    change = Insert(1, (b"1",)) if rows else LogicalMessage(True, Lsn(commit_lsn - 1), "p", b"")
    (event,) = Assembler().push(
        [
            xlogdata(Begin(Lsn(commit_lsn), time, xid), wal_start=commit_lsn - 5),
            xlogdata(change, wal_start=commit_lsn - 4),
            xlogdata(Commit(0, Lsn(commit_lsn), Lsn(commit_lsn + 10), time), wal_start=commit_lsn),
        ]
    )
    assert isinstance(event, Transaction)
    return event


GOOD = [
    pytest.param(800, [transaction(850, 6), transaction(900, 7), transaction(995, 8)], id="again"),
    pytest.param(900, [transaction(900, 7), transaction(2000, 8)], id="from there on"),
    pytest.param(901, [transaction(995, 8)], id="confirmed"),
    pytest.param(901, [transaction(950, 8, rows=False), transaction(995, 9)], id="a message"),
    pytest.param(None, [transaction(995, 8)], id="a new slot"),
]


@pytest.mark.parametrize(("confirmed", "stream"), GOOD)
def test_a_stream_that_continues_passes(confirmed: int | None, stream: list[Transaction]) -> None:
    history = HistoryCheck(WATERMARK, None if confirmed is None else Lsn(confirmed))

    for one in stream:
        history.check(one)
    history.reach(Lsn(5000))


@pytest.mark.parametrize(
    ("confirmed", "stream", "said"),
    [
        pytest.param(800, [transaction(900, 6)], "does not have transaction 7", id="another xid"),
        pytest.param(
            800, [transaction(900, 7, time=6)], "does not have transaction 7", id="another time"
        ),
        pytest.param(800, [transaction(901, 7)], "does not have transaction 7", id="another place"),
        pytest.param(
            800,
            [transaction(850, 6), transaction(995, 8)],
            "does not have transaction 7",
            id="passed over",
        ),
        pytest.param(
            901, [transaction(950, 8)], "only its WAL has transaction 8", id="not in Kafka"
        ),
        pytest.param(
            800,
            [transaction(900, 7), transaction(950, 8)],
            "only its WAL has transaction 8",
            id="not in Kafka, behind the last",
        ),
    ],
)
def test_a_stream_that_does_not_is_refused(
    confirmed: int, stream: list[Transaction], said: str
) -> None:
    history = HistoryCheck(WATERMARK, Lsn(confirmed))

    with pytest.raises(SlotError, match=said) as caught:
        for one in stream:
            history.check(one)

    assert "pgsluice slot drop" in (caught.value.hint or "")


def test_a_server_that_is_idle_beyond_it_is_refused() -> None:
    history = HistoryCheck(WATERMARK, Lsn(800))
    history.reach(Lsn(900))

    with pytest.raises(SlotError, match="does not have transaction 7"):
        history.reach(Lsn(901))


def test_a_watermark_that_no_transaction_has_reached_covers_none() -> None:
    history = HistoryCheck(Watermark(Lsn(1000), 1, "d", ()), Lsn(800))

    with pytest.raises(SlotError, match="only its WAL has transaction 3"):
        history.check(transaction(850, 3))
