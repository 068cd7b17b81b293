"""Updates and deletes that are published before the gateway reads them let a table be copied."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyState
from gateway.definitions.changes import copy_states, fingerprint_of
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Operation,
    Plan,
    Publish,
    ServerPublication,
    TableCopy,
)
from gateway.definitions.tables.remembered import describe, description_fault
from gateway.definitions.tables.unread import with_unread
from tests.unit.definitions.test_changes import TABLE

ADDED = frozenset({Operation.INSERT, Operation.TRUNCATE})
LEAF, BARE, LATER = 2, 3, 4


def plan(leaves: dict[int, frozenset[Operation]], **members: list[int]) -> Plan:
    """A tree, its leaves with what is published of them, and the members of the publications."""
    tree = replace(TABLE, kind="p", leaves=tuple(leaves))
    tables = {oid: replace(TABLE, oid=oid, ancestors=(1,)) for oid in leaves}
    publishes = tuple(
        Publish("s", oid, 1, published, dict.fromkeys(published - {Operation.TRUNCATE}, ()), None,
                omitted=ALL_OPERATIONS - published)
        for oid, published in leaves.items()
    )  # fmt: skip
    own = tuple(
        ServerPublication(
            name, tuple(oids), ADDED if name.endswith("insert") else ALL_OPERATIONS, "root" in name
        )
        for name, oids in members.items()
    )
    return Plan({1: tree} | tables, (), publishes, (TableCopy("s", 1, (), ("a", "b")),), own)


MIXED = plan({LEAF: ALL_OPERATIONS, BARE: ADDED}, root_insert=[1], leaf=[LEAF])
WHOLE = plan({LEAF: ALL_OPERATIONS}, root=[1])
BOTH = plan({LEAF: ALL_OPERATIONS, BARE: ALL_OPERATIONS}, root=[1])
NEWER = plan({LEAF: ALL_OPERATIONS, LATER: ALL_OPERATIONS}, root=[1])


def ready(under: Plan) -> CopyState:
    (copy,) = under.copies
    taken = describe(under, copy)
    return CopyState(
        "s", "public", "t", "ready", Lsn(5), fingerprint_of(under, copy), oid=1, taken=taken
    )


@pytest.mark.parametrize(
    ("before", "leaves", "members", "state"),
    [
        (MIXED, {LEAF: ALL_OPERATIONS, BARE: ADDED, LATER: ALL_OPERATIONS},
         {"root_insert": [1], "leaf": [LEAF, LATER]}, "pending"),
        (MIXED, {LEAF: ALL_OPERATIONS, BARE: ADDED, LATER: ADDED},
         {"root_insert": [1], "leaf": [LEAF]}, "ready"),
        (MIXED, {LEAF: ALL_OPERATIONS, BARE: ALL_OPERATIONS}, {"root": [1]}, "pending"),
        (MIXED, {LEAF: ALL_OPERATIONS}, {"root": [1]}, "ready"),
        (MIXED, {LEAF: ADDED, BARE: ADDED}, {"root_insert": [1]}, "ready"),
        (WHOLE, {LEAF: ALL_OPERATIONS, LATER: ALL_OPERATIONS}, {"root": [1]}, "ready"),
        (WHOLE, {LEAF: ALL_OPERATIONS, BARE: ADDED},
         {"root_insert": [1], "leaf": [LEAF]}, "ready"),
    ],
    ids=["a partition comes", "one without an identity comes", "one gets its identity",
         "one goes", "one loses its identity", "one comes into a whole tree",
         "one comes that keeps the tree from being read as a whole"],
)  # fmt: skip
def test_a_tree_is_copied_when_its_updates_may_have_been_missed(
    before: Plan,
    leaves: dict[int, frozenset[Operation]],
    members: dict[str, list[int]],
    state: str,
) -> None:
    after = plan(leaves, **members)

    (found,) = copy_states(after, [ready(before)], reconcile=False)
    assert found.state == state
    (settled,) = copy_states(after, [replace(ready(after), state="ready")], reconcile=False)
    assert settled.state == "ready"


def test_updates_that_were_missed_are_not_forgotten_before_the_copy() -> None:
    """The publications have the partition by now; the stream has not come to that yet."""
    now = plan({LEAF: ALL_OPERATIONS, BARE: ADDED}, root=[1])
    (still,) = copy_states(now, [ready(MIXED)], reconcile=False)
    assert still.state == "ready"

    (found,) = copy_states(
        plan({LEAF: ALL_OPERATIONS, BARE: ALL_OPERATIONS}, root=[1]), [still], reconcile=False
    )
    assert found.state == "pending"


@pytest.mark.parametrize(
    ("committed", "read", "after", "unread", "state"),
    [
        (WHOLE, {1}, WHOLE, [], "ready"),
        (WHOLE, {LEAF}, WHOLE, [1], "ready"),
        (WHOLE, {LEAF}, NEWER, [1, LATER], "pending"),
        (WHOLE, {1}, NEWER, [], "ready"),
        (WHOLE, {1}, MIXED, [1, BARE], "ready"),
        (MIXED, {LEAF}, MIXED, [1, BARE], "ready"),
        (MIXED, {1}, MIXED, [1, BARE], "ready"),
        (BOTH, {LEAF}, BOTH, [1, BARE], "pending"),
    ],
    ids=["as it was", "narrower", "narrower, with a new partition", "a new partition",
         "narrower from now on", "mixed as it was", "read again", "narrower for a while"],
)  # fmt: skip
def test_what_the_server_does_not_send_is_unread_whatever_was_committed(
    committed: Plan, read: set[int], after: Plan, unread: list[int], state: str
) -> None:
    (marked,) = with_unread(after, [before := ready(committed)], read)
    (found,) = copy_states(after, [marked], reconcile=False)

    assert json.loads(marked.taken).get("unread", []) == unread
    assert (marked == before) is (marked.taken == before.taken)
    assert description_fault(marked.taken) is None
    assert found.state == state


def test_tables_that_are_to_be_copied_or_gone_are_left_as_they_are() -> None:
    states = [replace(ready(WHOLE), state="pending"), replace(ready(WHOLE), oid=9)]

    assert with_unread(MIXED, states, set()) == tuple(states)


def test_a_description_with_unread_relations_that_are_no_oids_is_not_read() -> None:
    taken = ready(MIXED).taken
    assert json.loads(taken)["unread"] == [1, BARE]
    assert description_fault(taken) is None
    assert description_fault(json.dumps({**json.loads(taken), "unread": ["1"]})) is not None
