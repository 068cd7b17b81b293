"""Whatever the server interleaves, and wherever frames are kept: the same transactions."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import FatalError
from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import StreamAbort, StreamStart, StreamStop
from gateway.transactions import (
    Assembler,
    Event,
    PreparedTransaction,
    RolledBack,
    Series,
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
    push_in_pieces,
    relation,
    rollback_prepared,
    stream_commit,
    stream_prepare,
)

End = Literal["commit", "abort", "commit prepared", "rollback prepared"]
STOP = xlogdata(StreamStop())


@dataclass(slots=True)
class Planned:
    """A transaction as the server runs it: rows by subtransaction, some of which are aborted."""

    xid: int
    streamed: bool
    end: End
    blocks: list[list[tuple[int, int, bool]]]  # (subtransaction, value, announces a relation)
    aborted: set[int]  # subtransactions, never 0
    surviving: list[bytes] = field(default_factory=list)


@st.composite
def plans(draw: st.DrawFn) -> list[Planned]:
    made = []
    for number in range(draw(st.integers(1, 5))):
        streamed = draw(st.booleans())
        row = st.tuples(st.integers(0, 3), st.integers(0, 999), st.booleans())
        blocks = draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=4))
        ends: list[End] = ["commit", "commit prepared", "rollback prepared"]
        if streamed:
            ends.append("abort")
        aborted = draw(st.sets(st.integers(1, 3))) if streamed else set()
        xid = 100 * (number + 1)
        made.append(Planned(xid, streamed, draw(st.sampled_from(ends)), blocks, aborted))
    return made


def pieces_of(plan: Planned, lsn: int) -> list[list[bytes]]:
    """What the server sends for it: runs of frames that nothing may come between, in order."""
    gid = f"gid {plan.xid}"
    runs: list[list[bytes]] = []
    for number, block in enumerate(plan.blocks):
        run = [xlogdata(StreamStart(plan.xid, number == 0))]
        for subtransaction, value, announces in block:
            xid = plan.xid + subtransaction
            schema, row = [relation(xid=xid)] if announces else [], insert(value, xid=xid)
            run += [*schema, row]
            plan.surviving += schema if subtransaction in plan.aborted else [*schema, row]
        runs.append([*run, STOP])
    runs += [[xlogdata(StreamAbort(plan.xid, plan.xid + sub))] for sub in sorted(plan.aborted)]
    match plan.end:
        case "commit":
            return [*runs, [stream_commit(plan.xid, lsn)]]
        case "abort":
            return [*runs, [xlogdata(StreamAbort(plan.xid, plan.xid))]]
        case "commit prepared":
            ends = [stream_prepare(plan.xid, lsn, gid)], [commit_prepared(plan.xid, lsn + 100, gid)]
        case "rollback prepared":
            ends = (
                [stream_prepare(plan.xid, lsn, gid)],
                [rollback_prepared(plan.xid, lsn, lsn + 100, gid)],
            )
    return [*runs, *ends]


def whole_pieces_of(plan: Planned, lsn: int) -> list[list[bytes]]:
    """The same of one that is not streamed."""
    gid = f"gid {plan.xid}"
    for block in plan.blocks:
        for _, value, announces in block:
            plan.surviving += [*([relation()] if announces else []), insert(value)]
    if plan.end == "commit":
        return [[begin(plan.xid, lsn), *plan.surviving, commit(plan.xid, lsn)]]
    prepared = [
        begin_prepare(plan.xid, lsn, gid),
        *plan.surviving,
        prepare(plan.xid, lsn, gid),
    ]
    if plan.end == "commit prepared":
        return [prepared, [commit_prepared(plan.xid, lsn + 100, gid)]]
    return [prepared, [rollback_prepared(plan.xid, lsn, lsn + 100, gid)]]


def facts(events: list[Event]) -> list[tuple[object, ...]]:
    """Everything that the events say, with the frames of the transactions read and released."""
    return [
        (
            *(event.xid, event.commit_lsn, event.end_lsn, event.commit_time),
            *(event.origin, event.gid, event.streamed, frames_of(event)),
        )
        if isinstance(event, Transaction)
        else (event,)
        for event in events
    ]


@given(plans(), st.data())
def test_any_interleaving_gives_what_the_serial_order_gives(
    planned: list[Planned], data: st.DataObject
) -> None:
    runs = {
        plan.xid: (pieces_of if plan.streamed else whole_pieces_of)(plan, plan.xid * 1000)
        for plan in planned
    }
    serial = [frame for pieces in runs.values() for run in pieces for frame in run]
    interleaved: list[bytes] = []
    waiting = {xid: list(pieces) for xid, pieces in runs.items()}
    while waiting:
        xid = data.draw(st.sampled_from(sorted(waiting)), label="next")
        interleaved += waiting[xid].pop(0)
        if not waiting[xid]:
            del waiting[xid]

    in_order = facts(Assembler(version=3).push(serial))
    mixed = facts(Assembler(version=3).push(interleaved))

    assert sorted(map(repr, mixed)) == sorted(map(repr, in_order))
    committed = [fact for fact in mixed if len(fact) > 1]
    assert {fact[0]: fact[-1] for fact in committed} == {
        plan.xid: plan.surviving for plan in planned if plan.end in ("commit", "commit prepared")
    }
    for plan in planned:
        assert [f[0] for f in mixed].count(plan.xid) == plan.end.startswith("commit")


@given(
    plans(),
    st.integers(0, 3000),
    st.lists(st.integers(0, 9), max_size=40),
    st.sets(st.integers(0, 60)),
)
def test_pieces_keepalives_and_spooling_change_nothing(
    planned: list[Planned], bound: int, sizes: list[int], pauses: set[int]
) -> None:
    frames = [
        frame
        for plan in planned
        for run in (pieces_of if plan.streamed else whole_pieces_of)(plan, plan.xid * 1000)
        for frame in run
    ]
    paused = [
        frame
        for number, plain in enumerate(frames)
        for frame in ([keepalive(number), plain] if number in pauses else [plain])
    ]
    spooling = Assembler(version=3, max_buffer_bytes=bound, spool_directory=Path(gettempdir()))

    expected = facts(Assembler(version=3).push(frames))
    events = push_in_pieces(spooling, paused, sizes)

    kept: list[Event] = [
        e for e in events if isinstance(e, Transaction | PreparedTransaction | RolledBack)
    ]
    assert facts(kept) == expected
    assert len(events) - len(kept) == len(pauses & set(range(len(frames))))
    assert not spooling.has_open_transactions
    spooling.close()


@given(
    plans(),
    st.lists(st.integers(0, 18), max_size=20),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_a_series_gives_out_what_is_assembled_otherwise(
    planned: list[Planned], plain: list[int], sizes: list[int]
) -> None:
    short = [
        [begin(xid, xid * 10), *(insert(n) for n in range(rows)), commit(xid, xid * 10)]
        for xid, rows in enumerate(plain, 10_000)
    ]
    frames = [frame for each in short[: len(short) // 2] for frame in each]
    frames += [
        frame
        for plan in planned
        for run in (pieces_of if plan.streamed else whole_pieces_of)(plan, plan.xid * 1000)
        for frame in run
    ]
    frames += [frame for each in short[len(short) // 2 :] for frame in each]

    taken = [
        each
        for event in push_in_pieces(Assembler(version=3, series=True), frames, sizes)
        for each in (taken_apart(event) if isinstance(event, Series) else [event])
    ]

    assert facts(taken) == facts(Assembler(version=3).push(frames))


def taken_apart(series: Series) -> list[Event]:
    found: list[Event] = []
    while series:
        next_lsn, next_time = series.commit_lsn, series.commit_time
        transaction = series.pop()
        assert (transaction.commit_lsn, transaction.commit_time) == (next_lsn, next_time)
        found.append(transaction)
    assert isinstance(transaction, Transaction)
    assert series.end_lsn == transaction.end_lsn
    return found


@given(st.lists(st.binary(max_size=50) | st.binary(max_size=40).map(lambda b: b"w" * 25 + b)))
def test_noise_raises_only_the_project_s_errors(noise: list[bytes]) -> None:
    assembler = Assembler(version=4, series=True)

    try:
        assembler.push(noise)
    except FatalError:
        pass
    finally:
        assembler.close()


def test_model_is_not_empty() -> None:
    plan = Planned(100, True, "commit", [[(0, 1, False)], [(1, 2, False)]], {1})

    (event,) = Assembler(version=2).push([f for run in pieces_of(plan, 500) for f in run])

    assert isinstance(event, Transaction)
    assert event.commit_lsn == Lsn(500)
    assert frames_of(event) == plan.surviving == [insert(1, xid=100)]
