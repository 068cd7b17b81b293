"""What a subscription gets of a relation, from how each partition under it is published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.definitions.model import ALL_OPERATIONS, IDENTIFYING, Operation, Publish
from gateway.routing.build.relation_check import published_as
from tests.support.gateway.routing_scene import publish

ROOT, ONE, TWO = 1, 2, 3
ADDED = ALL_OPERATIONS.difference(IDENTIFYING)


def of(leaf: int, operations: frozenset[Operation], *, lacking: bool = False) -> Publish:
    """How a partition is published; `lacking`: it has no replica identity."""
    one = publish(relation=leaf, target=ROOT, operations=operations)
    return replace(one, omitted=ALL_OPERATIONS - operations) if lacking else one


@pytest.mark.parametrize(
    ("publishes", "expected"),
    [
        ([of(ONE, ALL_OPERATIONS), of(TWO, ALL_OPERATIONS)], ALL_OPERATIONS),
        ([of(ONE, ALL_OPERATIONS), of(TWO, ADDED, lacking=True)], ALL_OPERATIONS),
        ([of(ONE, ADDED, lacking=True), of(TWO, ADDED, lacking=True)], ALL_OPERATIONS),
        ([of(ONE, ADDED), of(TWO, ADDED)], ADDED),
        ([of(ONE, ADDED), of(TWO, ADDED, lacking=True)], ADDED),
        ([of(ONE, ADDED, lacking=True), of(TWO, ADDED)], ADDED),
    ],
    ids=["all", "one without an identity", "none has one", "a filter reads other columns",
         "a filter, and one without an identity", "the same the other way round"],
)  # fmt: skip
def test_updates_under_a_root_are_those_that_its_partitions_could_have(
    publishes: list[Publish], expected: frozenset[Operation]
) -> None:
    others = [replace(publish(relation=ONE, target=ROOT), subscription="other")]

    ours, other = published_as(ROOT, [*publishes, *others])

    assert (ours.operations, other.operations) == (expected, ALL_OPERATIONS)


def test_a_partition_that_is_sent_as_itself_has_its_own_operations() -> None:
    (found,) = published_as(ONE, [of(ONE, ADDED, lacking=True)])

    assert found.operations == ADDED
