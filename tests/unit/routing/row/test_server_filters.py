"""Rows that the server judges: asked together, ahead of their turn, and routed in their order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pytest

from gateway.copy import ChunkedCopy, Progress
from gateway.core.errors import TransientError
from gateway.definitions.model import FilterClause, Plan, TableCopy
from gateway.pgoutput.messages import UNCHANGED, Insert, OldTuple, ReplicaIdentity
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter import Answer, FilterEvaluationError, Question
from gateway.transactions import Assembler, Transaction
from tests.support.gateway.routing_scene import (
    T1,
    T1_TABLE,
    TWO_COLUMNS,
    Gateway,
    Seen,
    data,
    full_tuple,
    ops,
    publish,
    relation_of,
    table,
    update,
)

ODD = "(sqrt(b) = (3)::double precision)"
"""Stands for a filter that the server evaluates; here it says whether b is odd, and raises at 0."""
OTHER_TABLE = table(T1 + 1, "t2", TWO_COLUMNS)
FULL_TABLE = table(T1, "t1", TWO_COLUMNS, replica_identity=ReplicaIdentity.FULL)

Row = Sequence[bytes | None]


class FakeEvaluator:
    """Answers when it is told to; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: deque[tuple[Question, Sequence[Row]]] = deque()
        self.seen: list[list[bytes | None]] = []
        self.answers = 0

    def fileno(self) -> int:
        return 99

    @property
    def busy(self) -> bool:
        return bool(self.asked)

    def ask(self, question: Question, rows: Sequence[Row]) -> None:
        assert not self.asked
        self.asked.append((question, rows))
        self.seen.append([row[0] for row in rows])

    def collect(self) -> Answer | None:
        if not self.answers:
            return None
        self.answers -= 1
        question, rows = self.asked.popleft()
        assert question.filters == (ODD,)
        flags = b"".join(self._flag(row[0]) for row in rows)
        division = EvaluationError("division by zero", sqlstate="22012")
        return Answer(flags, {(n, 0): division for n, row in enumerate(rows) if row[0] == b"0"})

    @staticmethod
    def _flag(value: bytes | None) -> bytes:
        if value == b"0":
            return b"!"
        return b"t" if value is not None and int(value) % 2 else b"f"


@pytest.fixture
def evaluator() -> FakeEvaluator:
    return FakeEvaluator()


def gateway(evaluator: FakeEvaluator, where: str = ODD) -> Gateway:
    others = publish(relation=OTHER_TABLE.oid, subscription="o")
    return Gateway([FULL_TABLE, OTHER_TABLE], [publish(where=where), others], evaluator=evaluator)


def announced(made: Gateway) -> None:
    made.commit(relation_of(FULL_TABLE), relation_of(OTHER_TABLE))


def inserts(*values: int, oid: int = T1) -> list[Insert]:
    return [Insert(oid, (b"%d" % value, b"%d" % value)) for value in values]


def routed(made: Gateway, transaction: Transaction) -> Callable[[], list[Seen] | None]:
    """A function that goes on routing; the records when there are no more, None while it waits."""
    pieces = made.router.route(transaction)
    found: list[Seen] = []

    def go_on() -> list[Seen] | None:
        for piece in pieces:
            if made.router.awaits is not None:
                assert piece == []
                return None
            found.extend(made.see(record) for record in piece)
        return found

    return go_on


def values(seen: Sequence[Seen] | None) -> Iterator[object]:
    for record in data(seen or []):
        assert record.value is not None
        yield (record.value["after"] or record.value["before"])["b"]


def test_the_router_waits_for_the_answer_and_says_on_what(evaluator: FakeEvaluator) -> None:
    made = gateway(evaluator)
    announced(made)
    go_on = routed(made, made.transaction(*inserts(1, 2, 3)))

    assert go_on() is None
    assert made.router.awaits == 99
    assert go_on() is None
    evaluator.answers = 1
    assert list(values(go_on())) == [1, 3]
    assert made.router.awaits is None


def test_numbers_are_those_of_all_changes(evaluator: FakeEvaluator) -> None:
    made = gateway(evaluator)
    announced(made)
    evaluator.answers = 1

    seen = data(routed(made, made.transaction(*inserts(2, 4, 5)))() or [])

    assert [record.headers["seq"] for record in seen] == ["3"]


def test_rows_of_transactions_that_wait_are_asked_about_together(evaluator: FakeEvaluator) -> None:
    made = gateway(evaluator)
    announced(made)
    waiting = [made.transaction(*inserts(n, n + 1)) for n in (1, 11, 21)]
    for transaction in waiting:
        made.router.foresee(transaction)

    evaluator.answers = 1
    first = routed(made, waiting[0])()

    assert evaluator.seen == [[b"1", b"2"], [b"11", b"12", b"21", b"22"]]
    assert list(values(first)) == [1]
    evaluator.answers = 1
    assert list(values(routed(made, waiting[1])())) == [11]
    assert list(values(routed(made, waiting[2])())) == [21]


def test_a_transaction_without_such_a_table_does_not_wait(evaluator: FakeEvaluator) -> None:
    made = gateway(evaluator)
    announced(made)

    seen = routed(made, made.transaction(*inserts(1, 2, oid=OTHER_TABLE.oid)))()

    assert list(values(seen)) == [1, 2]
    assert evaluator.seen == []


def test_what_comes_first_and_cannot_raise_spares_the_server_rows(evaluator: FakeEvaluator) -> None:
    made = gateway(evaluator, f"((a > 2) AND {ODD})")
    announced(made)
    question = f"((a > 2) AND {ODD})"
    go_on = routed(made, made.transaction(*inserts(1, 3, 2)))

    assert go_on() is None
    (asked, rows) = evaluator.asked[0]
    assert asked.filters == (question,)
    assert [column.name for column in asked.columns] == ["a", "b"]
    assert [list(row) for row in rows] == [[b"3", b"3"]]


def test_both_rows_of_an_update_are_judged_with_unchanged_values_filled_in(
    evaluator: FakeEvaluator,
) -> None:
    made = gateway(evaluator)
    announced(made)
    old: OldTuple = full_tuple(b"1", b"7")
    transaction = made.transaction(
        update(old, b"1", UNCHANGED),  # type: ignore[arg-type]
        update(old, b"1", b"8"),
        update(full_tuple(b"1", b"6"), b"1", b"9"),
    )
    evaluator.answers = 1

    seen = routed(made, transaction)()

    assert evaluator.seen == [[b"7", b"7", b"7", b"8", b"6", b"9"]]
    assert ops(seen or []) == ["u", "d", None, "c"]


def test_a_row_that_raises_does_so_in_its_turn(evaluator: FakeEvaluator) -> None:
    made = gateway(evaluator)
    announced(made)
    before, raising = made.transaction(*inserts(1)), made.transaction(*inserts(0))
    made.router.foresee(before)
    made.router.foresee(raising)
    evaluator.answers = 2

    assert list(values(routed(made, before)())) == [1]
    with pytest.raises(
        FilterEvaluationError, match=r"division by zero \(SQLSTATE 22012\) \(row at"
    ):
        routed(made, raising)()


def test_nothing_is_asked_beyond_a_relation_message_before_it_was_taken_in(
    evaluator: FakeEvaluator,
) -> None:
    made = gateway(evaluator)
    announced(made)
    transaction = made.transaction(*inserts(1), relation_of(FULL_TABLE), *inserts(3))
    made.router.foresee(transaction)

    assert evaluator.seen == [[b"1"]]
    evaluator.answers = 2
    go_on = routed(made, transaction)
    assert go_on() is None
    assert evaluator.seen == [[b"1"], [b"3"]]
    assert list(values(go_on())) == [1, 3]


def test_the_first_such_filter_that_is_given_to_a_publication_starts_anew() -> None:
    made = Gateway([T1_TABLE], [publish()], evaluator=FakeEvaluator())
    made.replanned.append(_with_filter(made.plan))

    with pytest.raises(TransientError, match="was given a row filter that the server evaluates"):
        made.commit(relation_of(T1_TABLE), *inserts(1))


def test_a_filter_that_copies_have_before_the_stream_is_expected(
    evaluator: FakeEvaluator,
) -> None:
    """A copy follows the catalog, and the publications what the stream has reported."""
    copy = TableCopy("s", T1, (FilterClause("p", T1, ODD),), ("a", "b"))
    made = Gateway([T1_TABLE], [publish()], evaluator=evaluator, copies=[copy])
    made.routes.copy_route([copy], ("a",))
    made.replanned.append(_with_filter(made.plan))

    go_on = routed(made, made.transaction(relation_of(T1_TABLE), *inserts(1, 2)))

    assert go_on() is None
    evaluator.answers = 1
    assert list(values(go_on())) == [1]


def test_a_copy_that_goes_on_in_another_job_is_shown_what_was_read_ahead(
    evaluator: FakeEvaluator,
) -> None:
    made = gateway(evaluator)
    announced(made)
    copies = [TableCopy("s", T1, (FilterClause("p", T1, ODD),), ("a", "b"))]
    route = made.routes.copy_route(copies, ("a",))
    before, after = (ChunkedCopy((0,), Progress(copied=(b"10",), rows=10)) for _ in range(2))
    made.routes.watch(route, before, copies)
    into_what_is_copied = update(full_tuple(b"20", b"1"), b"05", b"1")
    transaction = made.transaction(into_what_is_copied)
    made.router.foresee(transaction)

    made.routes.unwatch(route, before)
    made.routes.watch(route, after, copies)
    evaluator.answers = 1
    routed(made, transaction)()

    assert after.progress.again == ((b"05",),)
    assert not before.progress.again


def _with_filter(plan: Plan) -> Plan:
    return Plan(plan.tables, plan.subscriptions, (publish(where=ODD),), (), ())


def test_no_series_are_taken_where_the_server_judges_rows(evaluator: FakeEvaluator) -> None:
    # They would not be read ahead.
    assert not gateway(evaluator).router.routes_series


def test_a_transaction_that_is_not_the_next_one_foreseen_is_an_error(
    evaluator: FakeEvaluator,
) -> None:
    made = gateway(evaluator)
    announced(made)
    first, second = (made.transaction(*inserts(value)) for value in (1, 2))
    made.router.foresee(first)
    made.router.foresee(second)

    with pytest.raises(AssertionError, match="another order"):
        list(made.router.route(second))


def test_short_and_long_transactions_keep_their_rows_in_one_stream(
    evaluator: FakeEvaluator,
) -> None:
    made = gateway(evaluator)
    announced(made)
    frames = [made.frames(*inserts(1, 3)), made.frames(*inserts(*range(101, 161)))]
    frames += [made.frames(*inserts(n)) for n in (5, 7, 9)]

    events = Assembler(series=made.router.routes_series).push([f for fs in frames for f in fs])
    for event in events:
        assert isinstance(event, Transaction)
        made.router.foresee(event)
    found: list[object] = []
    for event in events:
        assert isinstance(event, Transaction)
        go_on = routed(made, event)
        while (seen := go_on()) is None:
            evaluator.answers = 1
        found += values(seen)

    assert found == [1, 3, *range(101, 161, 2), 5, 7, 9]


@pytest.mark.parametrize("oid", [T1, OTHER_TABLE.oid])
def test_a_table_begins_with_its_own_transaction_however_far_rows_are_read_ahead(
    evaluator: FakeEvaluator, oid: int
) -> None:
    made = gateway(evaluator)
    announced(made)
    before, first, second = (made.transaction(*inserts(n, n + 2, oid=oid)) for n in (1, 11, 21))
    subscription = "s" if oid == T1 else "o"
    made.routes.begins[subscription, oid] = before.end_lsn
    made.routes.by_oid.clear()
    for transaction in (before, first, second):
        made.router.foresee(transaction)

    found = []
    for transaction in (before, first, second):
        evaluator.answers = 1
        found.append([*values(routed(made, transaction)())])

    assert found == [[], [11, 13], [21, 23]]
