"""What a change of the definitions means for the subscriber tables. Pure.

Each subscriber table has a fingerprint of all that decides which rows it holds. Kept with the
watermark, it tells after any restart which tables have rows by another definition than the one
that is in force now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gateway.core.names import topic_of
from gateway.core.records import CopyState
from gateway.definitions.model import Plan, Publish, TableCopy
from gateway.definitions.tables.remembered import describe, has_same_key, relations_of, unseen_since

__all__ = ["attached", "copy_states", "ended_states", "fingerprint_of", "key_of_copy"]

_MIXED = "~"
"""Behind a fingerprint: some rows of the table may have come by an earlier definition."""

TableKey = tuple[str, str, str]
"""subscription, schema, table"""


def fingerprint_of(plan: Plan, copy: TableCopy) -> str:
    """Return 16 hex digits that differ when other rows or columns would be in the table.

    The names of publications do not count, nor does a column that is added to a table without a
    column list: neither changes what rows there are.
    """
    said = {
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
                for publish in _publishes_of(plan, copy)
            }
        ),
    }
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]


def copy_states(
    plan: Plan,
    states: Iterable[CopyState],
    *,
    reconcile: bool,
    names: Mapping[str, str] | None = None,
) -> tuple[CopyState, ...]:
    """Return the state of each table of `plan` as it comes into force; those to copy are pending.

    A copy under way goes on if it is still the same. Tables are told apart by their OIDs: one that
    was made again under the same name is copied, and so is one whose key has changed, or whose
    topic: the new one has none of the rows. Those that the plan
    does not name any more are forgotten; should they come back, they are copied. Those that are
    missing are kept as that, and those that are dropped as they are, for as long as the plan
    publishes what the stream may have.

    Args:
        plan: The new one.
        states: Of all tables, as the watermark has them.
        reconcile: Tables that exist under another definition are copied. Otherwise the new
            definition counts from now on, as natively after ALTER PUBLICATION.
        names: Of topics: `gateway.core.names.topic_of`; None: topics stay what they are.
    """
    known = {(state.subscription, state.schema, state.table): state for state in states}
    found = []
    copied = {(copy.subscription, copy.target_oid) for copy in plan.copies}
    for copy in plan.copies:
        key, fingerprint = key_of_copy(plan, copy), fingerprint_of(plan, copy)
        oid, taken = copy.target_oid, describe(plan, copy)
        state = known.pop(key, None)
        if state is not None and (state.state in ("missing", "held") or state.oid != oid):
            state = None  # it has lacked changes; a table of the same name is another table
        if state is not None and state.taken and not has_same_key(state.taken, taken):
            state = None  # consumers have its rows under keys that do not come any more
        if state is not None and state.taken and unseen_since(state.taken, plan, copy) is not None:
            state = None  # rows have other values than when they were copied
        topic = "" if names is None else topic_of(*key, names)
        if state is not None and state.topic != topic and names is not None:
            state = None
        if state is not None and not (state.state == "copying" and attached(state, taken)):
            state = replace(
                state, taken=taken
            )  # else `requests.apply_requests` sees what was attached
        if state is not None and state.definition.removesuffix(_MIXED) == fingerprint:
            found.append(state)
        elif state is not None and state.state == "ready" and not reconcile:
            found.append(replace(state, definition=_adopted(state.definition, fingerprint)))
        else:
            pending = CopyState(*key, "pending", definition=fingerprint, oid=oid, taken=taken)
            found.append(replace(pending, topic=topic))
    subscriptions = {subscription.name for subscription in plan.subscriptions}
    for table in plan.held:
        key = (table.subscription, table.schema, table.table)
        state = known.pop(key, None)
        definition = "" if state is None else state.definition
        held = CopyState(*key, "held", None, definition, oid=table.oid, reason=table.reason)
        if table.cause:
            topic = "" if names is None else topic_of(*key, names)
            held = replace(held, cause=table.cause, topic=topic)
        if state is not None and state.state == "held":
            held = replace(held, consistent_point=state.consistent_point)
        found.append(held)
    missing = {(schema, name): why for schema, name, why in plan.missing}
    for state in known.values():
        if (state.subscription, state.oid) in plan.retired - copied:
            found.append(state)
        elif state.subscription in subscriptions:
            why = missing.get((state.schema, state.table))
            if why is not None:
                found.append(replace(state, state="missing", taken="", reason=why))
    return tuple(found)


def attached(state: CopyState, taken: str) -> frozenset[int]:
    """Return the partitions in `taken` that the table had not when its copy began."""
    if not state.taken:
        return frozenset()
    return relations_of(taken) - relations_of(state.taken) - {state.oid}


def _adopted(definition: str, fingerprint: str) -> str:
    """Return what is kept of a table that takes on the definition of `fingerprint` without a copy.

    Rows that came by the one before stay as they are, as natively after ALTER PUBLICATION. So what
    the table holds is not known exactly any more, until it is copied.
    """
    return definition if definition.removesuffix(_MIXED) == fingerprint else fingerprint + _MIXED


def key_of_copy(plan: Plan, copy: TableCopy) -> TableKey:
    """Return how states name the table of `copy`."""
    table = plan.tables[copy.target_oid]
    return copy.subscription, table.schema, table.name


def _publishes_of(plan: Plan, copy: TableCopy) -> Sequence[Publish]:
    return [
        publish
        for publish in plan.publishes
        if publish.subscription == copy.subscription and publish.target_oid == copy.target_oid
    ]


def _listed(plan: Plan, publish: Publish) -> list[str] | None:
    """The column list; None when it names what is published without one."""
    table = plan.tables[publish.target_oid]
    everything = tuple(column.name for column in table.columns if not column.generated)
    return None if publish.columns in (None, everything) else sorted(publish.columns or ())


def ended_states(before: Iterable[CopyState], after: Iterable[CopyState]) -> list[CopyState]:
    """Return the states that end: as ``gone``, or as ``missing`` or ``held`` where that begins."""
    now = {(state.subscription, state.schema, state.table): state for state in after}
    ended = []
    for state in before:
        found = now.get((state.subscription, state.schema, state.table))
        if found is None:
            ended.append(replace(state, state="gone"))
        elif found.state in ("missing", "held") and found.state != state.state:
            ended.append(found)
    return ended
