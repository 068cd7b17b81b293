"""Which subscriber tables a change of the definitions concerns, and how."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.definitions.changes import (
    Difference,
    TableChange,
    as_planned,
    fingerprint_of,
    outdated,
    table_changes,
    without,
)
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Column,
    FilterClause,
    Operation,
    Plan,
    Publish,
    Table,
    TableCopy,
)
from gateway.lsn import Lsn
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.records import CopyState, CopyStateKind, Watermark

ROWS = (Operation.INSERT, Operation.UPDATE, Operation.DELETE)


def column(name: str, number: int, *, generated: str = "") -> Column:
    return Column(name, number, 23, -1, "integer", 23, -1, "b", False, generated, None)


TABLE = Table(
    oid=1,
    schema="public",
    name="t",
    kind="r",
    columns=(column("a", 1), column("b", 2)),
    replica_identity=ReplicaIdentity.DEFAULT,
    identity=("a",),
    primary_key=("a",),
)


def plan(
    where: str | None,
    *,
    table: Table = TABLE,
    columns: tuple[str, ...] | None = None,
    operations: frozenset[Operation] = ALL_OPERATIONS,
    copied: str | None = "same",
    publication: str = "p",
) -> Plan:
    """One subscription to one table."""
    clauses = () if where is None else (FilterClause(publication, 1, where),)
    of_copy = clauses if copied == "same" else (FilterClause(publication, 1, str(copied)),)
    publish = Publish("s", 1, 1, operations, {o: clauses for o in ROWS if o in operations}, columns)
    copy = TableCopy("s", 1, of_copy, columns or tuple(c.name for c in table.columns))
    return Plan({1: table}, (), (publish,), (copy,), ())


def ready(under: Plan) -> CopyState:
    return CopyState("s", "public", "t", "ready", Lsn(5), fingerprint_of(under, under.copies[0]))


def changes(before: Plan, after: Plan, *, known: bool = True) -> tuple[TableChange, ...]:
    return table_changes(after, [ready(before)], before if known else None, reconcile=True)


def test_the_same_definition_under_another_publication_changes_nothing() -> None:
    assert changes(plan("(a > 5)"), plan("(a > 5)", publication="q")) == ()


def test_a_column_that_is_added_to_the_table_changes_nothing() -> None:
    wider = replace(TABLE, columns=(*TABLE.columns, column("c", 3)))

    assert changes(plan("(a > 5)"), plan("(a > 5)", table=wider)) == ()


def test_a_changed_filter_moves_the_rows_that_change_sides() -> None:
    (change,) = changes(plan("(a > 5)"), plan("(a > 7)"))

    assert change.difference == Difference(
        leaving="(((a > 5))) IS TRUE AND (((a > 7))) IS NOT TRUE",
        entering="(((a > 7))) IS TRUE AND (((a > 5))) IS NOT TRUE",
    )


def test_a_filter_that_is_taken_away_lets_all_other_rows_enter() -> None:
    (change,) = changes(plan("(a > 5)"), plan(None))

    assert change.difference == Difference(
        leaving="(((a > 5))) IS TRUE AND (true) IS NOT TRUE",
        entering="(true) IS TRUE AND (((a > 5))) IS NOT TRUE",
    )


WITHOUT_KEY = replace(TABLE, identity=(), primary_key=())
BY_ROW = replace(TABLE, identity=("a", "b"), primary_key=(), replica_identity=ReplicaIdentity.FULL)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (plan("(a > 5)"), plan("(a > 5)", columns=("a",))),
        (plan("(a > 5)", operations=frozenset({Operation.INSERT})), plan("(a > 7)")),
        (plan("(a > 5)"), plan("(a > 7)", operations=frozenset({Operation.INSERT}))),
        (plan("(a > 5)", copied="(b > 1)"), plan("(a > 7)")),
        (plan("(a > 5)", table=WITHOUT_KEY), plan("(a > 7)", table=WITHOUT_KEY)),
        (plan("(a > 5)", table=BY_ROW), plan("(a > 7)", table=BY_ROW)),
    ],
    ids=["columns", "rows stayed", "fewer operations", "filter of another operation", "no key",
         "whole row as key"],
)  # fmt: skip
def test_a_table_whose_rows_are_not_known_exactly_is_copied_as_a_whole(
    before: Plan, after: Plan
) -> None:
    assert changes(before, after) == (TableChange(after.copies[0], None),)


def test_without_the_old_plan_a_table_is_copied_as_a_whole() -> None:
    after = plan("(a > 7)")

    assert changes(plan("(a > 5)"), after, known=False) == (TableChange(after.copies[0], None),)


@pytest.mark.parametrize("state", ["pending", "copying"])
def test_a_table_that_was_not_finished_is_copied_as_a_whole(state: CopyStateKind) -> None:
    now = plan("(a > 5)")
    unfinished = replace(ready(now), state=state)

    assert table_changes(now, [unfinished], now, reconcile=False) == (
        TableChange(now.copies[0], None),
    )


def test_a_table_that_is_not_there_is_copied_also_when_nothing_is_reconciled() -> None:
    now = plan("(a > 5)")

    assert table_changes(now, [], None, reconcile=False) == (TableChange(now.copies[0], None),)


def test_without_reconciling_a_changed_filter_only_counts_from_now_on() -> None:
    before, after = plan("(a > 5)"), plan("(a > 7)")

    assert table_changes(after, [ready(before)], before, reconcile=False) == ()
    assert outdated(after, [ready(before)]) == list(after.copies)


def test_a_table_that_took_on_a_filter_without_a_copy_is_up_to_date_but_not_known_exactly() -> None:
    before, altered, after = plan("(a > 5)"), plan("(a > 7)"), plan("(a > 9)")
    state = as_planned(altered, Watermark(Lsn(9), 1, "f", (ready(before),))).copies[0]

    assert outdated(altered, [state]) == []
    assert table_changes(after, [state], altered, reconcile=True) == (
        TableChange(after.copies[0], None),
    )
    # It stays so until it is copied, also when the same definition is met again.
    assert as_planned(altered, Watermark(Lsn(9), 1, "f", (state,))).copies == (state,)


def test_a_table_that_goes_on_under_its_definition_stays_known_exactly() -> None:
    now = plan("(a > 5)")

    assert as_planned(now, Watermark(Lsn(9), 1, "f", (ready(now),))).copies == (ready(now),)


def test_a_plan_without_a_table_neither_streams_nor_copies_it() -> None:
    rest = without(plan(None), plan(None).copies)

    assert (rest.publishes, rest.copies) == ((), ())
