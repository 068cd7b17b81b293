"""A plan of many tables: the work grows with them, not with their square."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import pytest

from gateway.core.watermark import CopyState
from gateway.definitions.changes import copy_states
from gateway.definitions.combine import make_plan
from gateway.definitions.model import ALL_OPERATIONS, Catalog, Column, Plan, Publication, Table
from gateway.definitions.sql.parser import parse_definitions
from gateway.definitions.tables.recalled import oids_of, recall
from gateway.definitions.tables.unread import with_unread
from gateway.pgoutput.messages import ReplicaIdentity

ID = Column("id", 1, 23, -1, "integer", 23, -1, "b", False, "", None, None)
DEFINITIONS = parse_definitions("CREATE SUBSCRIPTION s CONNECTION '' PUBLICATION p;")


@pytest.mark.parametrize("schemas", [(), ("public",)], ids=["all-tables", "schema"])
def test_a_plan_takes_work_for_each_table(schemas: tuple[str, ...]) -> None:
    few, many = (_lines(partial(planned, count, schemas)) for count in (100, 400))

    assert many < 5 * few


def test_a_start_takes_work_for_each_table() -> None:
    few, many = (_lines(partial(started, planned(count))) for count in (100, 400))

    assert many < 5 * few


def planned(count: int, schemas: tuple[str, ...] = ()) -> Plan:
    tables = {
        oid: Table(oid, "public", f"t{oid}", "r", (ID,), ReplicaIdentity.DEFAULT, ("id",), ("id",))
        for oid in range(1, count + 1)
    }
    published = Publication("p", ALL_OPERATIONS, False, not schemas, schemas, ())
    catalog = Catalog(tables, {"p": published})
    plan = make_plan(DEFINITIONS, catalog, prefix="s", missing_identity="refuse")
    assert len(plan.copies) == count
    return plan


def started(plan: Plan) -> tuple[CopyState, ...]:
    """Work of a first start on a plan, and of the next one."""
    pending = copy_states(plan, (), reconcile=False)
    ready = [replace(state, state="ready") for state in pending]
    read = with_unread(plan, ready, plan.oids_read_with_changes)
    assert recall(plan, read, oids_of(read), same_definitions=True, exactly=True) == plan
    # Every second table is gone: it is published as before, for the last of its rows.
    left = {oid for oid in oids_of(read) if oid % 2}
    recalled = recall(plan, read, left, same_definitions=True, exactly=True)
    assert len(recalled.earlier) == len(plan.copies) - len(left)
    return copy_states(recalled, read, reconcile=True)


def _lines(work: Callable[[], Any]) -> int:
    """Number of lines of Python that are run, iterations of comprehensions among them."""
    lines = 0

    def see(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal lines
        lines += event == "line"
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines
