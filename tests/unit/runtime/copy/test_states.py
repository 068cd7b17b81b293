"""States of copies in commits: changed ones only, and held tables as pending."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.copy import Progress
from gateway.core.errors import SchemaRefusedError
from gateway.core.lsn import Lsn
from gateway.definitions.changes import copy_states
from gateway.definitions.model import (
    ALL_OPERATIONS,
    Operation,
    Plan,
    ServerPublication,
    SubscriptionDefinition,
    TableCopy,
)
from gateway.routing import RoutingSettings
from gateway.routing.build.topics import Addresses
from gateway.runtime.copy.states import CopyStates
from tests.support.gateway.routing_scene import T1, T1_TABLE, Schemas, publish

NAMES = ("s", "other")
COPIES = tuple(TableCopy(name, T1, (), ("a", "b")) for name in NAMES)


@pytest.fixture
def addresses() -> Addresses:
    topics = {f"{name}.public.t1": 1 for name in NAMES}
    taken = [(name, T1) for name in NAMES]
    return Addresses(plan(), taken, RoutingSettings("gw", "db", "1", topics), Schemas())


def plan() -> Plan:
    subscriptions = tuple(SubscriptionDefinition(name, ("p",)) for name in NAMES)
    publishes = tuple(publish(name) for name in NAMES)
    return Plan({T1: T1_TABLE}, subscriptions, publishes, COPIES, ())


def ready(addresses: Addresses) -> CopyStates:
    states = CopyStates(plan(), copy_states(plan(), (), reconcile=True), addresses)
    for copy in COPIES:
        progress = Progress((b"9",), complete=True)
        states.set(copy, state="ready", consistent_point=Lsn(5), progress=progress)
    return states


def test_states_are_the_same_object_until_one_changes(addresses: Addresses) -> None:
    states = ready(addresses)
    before = states.all()

    states.set(COPIES[0], state="ready")
    unchanged = states.all()
    states.set(COPIES[0], consistent_point=Lsn(6))

    assert unchanged is before
    assert [s.consistent_point for s in states.all()] == [6, 5]


def test_a_table_that_is_held_is_to_be_copied_from_its_beginning(
    addresses: Addresses, caplog: pytest.LogCaptureFixture
) -> None:
    states = ready(addresses)
    addresses.refused["s", T1] = SchemaRefusedError("refused")

    held, other = states.all()
    states.all()

    assert (held.state, held.consistent_point, held.progress) == ("pending", None, Progress())
    assert held.definition == other.definition
    assert other.state == "ready"
    assert [r.message for r in caplog.records if "held" in r.message] != []
    assert len(caplog.records) == 1


def test_a_pending_table_whose_schema_is_refused_keeps_its_position(addresses: Addresses) -> None:
    states = ready(addresses)
    states.set(COPIES[0], state="pending", consistent_point=Lsn(70))
    addresses.refused["s", T1] = SchemaRefusedError("refused")

    refused, _ = states.all()

    assert (refused.state, refused.consistent_point) == ("pending", 70)


def test_a_new_partition_of_a_tree_below_that_is_read_is_read(addresses: Addresses) -> None:
    """The plan in force does not have it: what is above it is known from the new one."""
    middle, low, high = 5, 6, 7
    inserts = frozenset({Operation.INSERT, Operation.TRUNCATE})
    own = (
        ServerPublication("gw_root_insert", (T1,), inserts, via_root=True),
        ServerPublication("gw_leaf", (middle,), ALL_OPERATIONS, via_root=False),
    )

    def with_leaves(*leaves: int) -> Plan:
        tables = {
            T1: replace(T1_TABLE, kind="p", leaves=leaves),
            middle: replace(T1_TABLE, oid=middle, kind="p", leaves=leaves, ancestors=(T1,)),
            **{leaf: replace(T1_TABLE, oid=leaf, ancestors=(middle, T1)) for leaf in leaves},
        }
        publishes = tuple(publish("s", relation=leaf, target=T1) for leaf in leaves)
        return replace(
            plan(), tables=tables, publishes=publishes, copies=COPIES[:1], server_publications=own
        )

    before = with_leaves(low)
    states = CopyStates(before, copy_states(before, (), reconcile=True), addresses)
    states.apply(with_leaves(low, high))

    (state,) = states.all()
    assert json.loads(state.taken)["unread"] == [T1]
