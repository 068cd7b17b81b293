"""What requests, and partitions that come, mean for the states of copies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.copy import Progress
from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyRequest, CopyState, CopyStateKind
from gateway.definitions.changes import copy_states
from gateway.definitions.model import Plan
from gateway.definitions.requests import apply_requests, new_partitions
from tests.unit.definitions.test_changes import TABLE, plan

PLAN = plan(None)
FAR = Progress((b"5",), rows=5)


def state(kind: CopyStateKind, asked: str | None = None) -> CopyState:
    (pending,) = copy_states(PLAN, (), reconcile=True)
    point = None if kind == "pending" else Lsn(5)
    return replace(pending, state=kind, consistent_point=point, progress=FAR, asked=asked)


def request(where: str = "", *, cancel: bool = False, table: str | None = "t") -> CopyRequest:
    return CopyRequest("n", None if table is None else "public", table, None, where, cancel)


def taken(before: CopyState, *requests: CopyRequest) -> tuple[CopyState, list[str]]:
    (after,), refused = apply_requests(PLAN, [before], requests, {})
    return after, refused


@pytest.mark.parametrize("where", ["", "a > 5"], ids=["all", "part"])
def test_a_table_stays_ready_when_it_is_asked_for(where: str) -> None:
    after = replace(state("ready"), asked=where, progress=Progress())

    assert taken(state("ready"), request(where)) == (after, [])


def test_a_copy_under_way_begins_anew_when_the_table_is_asked_for() -> None:
    after = replace(state("pending"), progress=Progress())

    assert taken(state("copying"), request()) == (after, [])


@pytest.mark.parametrize(
    "before", [state("copying"), state("pending"), state("ready", "a > 1"), state("ready", "")]
)
def test_a_part_is_refused_while_the_table_is_copied(before: CopyState) -> None:
    after, (why,) = taken(before, request("a > 5"))

    assert after == before
    assert "a part of it can be copied when that is done" in why


def test_what_was_asked_for_is_cancelled_with_all_that_came_before_it() -> None:
    after, refused = taken(state("ready"), request("a > 5"), request(cancel=True, table=None))

    assert (after.state, after.asked, refused) == ("ready", None, [])


def test_a_copy_that_has_begun_is_not_cancelled() -> None:
    assert taken(state("copying"), request(cancel=True)) == (state("copying"), [])


def test_a_table_that_nobody_copies_is_refused() -> None:
    assert taken(state("ready"), request(table="u"))[1] == ["nobody copies table public.u"]


def test_a_partition_that_comes_to_a_copy_under_way_is_copied_afterwards() -> None:
    tree = replace(TABLE, kind="p")
    low, high = (replace(TABLE, oid=oid, name=f"t{oid}", ancestors=(1,)) for oid in (2, 3))

    def with_leaves(*leaves: int) -> Plan:
        base = plan(None, table=replace(tree, leaves=leaves))
        (publish,) = base.publishes
        publishes = tuple(replace(publish, relation_oid=leaf) for leaf in leaves)
        return replace(base, tables={1: base.tables[1], 2: low, 3: high}, publishes=publishes)

    before, after = with_leaves(2), with_leaves(2, 3)
    (first,) = copy_states(before, (), reconcile=True)
    copying = replace(first, state="copying", progress=FAR)

    (kept,) = copy_states(after, [copying], reconcile=False)
    assert new_partitions(after, [kept]) == {("s", "public", "t"): frozenset({3})}
    (found,), _ = apply_requests(after, [kept], (), {3: "a > 100"})

    assert (found.state, found.asked, found.progress) == ("copying", "a > 100", FAR)
    assert new_partitions(after, [found]) == {}
