from collections.abc import Iterator
from typing import TypeVar

import pytest

from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn
from gateway.pgoutput.frames import Keepalive
from gateway.pgoutput.messages import (
    LogicalMessage,
    Origin,
    StreamAbort,
    StreamStart,
    StreamStop,
)
from gateway.transactions import (
    Assembler,
    CommitWithoutRows,
    Event,
    PreparedTransaction,
    RolledBack,
    StandaloneMessage,
    Transaction,
)
from tests.support.models.pgoutput_encode import keepalive, xlogdata
from tests.support.models.stream import (
    begin,
    begin_prepare,
    commit,
    commit_prepared,
    frames_of,
    insert,
    prepare,
    relation,
    rollback_prepared,
    stream_commit,
    stream_prepare,
)

T = TypeVar("T", bound=Event)


def start(xid: int, *, first: bool = True) -> bytes:
    return xlogdata(StreamStart(xid, first))


def abort(xid: int, subxid: int) -> bytes:
    return xlogdata(StreamAbort(xid, subxid))


STOP = xlogdata(StreamStop())
ORIGIN = Origin(Lsn(77), "elsewhere")


@pytest.fixture
def assembler() -> Iterator[Assembler]:
    made = Assembler(version=3)
    yield made
    made.close()


def only(events: list[Event], kind: type[T]) -> T:
    (event,) = events
    assert isinstance(event, kind)
    return event


def test_transaction_comes_out_at_its_commit(assembler: Assembler) -> None:
    rows = [relation(), insert(1), insert(2)]

    assert assembler.push([begin(7, 100), *rows]) == []
    transaction = only(assembler.push([commit(7, 100)]), Transaction)

    assert (transaction.xid, transaction.commit_lsn, transaction.end_lsn) == (7, 100, 108)
    assert transaction.commit_time == 1007
    assert (transaction.origin, transaction.gid, transaction.streamed) == (None, None, False)
    assert transaction.message_count == 3
    assert transaction.byte_size == sum(map(len, rows))
    assert list(transaction.frames()) == [rows]


def test_frames_can_be_read_again_until_release(assembler: Assembler) -> None:
    (transaction,) = assembler.push([begin(7, 100), insert(1), commit(7, 100)])
    assert isinstance(transaction, Transaction)

    assert list(transaction.frames()) == list(transaction.frames()) == [[insert(1)]]
    transaction.release()
    transaction.release()

    assert list(transaction.frames()) == []
    assert transaction.message_count == 1


def test_empty_transaction_comes_out_too(assembler: Assembler) -> None:
    transaction = only(assembler.push([begin(7, 100), commit(7, 100)]), Transaction)

    assert frames_of(transaction) == []


def test_origin_belongs_to_its_transaction_only(assembler: Assembler) -> None:
    events = assembler.push(
        [begin(7, 100), xlogdata(ORIGIN), commit(7, 100), begin(8, 200), commit(8, 200)]
    )

    assert [e.origin for e in events if isinstance(e, Transaction)] == [ORIGIN, None]


def test_keepalive_comes_out_between_the_frames(assembler: Assembler) -> None:
    event = only(assembler.push([begin(7, 100), insert(1), keepalive(99)]), Keepalive)
    transaction = only(assembler.push([insert(2), commit(7, 100)]), Transaction)

    assert event == Keepalive(Lsn(99), 0, False)
    assert frames_of(transaction) == [insert(1), insert(2)]


def test_message_outside_of_transactions_comes_out_at_once(assembler: Assembler) -> None:
    message = LogicalMessage(False, Lsn(90), "prefix", b"content")

    event = only(assembler.push([xlogdata(message, wal_start=91)]), StandaloneMessage)

    assert event == StandaloneMessage(message, Lsn(91))


def test_transactional_message_waits_for_the_commit(assembler: Assembler) -> None:
    message = xlogdata(LogicalMessage(True, Lsn(90), "prefix", b"content"))

    transaction = only(assembler.push([begin(7, 100), message, commit(7, 100)]), Transaction)

    assert frames_of(transaction) == [message]


def test_streamed_transactions_come_out_in_commit_order(assembler: Assembler) -> None:
    events = assembler.push(
        [
            *(start(7), xlogdata(ORIGIN), insert(1, xid=7), STOP),
            *(start(8), insert(2, xid=8), STOP),
            *(begin(9, 100), insert(3), commit(9, 100)),
            *(start(7, first=False), insert(4, xid=7), STOP),
            stream_commit(8, 200),
            stream_commit(7, 300),
        ]
    )

    transactions = [event for event in events if isinstance(event, Transaction)]
    assert [(t.xid, t.commit_lsn, t.end_lsn, t.streamed) for t in transactions] == [
        (9, 100, 108, False),
        (8, 200, 208, True),
        (7, 300, 308, True),
    ]
    assert [t.origin for t in transactions] == [None, None, ORIGIN]
    assert [frames_of(t) for t in transactions] == [
        [insert(3)],
        [insert(2, xid=8)],
        [insert(1, xid=7), insert(4, xid=7)],
    ]


def test_aborted_transaction_leaves_nothing(assembler: Assembler) -> None:
    assert assembler.push([start(7), insert(1, xid=7), STOP, abort(7, 7)]) == []

    with pytest.raises(ProtocolError, match="transaction 7 has no stream block"):
        assembler.push([stream_commit(7, 100)])


def test_aborted_subtransaction_leaves_only_what_it_announced(assembler: Assembler) -> None:
    block = [relation(1, xid=7), insert(1, xid=7), relation(2, xid=8), insert(2, xid=8)]
    later = [insert(3, xid=9), insert(4, xid=7)]

    (transaction,) = assembler.push(
        [
            *(start(7), *block, STOP, abort(7, 8)),
            *(start(7, first=False), *later, STOP),
            stream_commit(7, 100),
        ]
    )

    assert isinstance(transaction, Transaction)
    assert frames_of(transaction) == [*block[:3], *later]


def test_prepared_rows_are_held_until_commit_prepared(assembler: Assembler) -> None:
    prepared = only(
        assembler.push(
            [begin_prepare(7, 100, "g"), xlogdata(ORIGIN), insert(1), prepare(7, 100, "g")]
        ),
        PreparedTransaction,
    )
    between = only(assembler.push([begin(8, 150), commit(8, 150)]), Transaction)
    transaction = only(assembler.push([commit_prepared(7, 200, "g")]), Transaction)

    assert prepared == PreparedTransaction(7, "g", Lsn(100), Lsn(108), 500)
    assert between.xid == 8
    assert (transaction.xid, transaction.gid, transaction.origin) == (7, "g", ORIGIN)
    assert (transaction.commit_lsn, transaction.end_lsn) == (200, 208)
    assert (transaction.commit_time, transaction.streamed) == (1007, False)
    assert frames_of(transaction) == [insert(1)]


def test_a_prepare_says_which_relations_it_announced(assembler: Assembler) -> None:
    # To transactions that commit before COMMIT PREPARED the server does not announce them again.
    frames = [begin_prepare(7, 100, "g"), relation(1), insert(1), relation(2), insert(2)]

    prepared = only(assembler.push([*frames, prepare(7, 100, "g")]), PreparedTransaction)

    assert prepared.relations == (relation(1), relation(2))
    assert not prepared.streamed


def test_streamed_transaction_can_be_prepared(assembler: Assembler) -> None:
    events = assembler.push(
        [
            *(start(7), insert(1, xid=7), insert(2, xid=8), STOP, abort(7, 8)),
            *(stream_prepare(7, 100, "g"), commit_prepared(7, 200, "g")),
        ]
    )

    assert events[0] == PreparedTransaction(7, "g", Lsn(100), Lsn(108), 500, streamed=True)
    transaction = only(events[1:], Transaction)
    assert (transaction.gid, transaction.streamed) == ("g", True)
    assert frames_of(transaction) == [insert(1, xid=7)]


def test_rolled_back_transaction_leaves_nothing(assembler: Assembler) -> None:
    assembler.push([begin_prepare(7, 100, "g"), insert(1), prepare(7, 100, "g")])

    event = only(assembler.push([rollback_prepared(7, 100, 300, "g")]), RolledBack)

    assert event == RolledBack(7, "g", Lsn(108), Lsn(300), 500, 900)
    assert not assembler.has_open_transactions


def test_rollback_of_what_was_prepared_before_is_reported(assembler: Assembler) -> None:
    assert only(assembler.push([rollback_prepared(7, 100, 300, "g")]), RolledBack).gid == "g"


def test_commit_of_what_was_prepared_before_has_no_rows(assembler: Assembler) -> None:
    commit = only(assembler.push([commit_prepared(7, 200, "g")]), CommitWithoutRows)

    assert (commit.xid, commit.gid, commit.commit_lsn, commit.end_lsn) == (7, "g", 200, 208)
    assert frames_of(commit) == []
    assert not commit.changes_rows
    assert "'g' (xid 7) at 0/C8: its rows are not here" in str(commit.error())
    assert commit.error().hint is not None


def test_gid_can_be_used_again(assembler: Assembler) -> None:
    once = [begin_prepare(7, 100, "g"), prepare(7, 100, "g"), commit_prepared(7, 200, "g")]
    again = [begin_prepare(8, 300, "g"), prepare(8, 300, "g"), commit_prepared(8, 400, "g")]

    events = assembler.push(once + again)

    assert [e.xid for e in events if isinstance(e, Transaction)] == [7, 8]


def test_position_is_not_safe_inside_a_transaction_or_stream_block(assembler: Assembler) -> None:
    def open_after(*frames: bytes) -> bool:
        assembler.push(frames)
        return assembler.has_open_transactions

    assert not open_after()
    assert open_after(begin(7, 100))
    assert not open_after(commit(7, 100))
    assert open_after(start(8))
    assert not open_after(STOP)
    assert open_after(begin_prepare(9, 150, "a"))
    assert not open_after(prepare(9, 150, "a"))
    assert not open_after(stream_prepare(8, 170, "b"))


PREPARED = [begin_prepare(7, 100, "g"), prepare(7, 100, "g")]


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        pytest.param([commit(7, 100)], "Commit without Begin", id="commit"),
        pytest.param([insert(1)], "data message outside", id="data"),
        pytest.param([relation()], "data message outside", id="relation"),
        pytest.param(
            [xlogdata(LogicalMessage(True, Lsn(1), "p", b""))], "data message outside", id="message"
        ),
        pytest.param([xlogdata(ORIGIN)], "Origin outside", id="origin"),
        pytest.param([STOP], "Stop without", id="stop"),
        pytest.param([stream_commit(7, 100)], "no stream block", id="stream commit"),
        pytest.param([abort(7, 7)], "no stream block", id="abort"),
        pytest.param([abort(7, 8)], "no stream block", id="abort of a subtransaction"),
        pytest.param([stream_prepare(7, 100, "g")], "no stream block", id="stream prepare"),
        pytest.param([prepare(7, 100, "g")], "Prepare without", id="prepare"),
        pytest.param([start(7, first=False)], "no first stream block", id="no first block"),
        pytest.param([start(7), STOP, start(7)], "second first stream block", id="two first"),
        pytest.param([start(7), start(8)], "7 has not ended", id="block in a block"),
        pytest.param([start(7), begin(8, 100)], "7 has not ended", id="begin in a block"),
        pytest.param([start(7), stream_commit(7, 100)], "not ended", id="commit in its block"),
        pytest.param([start(7), commit(7, 100)], "Commit without Begin", id="wrong commit"),
        pytest.param([begin(7, 100), begin(8, 200)], "7 has not ended", id="begin in begin"),
        pytest.param([begin(7, 100), start(8)], "7 has not ended", id="block in begin"),
        pytest.param([begin(7, 100), STOP], "Stop without", id="stop in begin"),
        pytest.param([begin(7, 100), commit(7, 101)], "announced a commit at 0/64", id="lsn"),
        pytest.param([begin(7, 100), commit(8, 100)], "announced a commit", id="time"),
        pytest.param([begin(7, 100), prepare(7, 100, "g")], "Prepare without", id="begin-prepare"),
        pytest.param(
            [begin(7, 100), insert(1), xlogdata(ORIGIN)], "Origin in the middle", id="late origin"
        ),
        pytest.param(
            [begin(7, 100), xlogdata(ORIGIN), xlogdata(ORIGIN)], "in the middle", id="two origins"
        ),
        pytest.param([PREPARED[0], commit(7, 100)], "Commit without Begin", id="commit of prepare"),
        pytest.param([PREPARED[0], prepare(7, 100, "h")], "does not match", id="other gid"),
        pytest.param([PREPARED[0], prepare(7, 101, "g")], "does not match", id="other lsn"),
        pytest.param([*PREPARED, *PREPARED], "prepared already", id="gid twice"),
        pytest.param(
            [*PREPARED, commit_prepared(8, 200, "g")], "prepared by transaction 7", id="other xid"
        ),
        pytest.param([b""], "neither XLogData nor", id="empty frame"),
        pytest.param([b"x" * 30], "neither XLogData nor", id="other frame"),
        pytest.param([b"w" + bytes(9)], "header of XLogData is cut", id="cut header"),
        pytest.param([b"w" + bytes(24)], "empty message", id="no message"),
        pytest.param([b"k" + bytes(9)], "a keepalive has 18 bytes", id="cut keepalive"),
        pytest.param([begin(7, 100), b"k" + b"I" * 40], "has 18 bytes", id="long keepalive"),
    ],
)
def test_violation_is_refused(assembler: Assembler, frames: list[bytes], reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        assembler.push(frames)


def test_violation_names_the_message_s_tag(assembler: Assembler) -> None:
    with pytest.raises(ProtocolError) as caught:
        assembler.push([commit(7, 100)])

    assert (caught.value.tag, caught.value.offset) == (b"C", 0)


def test_streaming_is_refused_in_version_1() -> None:
    with pytest.raises(ProtocolError, match="protocol version 1"):
        Assembler().push([start(7)])


def test_stream_abort_of_parallel_streaming_is_understood() -> None:
    assembler = Assembler(version=4, parallel_streaming=True)

    events = assembler.push(
        [start(7), insert(1, xid=7), STOP, xlogdata(StreamAbort(7, 7, Lsn(9), 1))]
    )

    assert events == []
