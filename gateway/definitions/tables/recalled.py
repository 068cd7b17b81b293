"""Tables as they were published before: compared with a plan, and added to it when they are gone.

Pure. The descriptions are those of `gateway.definitions.tables.remembered`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import replace

from gateway.core.watermark import CopyState
from gateway.definitions.model import MaskedBefore, Plan, Publish, Table, TableCopy
from gateway.definitions.sql.expression import column_names
from gateway.definitions.tables.mask_changes import changed_masks, masks_by_number
from gateway.definitions.tables.remembered import (
    masked_columns,
    masks_of,
    read_column,
    read_description,
    relations_of,
)
from gateway.definitions.tables.retired import with_retired
from gateway.definitions.tables.shape import read_shape, unseen_change

__all__ = [
    "has_same_key",
    "has_same_masks",
    "known_tables",
    "masked_before",
    "oids_of",
    "recall",
    "unseen_since",
]


def has_same_key(before: str, after: str) -> bool:
    """Whether two texts of `describe` have the same key, in the same Avro types and format.

    Columns that only one of them has in a whole-row key leave the key the same, and so do all in
    older texts, which do not say how keys were carried.
    """
    was, now = json.loads(before), json.loads(after)
    if any(was.get(name) != now.get(name) for name in ("format", "chosen")):
        return False
    types = was.get("native", {})
    same = all(types.get(name, native) == native for name, native in now["native"].items())
    return bool(was["key"] == now["key"] and same)


def has_same_masks(taken: str, plan: Plan, copy: TableCopy) -> bool:
    """Whether the columns published at the time of `taken` have the masks that they had then.

    Args:
        taken: Description of the table of `copy`, from `describe`.
        plan: Current plan.
        copy: Copy of the plan.
    """
    description = json.loads(taken)
    if not copy.masks and not description.get("masked"):
        return True
    lists = [item["columns"] for item in description["publishes"]]
    masks = {number: mask for number, _, mask in masked_columns(description)}
    before = {
        column.attnum: masks.get(column.attnum)
        for column in map(read_column, description["columns"])
        if not lists or any(names is None or column.name in names for names in lists)
    }
    return not changed_masks(before, masks_by_number(plan.tables[copy.target_oid], copy))


def unseen_since(taken: str, plan: Plan, copy: TableCopy) -> str | None:
    """Return why rows may have other values than at the time of `taken`, or None.

    Args:
        taken: Description of the table of `copy`, from `describe`.
        plan: Current plan.
        copy: Copy of the plan.
    """
    description, table = json.loads(taken), plan.tables[copy.target_oid]
    before = [read_column(values) for values in description["columns"]]
    shape = read_shape(description.get("shape"))
    return unseen_change(before, shape, table.columns, table.shape, copy.columns)


def known_tables(states: Iterable[CopyState]) -> dict[tuple[str, str], int]:
    """Return the OID under which each table was published, by schema and name."""
    return {(state.schema, state.table): state.oid for state in states if state.oid}


def masked_before(states: Iterable[CopyState]) -> list[MaskedBefore]:
    """Return the masks of the tables that had some, those of held tables among them."""
    described = ((state, json.loads(state.taken)) for state in states if state.taken)
    return [masks_of(state, found) for state, found in described if "masked_as" in found]


def oids_of(states: Iterable[CopyState]) -> set[int]:
    """Return the OIDs of all relations that were published."""
    oids: set[int] = set()
    for state in states:
        if state.taken:
            oids.add(state.oid)
            oids |= relations_of(state.taken)
    return oids


def recall(
    plan: Plan,
    states: Iterable[CopyState],
    existing: Collection[int],
    *,
    same_definitions: bool = False,
    exactly: bool = False,
) -> Plan:
    """Return `plan` extended by relations that were published and no longer exist.

    A table that was created again under the same name is not recalled: its copy replaces every row
    of the previous one that could still arrive.

    Args:
        plan: Current plan.
        states: Copy states as committed with the watermark.
        existing: OIDs of existing relations among those of `oids_of`.
        same_definitions: Whether the definitions are unchanged. If they are, relations that are no
            longer published have left a publication or a tree, and are recalled as well, as are
            those now published as another table; otherwise the definitions dropped them.
        exactly: Whether, with `same_definitions`, everything is published as before, because DDL
            messages tell where in the stream that changes.
    """
    named = {
        (copy.subscription, plan.tables[copy.target_oid].schema, plan.tables[copy.target_oid].name)
        for copy in plan.copies
    }
    subscriptions = {subscription.name for subscription in plan.subscriptions}
    copied = {(copy.subscription, copy.target_oid) for copy in plan.copies}
    now = {(publish.subscription, publish.relation_oid): publish for publish in plan.publishes}
    held = {(table.subscription, table.oid) for table in plan.held}
    tables: dict[int, Table] = {}
    publishes: list[Publish] = []
    for state in states:
        replaced = (state.subscription, state.schema, state.table) in named and (
            state.subscription,
            state.oid,
        ) not in copied
        if not state.taken or replaced or state.subscription not in subscriptions:
            continue
        if state.state == "held" or _is_moving(state):
            continue  # its description has masks only, or lacks what its filters are
        table, found = read_description(state)
        retired = [
            p
            for p in found
            if p.relation_oid not in existing
            or (
                same_definitions
                and (p.subscription, p.relation_oid) not in held
                and _differs(p, now.get((p.subscription, p.relation_oid)), plan, exactly)
            )
        ]
        if exactly and same_definitions and not found and table.kind == "r":
            plan = _without(plan, state.subscription, state.oid)
        if retired and (state.oid in plan.tables or state.oid not in existing or same_definitions):
            tables |= {p.relation_oid: replace(table, oid=p.relation_oid) for p in retired}
            tables[table.oid] = table
            publishes += retired
    before = Plan({**tables, **plan.tables}, (), tuple(publishes), (), ())
    found_oids = {publish.relation_oid for publish in publishes}
    recalled = with_retired(plan, before, found_oids, found_oids if same_definitions else ())
    return replace(recalled, earlier=recalled.earlier | plan.earlier)


def _differs(was: Publish, now: Publish | None, plan: Plan, exactly: bool) -> bool:
    """Whether a relation is now published differently in a way that matters."""
    if now is None or was.target_oid != now.target_oid:
        return True
    if not exactly or was == now:
        return False
    columns = {column.name for column in plan.tables[was.target_oid].columns}
    read = {
        name
        for clauses in was.filters.values()
        for clause in clauses
        for name in column_names(clause.text)
    }
    return columns.issuperset(read)  # otherwise their types would be unknown


def _without(plan: Plan, subscription: str, target_oid: int) -> Plan:
    """Return `plan` without the publishes of a table that was in no publication before."""
    left = plan.publishes_of(subscription, target_oid)
    earlier = plan.earlier | {(subscription, publish.relation_oid) for publish in left}
    kept = tuple(publish for publish in plan.publishes if publish not in left)
    return replace(plan, publishes=kept, earlier=earlier)


def _is_moving(state: CopyState) -> bool:
    """Whether a table's filters read other tables: they are those of the plan, or none."""
    return bool(state.taken) and bool(json.loads(state.taken).get("moving"))
