"""Plans that differ, and the copies and subscriptions that come with another one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.core.watermark import CopyState
from gateway.definitions.model import (
    ALL_OPERATIONS,
    HeldTable,
    Plan,
    ServerPublication,
    SubscriptionDefinition,
    TableCopy,
)
from gateway.runtime.reload.differences import added_subscriptions, has_new_copies, plans_differ
from tests.support.gateway.routing_scene import T1, T1_TABLE, publish

COPY = TableCopy("s", T1, (), ("a", "b"))
PLAN = Plan({T1: T1_TABLE}, (SubscriptionDefinition("s", ("p",)),), (publish("s"),), (COPY,), ())
WIDER = replace(PLAN, publishes=(publish("s"), publish("s", relation=7)))
PENDING = CopyState("s", "public", "t1", "pending", oid=T1, definition="x")


@pytest.mark.parametrize(
    ("after", "stream_plan", "differs"),
    [
        (PLAN, None, False),
        (PLAN, PLAN, False),
        (replace(PLAN, warnings=("inserts only",)), None, False),
        (WIDER, None, True),
        (replace(PLAN, copies=()), None, True),
        (replace(PLAN, held=(HeldTable("s", "public", "u", 9, "why"),)), None, True),
        (
            replace(
                PLAN,
                server_publications=(
                    ServerPublication("gw", (T1,), ALL_OPERATIONS, via_root=True),
                ),
            ),
            None,
            True,
        ),
        # The catalog is as when the plan was read, and DDL messages have said something else.
        (PLAN, WIDER, True),
    ],
)
def test_a_plan_differs_by_what_it_publishes_and_needs(
    after: Plan, stream_plan: Plan | None, differs: bool
) -> None:
    assert plans_differ(PLAN, after, stream_plan) is differs


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ([], [], False),
        ([PENDING], [PENDING], False),
        ([PENDING], [], False),
        ([], [PENDING], True),
        ([replace(PENDING, state="ready")], [PENDING], True),
        ([PENDING], [replace(PENDING, definition="y")], True),
        ([], [replace(PENDING, state="ready")], False),
    ],
)
def test_a_copy_is_new_if_it_was_not_pending_with_its_definition(
    before: list[CopyState], after: list[CopyState], new: bool
) -> None:
    assert has_new_copies(before, after) is new


def test_a_subscription_without_copies_before_counts_as_added() -> None:
    both = (*PLAN.subscriptions, SubscriptionDefinition("other", ("p",)))

    assert added_subscriptions(PLAN, replace(PLAN, subscriptions=both)) == {"other"}
    assert added_subscriptions(replace(PLAN, copies=()), PLAN) == {"s"}
