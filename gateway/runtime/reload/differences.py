"""Differences between the plan in force and another one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.core.watermark import CopyState
from gateway.definitions.model import Plan, Publish
from gateway.definitions.tables.inner import other_trees
from gateway.definitions.tables.labels import has_new_labels

__all__ = ["added_subscriptions", "has_new_copies", "plans_differ"]


def plans_differ(before: Plan, after: Plan, stream_plan: Plan | None) -> bool:
    """Whether a plan publishes something else than the one in force.

    Args:
        before: Plan in force.
        after: Plan by the catalog.
        stream_plan: Plan according to DDL messages since then; None if there were none.
    """
    known = (stream_plan or before).tables
    return (
        not _same(before, after)
        or (stream_plan is not None and _publishes_of(stream_plan) != _publishes_of(after))
        or has_new_labels(known, after)
        or bool(other_trees(known, after))
    )


def has_new_copies(before: Iterable[CopyState], after: Iterable[CopyState]) -> bool:
    """Whether tables are to be copied that were not, or not as they are defined now."""
    return not _pending(after) <= _pending(before)


def added_subscriptions(before: Plan, after: Plan) -> set[str]:
    """Return the names of the subscriptions that are new, or had all their tables held."""
    published = {copy.subscription for copy in before.copies}
    return {s.name for s in after.subscriptions if s.name not in published}


def _pending(states: Iterable[CopyState]) -> set[tuple[str, str, str, int, str]]:
    return {
        (state.subscription, state.schema, state.table, state.oid, state.definition)
        for state in states
        if state.state == "pending"
    }


def _publishes_of(plan: Plan) -> list[Publish]:
    return sorted(plan.publishes, key=lambda p: (p.subscription, p.relation_oid, p.target_oid))


def _same(before: Plan, after: Plan) -> bool:
    """Whether two plans publish the same, and need the same from the server."""
    return (
        before.publishes,
        before.copies,
        before.subscriptions,
        before.server_publications,
        before.held,
    ) == (
        after.publishes,
        after.copies,
        after.subscriptions,
        after.server_publications,
        after.held,
    )
