"""Moves of one table: records by what the subscriber has, reads and their limits."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from gateway.copy import Row, Snapshot
from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import UNCHANGED
from gateway.subselects.formula import Plain, SetTest, SetTestKind, Subselect, Truth, Value
from gateway.subselects.moves.decision import Decision, Sending, decide
from gateway.subselects.moves.progress import MoveProgress, ProgressOfMoves
from gateway.subselects.moves.reads import MoveChunk, MoveRequest
from gateway.subselects.moves.standing import (
    MoveChange,
    MoveStanding,
    MoveStandings,
    committed_standings,
)
from gateway.subselects.moves.state import MoveState, Slice, StoredMoves, read_back
from gateway.subselects.moves.table_moves import MOST_UNSETTLED, TRIES, TableMoves
from gateway.subselects.moves.transaction import MoveTransaction
from gateway.subselects.sets.changes import SetChange

YES, NO, MAYBE = Truth.YES, Truth.NO, Truth.MAYBE
CUSTOMERS = Subselect(2, ("id",), Plain("eu"))
IN = SetTest(SetTestKind.IN, ("customer",), CUSTOMERS)
NOT_IN = SetTest(SetTestKind.NOT_IN, ("customer",), CUSTOMERS)
SEES_ALL = Snapshot(100, 100, frozenset())
ONE = Slice(("customer",), (b"1",))


class Some:
    """A set that a test changes by hand."""

    def __init__(self, *values: bytes | None) -> None:
        self.values: set[Value] = {(value,) for value in values}

    def __contains__(self, value: Value) -> bool:
        return value in self.values

    @property
    def is_empty(self) -> bool:
        return not self.values

    def toggle(self, *values: bytes | None) -> Mapping[Subselect, SetChange]:
        was, had = self.is_empty, (None,) in self
        self.values ^= {(value,) for value in values}
        toggled: dict[Value, bool] = {(value,): (value,) in self for value in values}
        change = SetChange(toggled, was, self.is_empty, had, (None,) in self)
        return {CUSTOMERS: change}


class Order:
    """A row of orders: id, customer, document."""

    def __init__(self, row: Row) -> None:
        self.row = row

    def plain(self, plain: Plain) -> bool:
        raise AssertionError(f"no plain filter is here: {plain}")

    def text(self, column: str) -> bytes | None:
        raise AssertionError(f"no text is looked up here: {column}")

    def value(self, columns: tuple[str, ...]) -> Value:
        assert columns == ("customer",)
        assert isinstance(self.row[1], bytes)
        return (self.row[1],)


def moves_of(members: Some, test: SetTest = IN, state: MoveState | None = None) -> TableMoves:
    return TableMoves((0,), {"s": test}, lambda _: members, Order, state or MoveState())


def row(number: int, customer: int = 1) -> Row:
    return (b"%d" % number, b"%d" % customer, b"doc")


def toggle(moves: TableMoves, members: Some, *values: bytes | None) -> None:
    MoveTransaction(moves, 7, members.toggle(*values)).end()


def place(
    moves: TableMoves, request: MoveRequest | None, *rows: Row, end: bool
) -> list[tuple[bytes, bool]]:
    assert request is not None
    chunk = MoveChunk(request, rows, SEES_ALL, Lsn(1), end)
    return [(key[0], wanted) for _, _, key, wanted in moves.place(chunk)]


@pytest.mark.parametrize(
    ("has", "wanted", "whole", "sent", "read_key"),
    [
        (YES, True, True, Sending.UPDATE, False),
        (YES, True, False, Sending.UPDATE, False),
        (YES, False, False, Sending.DELETE, False),
        (NO, True, True, Sending.INSERT, False),
        (NO, True, False, Sending.NOTHING, True),
        (NO, False, True, Sending.NOTHING, False),
        (MAYBE, True, True, Sending.REPLACE, False),
        (MAYBE, True, False, Sending.UPDATE, True),
        (MAYBE, False, False, Sending.REMOVE, False),
    ],
)
def test_each_answer_has_one_record_that_is_right(
    has: Truth, wanted: bool, whole: bool, sent: Sending, read_key: bool
) -> None:
    assert decide(has, wanted=wanted, whole=whole) == Decision(sent, read_key)


def test_a_slice_is_read_in_chunks_and_settled_after_the_last() -> None:
    members = Some()
    moves = moves_of(members)
    toggle(moves, members, b"1")

    assert moves.state.slices == {ONE: {"s"}}
    request = moves.request()
    assert moves.request() is None, "it is being read"
    assert place(moves, request, row(1), row(2), end=False) == [(b"1", True), (b"2", True)]
    request = moves.request()
    assert request is not None
    assert request.after == (b"2",)
    moves.release(request)
    assert moves.request() == request, "another connection reads it"
    moves.release_all()
    assert moves.request() == request, "so do other readers"
    assert place(moves, request, row(3), end=True) == [(b"3", True)]
    assert moves.is_settled


def test_a_slice_that_flaps_is_read_as_one_chunk_in_the_end() -> None:
    """Whatever happens while that is read, it is judged by the set where it is placed."""
    members = Some()
    moves = moves_of(members)
    toggle(moves, members, b"1")
    for _ in range(TRIES):
        request = moves.request()
        assert request is not None
        assert (request.after, request.whole) == (None, False)
        place(moves, request, row(1), end=False)
        toggle(moves, members, b"1")
    request = moves.request()
    assert request is not None
    assert request.whole

    toggle(moves, members, b"1")

    assert place(moves, request, row(1), row(2), end=True) == [(b"1", True), (b"2", True)]
    assert moves.is_settled
    toggle(moves, members, b"1")
    request = moves.request()
    assert request is not None
    assert not request.whole, "what is settled begins from the beginning"


def test_values_are_read_together_and_keys_by_themselves() -> None:
    members = Some()
    moves = moves_of(members)
    toggle(moves, members, *(b"%d" % number for number in range(150)))
    transaction = MoveTransaction(moves, 8, {})
    lacking = (b"5", b"1", UNCHANGED)
    assert transaction.update(None, lacking).judge("s") == Decision(Sending.UPDATE, read_key=True)
    transaction.end()

    keys, first, second = moves.request(), moves.request(), moves.request()

    assert keys is not None
    assert (keys.keys, keys.values) == (((b"5",),), ())
    assert first is not None
    assert second is not None
    assert [len(first.values), len(second.values)] == [100, 50]
    assert place(moves, keys, row(5), end=True) == [(b"5", True)]
    assert not moves.state.keys


def test_a_row_that_lacks_values_is_not_sent_as_new_until_it_is_read() -> None:
    members = Some(b"2")
    moves = moves_of(members)
    transaction = MoveTransaction(moves, 101, {})
    entering = transaction.update((b"5", b"1", None), (b"5", b"2", UNCHANGED))

    assert entering.judge("s") == Decision(Sending.NOTHING, read_key=True)
    request = moves.request()
    assert place(moves, request, end=True) == []
    assert moves.state.keys == {(b"5",): {"s"}}, "the snapshot does not see what put it there"
    chunk = MoveChunk(
        moves.request() or MoveRequest(0), [row(5, 2)], Snapshot(200, 200, None), Lsn(1), True
    )
    assert [found.wanted for found in moves.place(chunk)] == [True]
    assert moves.is_settled


def test_a_row_that_is_changed_twice_is_known_from_the_first_time() -> None:
    members = Some(b"2")
    moves = moves_of(members)
    transaction = MoveTransaction(moves, 8, members.toggle(b"1", b"2"))

    first = transaction.update((b"5", b"3", None), row(5, 2))
    assert first.judge("s").sending is Sending.NOTHING, "2 is a member no more"
    second = transaction.update((b"5", b"2", None), row(5, 1))
    assert second.judge("s").sending is Sending.INSERT, "the subscriber has not got it"
    not_asked = transaction.update((b"6", b"3", None), row(6, 2))
    again = transaction.update((b"6", b"2", None), row(6, 1))
    assert not_asked.must_judge == frozenset()
    assert again.judge("s").sending is Sending.INSERT


def test_changes_are_kept_as_long_as_a_chunk_that_waits_does_not_see_them() -> None:
    members = Some()
    moves = moves_of(members)
    toggle(moves, members, b"1")
    request = moves.request()
    assert request is not None
    chunk = MoveChunk(request, [row(1), row(2)], Snapshot(101, 102, frozenset({101})), Lsn(1), True)
    later = MoveTransaction(moves, 101, {})
    assert later.delete(row(1)).judge("s").sending is Sending.REMOVE
    later.end()
    moves.forget([Snapshot(200, 200, frozenset()), chunk.snapshot])

    assert [found.key for found in moves.place(chunk)] == [(b"2",)]
    moves.forget([Snapshot(200, 200, frozenset())])
    assert not moves.unseen


@pytest.mark.parametrize("values", [(None,), tuple(b"%d" % n for n in range(MOST_UNSETTLED + 1))])
def test_a_table_is_copied_again_where_that_is_cheaper(values: tuple[bytes | None, ...]) -> None:
    members = Some(b"1")
    moves = moves_of(members, NOT_IN)
    toggle(moves, members, b"9")
    toggle(moves, members, *values)

    assert moves.state == MoveState(whole=frozenset({"s"}))
    assert moves.request() is None
    leaving = MoveTransaction(moves, 8, {}).delete(row(3))
    assert leaving.judge("s").sending is Sending.REMOVE, "nobody knows whether it is there"
    moves.begin_copy("s")
    assert moves.is_settled


def test_a_truncate_settles_everything() -> None:
    members = Some()
    moves = moves_of(members)
    toggle(moves, members, b"1")
    request = moves.request()
    transaction = MoveTransaction(moves, 8, {})
    transaction.truncate()
    transaction.end()

    assert moves.is_settled
    assert place(moves, request, row(1), end=True) == [], "what was read is void"


def test_a_state_is_read_back_and_nothing_else_is() -> None:
    several = Slice(("customer", "städte"), (None, b"2"))
    state = MoveState(
        {ONE: frozenset({"s", "t"}), several: frozenset({"t"})},
        {(b"5", b""): frozenset({"s"})},
        frozenset({"u"}),
        {"s": MoveProgress(1_000, 7)},
    )
    stored = StoredMoves(3, MoveState())
    records = {name: value for name, value in stored.pop_records(state) if value is not None}

    assert read_back(3, records) == state
    assert read_back(4, records) == MoveState(), "of another table"
    assert stored.pop_records(state) == []
    less = MoveState({ONE: frozenset({"t"})})
    changes = stored.pop_records(less)
    assert sorted(value is None for _, value in changes) == [False, True, True, True, True]
    for name, data in records.items():
        for wrong in (data[:-1], b"\2" + data[1:], data + b"\0", b""):
            with pytest.raises(ProtocolError, match="does not read"):
                read_back(3, {name: wrong})
    with pytest.raises(ProtocolError, match="no kind"):
        read_back(3, {"3/x": next(iter(records.values()))})
    of_others = MoveState({several: frozenset({"s"})}, {(b"5",): frozenset({"gone"})})
    assert moves_of(Some(), state=of_others).is_settled, "nothing that would never be read"
    known = moves_of(Some(), state=state).state
    assert known.slices == {ONE: {"s"}}, "a subscription that is gone has nothing unsettled"


def test_standings_say_once_that_a_table_moves_and_that_it_is_settled() -> None:
    members = Some()
    moves = moves_of(members)
    standings = MoveStandings({9: moves})

    assert standings.pop_changes() == []
    toggle(moves, members, b"1", b"2")
    moves.note_progress(5_000)
    assert standings.pop_changes() == [MoveChange("s", 9, settled=False)]
    assert list(standings.standings) == [MoveStanding("s", 9, 5.0, 2, 0)]
    moves.list_key((b"7",), "s", None)
    moves.note_progress(6_000)
    assert standings.pop_changes() == []
    assert list(standings.standings) == [MoveStanding("s", 9, 5.0, 3, 0)]
    place(moves, moves.request(), row(7), end=True)
    moves.note_progress(7_000)
    assert standings.pop_changes() == []
    assert list(standings.standings) == [MoveStanding("s", 9, 5.0, 2, 1)]
    assert list(committed_standings(9, moves.state)) == list(standings.standings)
    place(moves, moves.request(), row(1), end=True)
    moves.note_progress(8_000)
    assert moves.progress.pop_total() == {"s": 2}
    assert moves.progress.pop_total() == {}
    assert moves.state == MoveState()
    assert standings.pop_changes() == [MoveChange("s", 9, settled=True)]
    assert list(standings.standings) == []

    # What another process has said is not said again, and a copy that begins ends what it finds.
    toggle(moves, members, b"1")
    moves.note_progress(9_000)
    later = MoveStandings({9: moves_of(members, state=moves.state)})
    assert list(later.standings) == [MoveStanding("s", 9, 9.0, 1, 0)]
    assert later.pop_changes() == []
    again = moves_of(members, state=moves.state)
    copied = MoveStandings({9: again})
    again.copy_again("s")
    assert copied.pop_changes() == []
    again.begin_copy("s")
    toggle(again, members, b"1")
    assert copied.pop_changes() == [MoveChange("s", 9, settled=False)]
    again.begin_copy("s")
    assert copied.pop_changes() == []
    again.copy_again("s")
    assert copied.pop_changes() == [MoveChange("s", 9, settled=False)]


def test_progress_adds_rows_once_a_second_and_begins_again_with_a_copy() -> None:
    progress = ProgressOfMoves({"gone": MoveProgress(1, 9)})
    progress.count("s")
    progress.count("t")
    progress.note({"s"}, 10_000)
    assert progress.known == {"s": MoveProgress(10_000, 1)}, "with the rows of its first commit"

    progress.count("s")
    progress.note({"s"}, 10_999)
    assert progress.known == {"s": MoveProgress(10_000, 1)}
    progress.note({"s"}, 11_000)
    assert progress.known == {"s": MoveProgress(10_000, 2)}
    progress.count("s")
    progress.note({"s"}, 500)
    assert progress.known == {"s": MoveProgress(10_000, 3)}, "though the clock was set back"

    progress.count("s")
    progress.restart("s")
    progress.note({"s", "t"}, 12_000)
    assert progress.known == {name: MoveProgress(12_000, 0) for name in "st"}
    assert progress.pop_total() == {"s": 4, "t": 1}


@pytest.mark.parametrize(
    ("since_ms", "rows"),
    [(-1, 0), (1 << 47, 0), (5, -1), (5, 10**4_299)],
    ids=["before 1970", "far", "negative", "as many digits as Python prints"],
)
def test_progress_that_nobody_can_show_is_not_read_back(since_ms: int, rows: int) -> None:
    state = MoveState(progress={"s": MoveProgress(since_ms, rows)})
    records = dict(StoredMoves(3, MoveState()).pop_records(state))
    with pytest.raises(ProtocolError, match="out of range"):
        read_back(3, {name: value for name, value in records.items() if value is not None})
