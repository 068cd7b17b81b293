"""What a request to copy tables once more means for the states of their copies. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gateway.copy.progress import Progress
from gateway.definitions.changes import key_of_copy
from gateway.definitions.model import Plan, TableCopy
from gateway.envelope.schema import key_of
from gateway.records import CopyRequest, CopyState

__all__ = ["concerned", "refusal", "take"]


def take(
    plan: Plan, states: Iterable[CopyState], requests: Iterable[CopyRequest]
) -> tuple[tuple[CopyState, ...], list[str]]:
    """Return the states after all requests, and why something of these was refused.

    Args:
        plan: In force.
        states: Of all tables.
        requests: In the order in which they came.
    """
    found = {(state.subscription, state.schema, state.table): state for state in states}
    refused = []
    for request in requests:
        copies = concerned(plan, request)
        if not copies and not request.cancel:
            refused.append(f"nobody copies table {request.schema}.{request.table}")
        for copy in copies:
            key = key_of_copy(plan, copy)
            why = refusal(plan, copy, found[key], request)
            if why is None:
                found[key] = _asked(found[key], request)
            elif not request.cancel:
                refused.append(why)
    return tuple(found.values()), refused


def concerned(plan: Plan, request: CopyRequest) -> Sequence[TableCopy]:
    """Return the copies that a request is about."""
    return [
        copy
        for copy in plan.copies
        if request.subscription in (None, copy.subscription)
        and (
            request.table is None or key_of_copy(plan, copy)[1:] == (request.schema, request.table)
        )
    ]


def refusal(plan: Plan, copy: TableCopy, state: CopyState, request: CopyRequest) -> str | None:
    """Say why a request cannot be followed for one table of one subscription; None: it can be."""
    table = plan.tables[copy.target_oid]
    name = f"table {table} of subscription {copy.subscription}"
    if request.cancel:
        if state.state == "ready" and state.asked is not None:
            return None
        if state.state == "ready":
            return f"{name}: nothing of it is being copied"
        return f"{name}: its copy has begun, so that consumers have dropped what they had of it"
    if not request.where:
        return None
    if not key_of(table, copy.columns):
        return f"{name} has no key, so that it can only be copied as a whole"
    if state.state != "ready" or state.asked is not None:
        return f"{name} is being copied; a part of it can be copied when that is done"
    return None


def _asked(state: CopyState, request: CopyRequest) -> CopyState:
    if request.cancel:
        return replace(state, asked=None)
    if state.state == "ready":
        # Consumers have the whole table, until a copy of all of it begins with its `t`.
        return replace(state, asked=request.where, progress=Progress())
    return replace(state, state="pending", consistent_point=None, progress=Progress())
