"""Requests for copies, by an operator or because of an attached partition. Pure.

ATTACH PARTITION puts no rows into the stream. If it happens while the tree is being copied under
its root, rows of the partition with keys that the copy has already passed would be missing. The
rows that the partition can hold are therefore copied once more, as a part, after the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gateway.core.copy_progress import Progress
from gateway.core.watermark import CopyRequest, CopyState, restarted
from gateway.definitions.changes import TableKey, attached, key_of_copy
from gateway.definitions.model import Fault, Plan, TableCopy
from gateway.definitions.tables.keys import key_of
from gateway.definitions.tables.remembered import describe

__all__ = [
    "apply_requests",
    "concerned",
    "is_asked",
    "new_partitions",
    "oids_of",
    "refusal",
    "released",
]


def new_partitions(plan: Plan, states: Iterable[CopyState]) -> dict[TableKey, frozenset[int]]:
    """Return the partitions attached to trees that are being copied."""
    known = {(state.subscription, state.schema, state.table): state for state in states}
    attachments = {}
    for copy in plan.copies:
        key = key_of_copy(plan, copy)
        if (state := known.get(key)) is not None and state.state == "copying":
            attachments[key] = attached(state, describe(plan, copy))
    return {key: partitions for key, partitions in attachments.items() if partitions}


def apply_requests(
    plan: Plan,
    states: Iterable[CopyState],
    requests: Iterable[CopyRequest],
    conditions: Mapping[int, str],
    unreadable: Mapping[int, Fault] = MappingProxyType({}),
    unfit: Mapping[str, str] = MappingProxyType({}),
) -> tuple[tuple[CopyState, ...], list[str]]:
    """Return the states after all requests, and the reasons of refused requests.

    Args:
        plan: Plan in force.
        states: States of all tables.
        requests: Requests in the order of their arrival.
        conditions: Conditions that the rows of `new_partitions` meet, by OID of the partition.
        unreadable: Faults of tables that cannot be read, by OID.
        unfit: Reasons, by request name, why a condition cannot be used.
    """
    result = {(state.subscription, state.schema, state.table): state for state in states}
    for copy in plan.copies:
        key = key_of_copy(plan, copy)
        partitions = new_partitions(plan, result.values()).get(key, frozenset())
        parts = [conditions[oid] for oid in sorted(partitions) if oid in conditions]
        if partitions:
            asked = " OR ".join([*filter(None, [result[key].asked]), *parts]) or None
            taken = describe(plan, copy, result[key].taken)
            result[key] = replace(result[key], asked=asked, taken=taken)
    refused = []
    for request in requests:
        if request.name in unfit:
            refused.append(unfit[request.name])
            continue
        copies = concerned(plan, request)
        if not copies and not request.cancel:
            refused.append(_why_nobody(plan, request))
        for copy in copies:
            key = key_of_copy(plan, copy)
            why = refusal(plan, copy, result[key], request)
            if why is None and not request.cancel and copy.target_oid in unreadable:
                fault = unreadable[copy.target_oid]
                name = f"table {plan.tables[copy.target_oid]} of subscription {copy.subscription}"
                why = f"{name}: {fault.explained}"
            if why is None:
                result[key] = _asked(result[key], request)
            elif not request.cancel:
                refused.append(why)
    return tuple(result.values()), refused


def _why_nobody(plan: Plan, request: CopyRequest) -> str:
    for held in plan.held:
        if (held.schema, held.table) == (request.schema, request.table):
            return f"table {held.schema}.{held.table} is held: {held.reason}"
    return f"nobody copies table {request.schema}.{request.table}"


def is_asked(state: CopyState, requests: Iterable[CopyRequest]) -> bool:
    """Whether a request asks for the copy of the whole table."""
    return any(
        request.table in (None, state.table)
        and request.schema in (None, state.schema)
        and request.subscription in (None, state.subscription)
        for request in requests
        if not request.where and not request.cancel
    )


def released(states: Iterable[CopyState], requests: Sequence[CopyRequest]) -> tuple[CopyState, ...]:
    """Return the states; held tables whose copy is requested are released."""
    return tuple(
        replace(state, cause="") if state.waits_for_request and is_asked(state, requests) else state
        for state in states
    )


def oids_of(plan: Plan, requests: Iterable[CopyRequest]) -> frozenset[int]:
    """Return the OIDs of the tables whose copies are requested."""
    return frozenset(copy.target_oid for one in requests for copy in concerned(plan, one))


def concerned(plan: Plan, request: CopyRequest) -> Sequence[TableCopy]:
    """Return the copies that a request concerns."""
    return [
        copy
        for copy in plan.copies
        if request.subscription in (None, copy.subscription)
        and (
            request.table is None or key_of_copy(plan, copy)[1:] == (request.schema, request.table)
        )
    ]


def refusal(plan: Plan, copy: TableCopy, state: CopyState, request: CopyRequest) -> str | None:
    """Return why a request is refused for one table of one subscription, or None."""
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
        # Consumers have the whole table until a full copy starts with its `t`.
        return replace(state, asked=request.where, progress=Progress(), published=0)
    point = state.consistent_point if state.state == "pending" else None
    return replace(restarted(state), taken=state.taken, consistent_point=point)
