"""What a change of the definitions means for the subscriber tables. Pure.

Each subscriber table has a fingerprint of all that decides which rows it holds. Kept with the
watermark, it tells after any restart which tables have rows by another definition than the one
that is in force now.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gateway.definitions.model import FilterClause, Operation, Plan, Publish, TableCopy
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.records import CopyState, Watermark

__all__ = [
    "Difference",
    "TableChange",
    "as_planned",
    "fingerprint_of",
    "key_of_copy",
    "outdated",
    "table_changes",
    "taken_on",
    "waiting",
    "without",
    "without_states",
]

_ROW_OPERATIONS = frozenset({Operation.INSERT, Operation.UPDATE, Operation.DELETE})

_MIXED = "~"
"""Behind a fingerprint: some rows of the table may have come by an earlier definition."""

TableKey = tuple[str, str, str]
"""subscription, schema, table"""


@dataclass(frozen=True, slots=True)
class Difference:
    """Conditions in SQL for the rows that change sides; all others stay as they are.

    Attributes:
        leaving: Rows that the subscriber table has and shall have no longer.
        entering: Rows that it does not have and shall have.
        filters: The row filters that the conditions are made of, old and new.
    """

    leaving: str
    entering: str
    filters: tuple[FilterClause, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class TableChange:
    """How a subscriber table comes to hold what its definition says.

    Attributes:
        difference: None: it is emptied and copied as a whole.
    """

    copy: TableCopy
    difference: Difference | None = None


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


def outdated(plan: Plan, states: Iterable[CopyState]) -> list[TableCopy]:
    """Return the tables of `plan` that are not there, or hold rows by another definition."""
    known = _by_key(states)
    return [
        copy
        for copy in plan.copies
        if (state := known.get(key_of_copy(plan, copy))) is None
        or state.state != "ready"
        or state.definition.removesuffix(_MIXED) != fingerprint_of(plan, copy)
    ]


def table_changes(
    plan: Plan, states: Iterable[CopyState], before: Plan | None, *, reconcile: bool
) -> tuple[TableChange, ...]:
    """Decide what must be copied so that all tables are as `plan` says.

    Args:
        plan: The new one.
        states: Of all tables, as the watermark has them.
        before: The plan by which the tables that are ready have come, when it is known.
        reconcile: Tables that exist under another definition take on the new one. Otherwise only
            tables that are not there are copied; for the others the new definition counts from now
            on, as natively after ALTER PUBLICATION.
    """
    known = _by_key(states)
    earlier = {} if before is None else {key_of_copy(before, copy): copy for copy in before.copies}
    changes = []
    for copy in outdated(plan, known.values()):
        key = key_of_copy(plan, copy)
        state = known.get(key)
        if state is None or state.state != "ready":
            changes.append(TableChange(copy))
        elif reconcile:
            difference = None
            old = earlier.get(key)
            # Otherwise its rows are by a definition that is not known any more.
            if before and old and fingerprint_of(before, old) == state.definition:
                difference = _difference(before, old, plan, copy)
            changes.append(TableChange(copy, difference))
    return tuple(changes)


def without(plan: Plan, copies: Iterable[TableCopy]) -> Plan:
    """Return `plan` as it can be in force while `copies` are still to come."""
    missing = {(copy.subscription, copy.target_oid) for copy in copies}
    return replace(
        plan,
        publishes=tuple(p for p in plan.publishes if (p.subscription, p.target_oid) not in missing),
        copies=tuple(c for c in plan.copies if (c.subscription, c.target_oid) not in missing),
    )


def waiting(plan: Plan, definitions: str, watermark: Watermark) -> list[TableCopy]:
    """Return the tables that cannot go on as planned, because their rows have to come first.

    Under the same definitions that is a table that is not there yet; one that a publication of the
    database now takes otherwise goes on at once, as natively.
    """
    late = outdated(plan, watermark.copies)
    if watermark.definitions != definitions:
        return late
    ready = {(s.subscription, s.schema, s.table) for s in watermark.copies if s.state == "ready"}
    return [copy for copy in late if key_of_copy(plan, copy) not in ready]


def without_states(plan: Plan, watermark: Watermark, waiting: Sequence[TableCopy]) -> Watermark:
    """Return `watermark` with the states that hold once it moves on without some tables.

    Those have no longer what their old definition says. Nor have the ones that the definitions do
    not name any more; should they come back, they are copied.
    """
    late = {key_of_copy(plan, copy) for copy in waiting}
    named = {key_of_copy(plan, copy) for copy in plan.copies}
    copies = [
        replace(s, state="pending", definition="") if key in late else s
        for s in watermark.copies
        if (key := (s.subscription, s.schema, s.table)) in named
    ]
    return replace(watermark, copies=tuple(copies))


def as_planned(plan: Plan, watermark: Watermark) -> Watermark:
    """Return `watermark` with the fingerprints of `plan`, all of whose tables are there."""
    now = {key_of_copy(plan, copy): fingerprint_of(plan, copy) for copy in plan.copies}

    def planned(state: CopyState) -> CopyState:
        fingerprint = now.get((state.subscription, state.schema, state.table))
        if fingerprint is None:
            return state
        return replace(state, definition=taken_on(state.definition, fingerprint))

    return replace(watermark, copies=tuple(map(planned, watermark.copies)))


def taken_on(definition: str, fingerprint: str) -> str:
    """Return what is kept of a table that takes on the definition of `fingerprint` without a copy.

    Rows that came by the one before stay as they are, as natively after ALTER PUBLICATION. So what
    the table holds is not known exactly any more, until it is copied.
    """
    return definition if definition.removesuffix(_MIXED) == fingerprint else fingerprint + _MIXED


def key_of_copy(plan: Plan, copy: TableCopy) -> TableKey:
    """Return how states name the table of `copy`."""
    table = plan.tables[copy.target_oid]
    return copy.subscription, table.schema, table.name


def _by_key(states: Iterable[CopyState]) -> Mapping[TableKey, CopyState]:
    return {(state.subscription, state.schema, state.table): state for state in states}


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


def _difference(before: Plan, old: TableCopy, plan: Plan, new: TableCopy) -> Difference | None:
    """The rows that change sides, where the subscriber table is known to be what its filters say.

    That is so when every operation on rows is published under the same filters, and rows can be
    named by a key.
    """
    table = plan.tables[new.target_oid]
    keyed = bool(table.identity) and (
        table.replica_identity is not ReplicaIdentity.FULL or bool(table.primary_key)
    )
    same = old.target_oid == new.target_oid and old.columns == new.columns
    if not (keyed and same and _is_plain(before, old) and _is_plain(plan, new)):
        return None
    had, has = _condition(old), _condition(new)
    return Difference(
        leaving=f"({had}) IS TRUE AND ({has}) IS NOT TRUE",
        entering=f"({has}) IS TRUE AND ({had}) IS NOT TRUE",
        filters=(*old.filters, *new.filters),
    )


def _is_plain(plan: Plan, copy: TableCopy) -> bool:
    wanted = {clause.text for clause in copy.filters}
    publishes = _publishes_of(plan, copy)
    return bool(publishes) and all(
        publish.operations >= _ROW_OPERATIONS
        and all({c.text for c in publish.filters[o]} == wanted for o in _ROW_OPERATIONS)
        for publish in publishes
    )


def _condition(copy: TableCopy) -> str:
    return " OR ".join(f"({clause.text})" for clause in copy.filters) or "true"
