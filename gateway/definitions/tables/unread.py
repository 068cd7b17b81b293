"""Relations whose updates and deletes the gateway does not read from the server. Pure.

Those of a relation without a usable replica identity would fail at the source. If it gets one, or
comes into a tree that is read without updates and deletes, PostgreSQL publishes them at once, and
the gateway reads them from its next look at the catalog on. Nothing shows whether there were any in
between, so that the table has to be copied. A relation is committed as unread before a publication
stops reading it: what follows may be undone by the time of the next commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Set
from dataclasses import replace

from gateway.core.watermark import CopyState
from gateway.definitions.model import IDENTIFYING, Plan, Publish, Table, TableCopy

__all__ = ["has_unread_changes", "unread_in", "unread_relations", "with_unread"]


def unread_relations(
    plan: Plan,
    table: Table,
    publishes: Iterable[Publish],
    before: str,
    read: Set[int] | None = None,
) -> list[int]:
    """Return the OIDs of the relations of a table whose updates and deletes are not read.

    A tree is among them if those of later partitions would not be.

    Args:
        plan: Plan whose publications are on the server.
        table: Table of a subscription.
        publishes: Its publishes.
        before: Description of the table until now, or empty. A relation that is unread in it
            stays so until the table is copied.
        read: Members of the gateway's publications that are read with updates or deletes, with
            partitions; None for those of `plan`.
    """
    relations = {publish.relation_oid for publish in publishes} - {table.oid}
    above = {oid: {oid, *_ancestors(plan, oid)} for oid in (table.oid, *relations)}
    if read is None:
        read = plan.oids_read_with_changes
    unread = {oid for oid, family in above.items() if read.isdisjoint(family)}
    if table.oid not in unread or not plan.server_publications:
        unread = set()
    return sorted(unread | (unread_in(before) & (relations if table.kind == "p" else {table.oid})))


def with_unread(plan: Plan, states: Iterable[CopyState], read: Set[int]) -> tuple[CopyState, ...]:
    """Return the states, with the relations that are not read now or will not be under `plan`.

    Args:
        plan: Plan of a start, whose publications may not be on the server yet.
        states: Committed states.
        read: As in `unread_relations`, of the publications on the server.
    """
    result = []
    for state in states:
        publishes = plan.publishes_of(state.subscription, state.oid)
        if publishes and state.taken and state.state in ("copying", "ready"):
            table, before = plan.tables[state.oid], unread_in(state.taken)
            unread = before.union(
                unread_relations(plan, table, publishes, ""),
                unread_relations(plan, table, publishes, "", read),
            )
            if unread != before:
                taken = json.loads(state.taken) | {"unread": sorted(unread)}
                text = json.dumps(taken, ensure_ascii=False, separators=(",", ":"))
                state = replace(state, taken=text)
        result.append(state)
    return tuple(result)


def has_unread_changes(taken: str, plan: Plan, copy: TableCopy) -> bool:
    """Whether updates or deletes that `plan` publishes may have been missed.

    Args:
        taken: Description of the table of `copy`, from `gateway.definitions.tables.remembered`.
        plan: Current plan.
        copy: Copy of the plan.
    """
    unread = unread_in(taken)
    if not unread:
        return False
    known = {oid for item in json.loads(taken)["publishes"] for oid in item.get("relations", ())}
    is_tree = plan.tables[copy.target_oid].kind == "p"
    return any(
        publish.relation_oid in unread
        or (publish.relation_oid not in known and copy.target_oid in unread)
        for publish in plan.publishes_of(copy.subscription, copy.target_oid)
        if not publish.operations.isdisjoint(IDENTIFYING)
        and (copy.subscription, publish.relation_oid) not in plan.earlier
        and not (is_tree and publish.relation_oid == copy.target_oid)
    )


def unread_in(taken: str) -> set[int]:
    """Return the OIDs of the unread relations in a description, or in an empty text."""
    return set(json.loads(taken).get("unread", ())) if taken else set()


def _ancestors(plan: Plan, oid: int) -> tuple[int, ...]:
    table = plan.tables.get(oid)
    return () if table is None else table.ancestors
