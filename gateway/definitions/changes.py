"""Effects of changed definitions on the subscriber tables. Pure.

Each subscriber table has a fingerprint of everything that decides which rows it holds. The
fingerprint is stored with the watermark; after a restart it shows which tables were filled under
another definition than the one in force.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gateway.core.names import topic_of
from gateway.core.watermark import CopyState
from gateway.definitions.model import Plan, Publish, TableCopy
from gateway.definitions.tables.recalled import has_same_key, has_same_masks, unseen_since
from gateway.definitions.tables.remembered import describe, describe_masks, relations_of
from gateway.definitions.tables.unread import has_unread_changes

__all__ = ["attached", "copy_states", "ended_states", "fingerprint_of", "key_of_copy"]

_MIXED = "~"
"""Suffix of the fingerprint of a table that may have rows from an earlier definition."""

TableKey = tuple[str, str, str]
"""Key of a table: subscription, schema, table."""


def fingerprint_of(plan: Plan, copy: TableCopy) -> str:
    """Return 16 hex digits that differ if the table would hold other rows, columns or masks.

    The names of publications are left out, and so is a column that is added to a table without a
    column list: neither changes which rows the table holds.
    """
    definition: dict[str, object] = {
        "copy": sorted(clause.text for clause in copy.filters),
        "stream": sorted(
            {
                json.dumps(
                    [
                        _listed(plan, publish),
                        publish.generated,
                        {
                            operation.value: sorted(
                                clause.text for clause in publish.filters.get(operation, ())
                            )
                            for operation in sorted(publish.operations, key=lambda o: o.value)
                        },
                    ]
                )
                for publish in plan.publishes_of(copy.subscription, copy.target_oid)
            }
        ),
    }
    if copy.masks:
        definition["masks"] = [(name, str(mask), mask.key_id) for name, mask in copy.masks]
    return hashlib.sha256(json.dumps(definition).encode()).hexdigest()[:16]


def copy_states(
    plan: Plan,
    states: Iterable[CopyState],
    *,
    reconcile: bool,
    names: Mapping[str, str] | None = None,
) -> tuple[CopyState, ...]:
    """Return the states of the tables when `plan` comes into force; tables to copy are pending.

    A copy in progress continues if its definition is unchanged. Tables are identified by their
    OIDs: a table that was created again under the same name is copied, and so is one whose key,
    masks or topic have changed, because the topic has no row as it is published now, and one of
    which updates or deletes may have been missed. Tables that the plan no longer names are
    forgotten, and copied if they come back; of held ones, the masks are kept. Missing tables stay
    missing, and dropped tables stay as they are for as long as the plan publishes rows of them that
    may still be in the stream.

    Args:
        plan: New plan.
        states: States of all tables, as in the watermark.
        reconcile: Whether tables with another definition are copied again. Otherwise the new
            definition applies from now on, as natively after ALTER PUBLICATION.
        names: Topic names, see `gateway.core.names.topic_of`; None if topics stay unchanged.
    """
    states = tuple(states)
    known = {(state.subscription, state.schema, state.table): state for state in states}
    described = {(state.subscription, state.oid): state.taken for state in states if state.taken}
    published = {
        key: state.consistent_point
        for key, state in known.items()
        if state.state in ("pending", "held")
    }
    result = []
    copied = {(copy.subscription, copy.target_oid) for copy in plan.copies}
    for copy in plan.copies:
        key, fingerprint = key_of_copy(plan, copy), fingerprint_of(plan, copy)
        state = known.pop(key, None)
        before = "" if state is None else state.taken
        oid, taken = copy.target_oid, describe(plan, copy, before)
        if state is not None and (state.state in ("missing", "held") or state.oid != oid):
            state = None  # it has missed changes, or is another table of the same name
        if state is not None and state.taken and not has_same_key(state.taken, taken):
            state = None  # consumers have its rows under keys that no longer occur
        if state is not None and state.taken and not has_same_masks(state.taken, plan, copy):
            state = None  # consumers have values under other masks, or in clear
        if state is not None and state.taken and unseen_since(state.taken, plan, copy) is not None:
            state = None  # rows have values other than those copied
        if state is not None and state.taken and has_unread_changes(state.taken, plan, copy):
            state = None  # rows of a partition may have been changed since they were inserted
        topic = "" if names is None else topic_of(*key, names)
        if state is not None and state.topic != topic and names is not None:
            state = None
        if state is not None and not (state.state == "copying" and attached(state, taken)):
            # In the other case `requests.apply_requests` detects the attached partitions.
            state = replace(state, taken=taken)
        if state is not None and state.definition.removesuffix(_MIXED) == fingerprint:
            result.append(state)
        elif state is not None and state.state == "ready" and not reconcile:
            result.append(replace(state, definition=_adopted(state.definition, fingerprint)))
        else:
            taken = describe(plan, copy) if before else taken
            pending = CopyState(*key, "pending", published.get(key), fingerprint, oid=oid)
            result.append(replace(pending, taken=taken, topic=topic))
    subscriptions = {subscription.name for subscription in plan.subscriptions}
    for table in plan.held:
        key = (table.subscription, table.schema, table.table)
        state = known.pop(key, None)
        definition = "" if state is None else state.definition
        held = CopyState(*key, "held", None, definition, oid=table.oid, reason=table.reason)
        before = described.get((table.subscription, table.oid), "")
        held = replace(held, taken=describe_masks(table.masked_as, before), cause=table.cause)
        if held.waits_for_request and names is not None:
            held = replace(held, topic=topic_of(*key, names))
        if state is not None and state.state in ("held", "pending"):
            held = replace(held, consistent_point=state.consistent_point)
        result.append(held)
    missing = {(schema, name): why for schema, name, why in plan.missing}
    for state in known.values():
        if (state.subscription, state.oid) in plan.retired - copied:
            result.append(state)
        elif state.subscription in subscriptions:
            why = missing.get((state.schema, state.table))
            if why is not None:
                result.append(replace(state, state="missing", taken="", reason=why))
    return tuple(result)


def attached(state: CopyState, taken: str) -> frozenset[int]:
    """Return the partitions in `taken` that the table did not have when its copy started."""
    if not state.taken:
        return frozenset()
    return relations_of(taken) - relations_of(state.taken) - {state.oid}


def _adopted(definition: str, fingerprint: str) -> str:
    """Return the definition of a table that adopts `fingerprint` without a copy.

    Rows from the previous definition stay as they are, as natively after ALTER PUBLICATION. The
    contents of the table are therefore no longer known exactly, until it is copied.
    """
    return definition if definition.removesuffix(_MIXED) == fingerprint else fingerprint + _MIXED


def key_of_copy(plan: Plan, copy: TableCopy) -> TableKey:
    """Return the key of the table of `copy` in states."""
    table = plan.tables[copy.target_oid]
    return copy.subscription, table.schema, table.name


def _listed(plan: Plan, publish: Publish) -> list[str] | None:
    """Return the column list; None if it names exactly the columns published without one."""
    table = plan.tables[publish.target_oid]
    everything = tuple(column.name for column in table.columns if not column.generated)
    return None if publish.columns in (None, everything) else sorted(publish.columns or ())


def ended_states(before: Iterable[CopyState], after: Iterable[CopyState]) -> list[CopyState]:
    """Return the states of tables that end as ``gone``, or become ``missing`` or ``held``."""
    now = {(state.subscription, state.schema, state.table): state for state in after}
    ended = []
    for state in before:
        present = now.get((state.subscription, state.schema, state.table))
        if present is None:
            ended.append(replace(state, state="gone"))
        elif present.state in ("missing", "held") and present.state != state.state:
            ended.append(present)
    return ended
