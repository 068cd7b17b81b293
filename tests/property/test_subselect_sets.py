"""Sets of sub-selects that follow changes, against sets that are counted again after each.

Hundreds of cases with `make test`, more by HYPOTHESIS_PROFILE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.copy import Snapshot
from gateway.subselects.formula import Formula, SetTestKind, Subselect, Value, holds
from gateway.subselects.sets import value_set
from gateway.subselects.sets.building import SetBuilder
from gateway.subselects.sets.changes import SetChange, SetDelta, affected_values
from gateway.subselects.sets.disk_entries import SpillingStores
from gateway.subselects.sets.member_index import MemberIndex
from gateway.subselects.sets.network import SetNetwork
from gateway.subselects.sets.records import StoredSet
from gateway.subselects.sets.value_set import MakeEntries, SetBrokenError, in_memory
from tests.support.models.subselect_tables import (
    CITIES,
    CUSTOMERS,
    Change,
    Tables,
    View,
    draw_formula,
)
from tests.support.models.subselects import Recount, Recounted

VALUES = (None, b"0", b"1", b"2")
randoms = st.randoms(use_true_random=False)


def values(subselect: Subselect) -> list[Value]:
    return list(product(VALUES, repeat=len(subselect.columns)))


def deltas(sets: SetNetwork, changes: Sequence[Change]) -> dict[Subselect, SetDelta]:
    """Changes of each set by a transaction."""
    found: dict[Subselect, SetDelta] = {}
    for each in sets:
        own = [change for change in changes if change.table == each.subselect.table_oid]
        if own:
            delta = found[each.subselect] = SetDelta()
            for _, old, new in own:
                if old is None and new is None:
                    delta.truncate()
                    continue
                entries = [
                    None if row is None else each.reduction.entry(View(row)) for row in (old, new)
                ]
                delta.change(*entries)
    return found


def build(sets: SetNetwork, tables: Tables) -> None:
    for each in sets:
        rows = tables.rows[each.subselect.table_oid].values()
        entries = [each.reduction.entry(View(row)) for row in rows]
        each.fill((entry, 1) for entry in entries if entry is not None)
    sets.recount()


def judge(sets: SetNetwork, recounted: Recounted) -> None:
    for each in sets:
        expected = recounted.members(each.subselect)
        assert [value for value in values(each.subselect) if value in each] == [
            value for value in values(each.subselect) if value in expected
        ]
        assert each.is_empty is expected.is_empty


def judge_index(sets: SetNetwork, index: MemberIndex) -> None:
    for width in (1, 2):
        for value in product(VALUES, repeat=width):
            found = index.having(value)
            assert len(set(found)) == len(found)
            assert set(found) == {
                each.subselect
                for each in sets
                if each.reduction.width == width and None not in value and value in each
            }


def judge_change(
    subselect: Subselect, change: SetChange | None, was: Recount, now: Recount
) -> None:
    """The change names every value of which a test has another result."""
    toggled = {v: v in now for v in values(subselect) if (v in was) is not (v in now)}
    if change is None or not change.is_whole:
        assert dict(change.toggled if change is not None else {}) == toggled
    for kind in SetTestKind:
        if kind is SetTestKind.NOT_IN and len(subselect.columns) > 1:
            continue
        found = frozenset() if change is None else affected_values(kind, change)
        differing = {v for v in values(subselect) if holds(kind, v, was) is not holds(kind, v, now)}
        assert found is None or differing <= found


class Kafka:
    """Records of some sets that a compacted topic has."""

    def __init__(self, sets: SetNetwork) -> None:
        self.records: dict[str, bytes] = {}
        self.stored = [StoredSet(each, most=2) for each in sets]

    def note(self, found: dict[Subselect, SetDelta]) -> None:
        for each in self.stored:
            if each.target.subselect in found:
                each.note(found[each.target.subselect])

    def commit(self) -> None:
        for each in self.stored:
            for name, value in each.pop_records():
                if value is None:
                    self.records.pop(name, None)
                else:
                    self.records[name] = value

    def read_back(self, sets: SetNetwork) -> None:
        self.stored = [StoredSet(each, most=2) for each in sets]
        assert [each.read_back(self.records) for each in self.stored] == [None] * len(self.stored)
        sets.recount()


def follow(random: Random, formulas: Sequence[Formula], make: MakeEntries) -> None:
    tables = Tables.draw(random)
    sets = SetNetwork(formulas, make)
    build(sets, tables)
    kafka = Kafka(sets)
    kafka.commit()
    before = tables.recounted()
    index = MemberIndex(sets, make)
    index.recount()
    judge(sets, before)
    for _ in range(random.randint(1, 6)):
        found = deltas(sets, tables.transaction(CITIES, CUSTOMERS))
        changes = sets.apply(found)
        now = tables.recounted()
        index.apply(changes)
        judge(sets, now)
        judge_index(sets, index)
        for each in sets:
            which = each.subselect
            judge_change(which, changes.get(which), before.members(which), now.members(which))
        before = now
        kafka.note(found)
        if random.random() < 0.5:
            kafka.commit()
            if random.random() < 0.5:
                sets.close()
                sets = SetNetwork(formulas, make)
                kafka.read_back(sets)
                judge(sets, now)
                index.close()
                index = MemberIndex(sets, make)
                index.recount()
    sets.close()
    index.close()


@given(randoms)
def test_sets_are_what_a_recount_finds_after_every_transaction(random: Random) -> None:
    formulas = [draw_formula(random) for _ in range(random.randint(1, 3))]
    follow(random, formulas, in_memory)


@settings(max_examples=20)
@given(randoms)
def test_sets_that_do_not_fit_into_memory_are_the_same(random: Random) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        stores = SpillingStores(folder, random.choice((0, 2, 5)))
        follow(random, [draw_formula(random) for _ in range(random.randint(1, 2))], stores.make)
        assert stores.in_memory == 0
        assert not list(folder.iterdir()), "files have no names once they are open"


@given(randoms)
def test_a_set_that_is_read_while_its_table_changes_is_exact_where_it_is_placed(
    random: Random,
) -> None:
    """Transactions become visible to the snapshot in another order than that of their commits."""
    tables = Tables.draw(random)
    sets = SetNetwork([draw_formula(random) for _ in range(2)])
    builders = {each.subselect: SetBuilder(each) for each in sets}
    seen = {table: dict(rows) for table, rows in tables.rows.items()}
    hidden: list[int] = []
    concerned: set[int] = set()  # tables with a change that the snapshot does not see
    for xid in range(100, 100 + random.randint(0, 6)):
        some = random.choice(((CITIES,), (CUSTOMERS,), (CITIES, CUSTOMERS)))
        changes = tables.transaction(*some)
        touched = {change.table for change in changes}
        if touched & concerned or random.random() < 0.4:
            hidden.append(xid)
            concerned |= touched
        else:
            seen |= {table: dict(tables.rows[table]) for table in touched}
        for which, delta in deltas(sets, changes).items():
            builders[which].note(xid, delta)
    running = ",".join(map(str, hidden))
    snapshot = Snapshot.parse(f"{min(hidden, default=200)}:200:{running}")
    for which, builder in builders.items():
        builder.forget(Snapshot(min(hidden, default=200), 200, frozenset(hidden)))
        reduction = sets[which].reduction
        rows = seen[which.table_oid].values()
        entries = [reduction.entry(View(row)) for row in rows]
        builder.place(snapshot, [entry for entry in entries if entry is not None])
    sets.recount()
    judge(sets, tables.recounted())


def notices(random: Random) -> bool:
    try:
        follow(random, [draw_formula(random) for _ in range(2)], in_memory)
    except (AssertionError, SetBrokenError):
        return True
    return False


def forgets_emptiness(kind: SetTestKind, change: SetChange) -> frozenset[Value] | None:
    return affected_values(kind, replace(change, is_empty=change.was_empty))


def forgets_null(kind: SetTestKind, change: SetChange) -> frozenset[Value] | None:
    return affected_values(kind, replace(change, has_null=change.had_null))


@pytest.mark.parametrize("broken", [forgets_emptiness, forgets_null])
def test_the_recount_notices_when_a_rule_is_left_out(
    broken: Callable[[SetTestKind, SetChange], frozenset[Value] | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(value_set, "affected_values", broken)

    assert any(notices(Random(seed)) for seed in range(2000))
