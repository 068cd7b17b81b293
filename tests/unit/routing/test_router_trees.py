"""Partitioned tables: rows and truncates by leaf, and under the root."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.pgoutput.messages import (
    Insert,
    Truncate,
)
from tests.support.gateway.routing_scene import (
    CHILD,
    OTHER_CHILD,
    PARENT,
    T1,
    TWO_COLUMNS,
    Gateway,
    column,
    data,
    publish,
    relation_of,
    table,
)

PARTITIONS = (
    table(PARENT, "parent", [column("a", 1)], kind="p", leaves=(CHILD, OTHER_CHILD)),
    table(CHILD, "child", [column("a", 1)], ancestors=(PARENT,)),
    table(OTHER_CHILD, "other", [column("a", 1)], ancestors=(PARENT,)),
)


def test_a_tree_read_by_leaf_serves_its_root_and_its_leaves() -> None:
    gateway = Gateway(
        PARTITIONS,
        [
            publish("root", "(a < 5)", relation=CHILD, target=PARENT),
            publish("root", "(a < 5)", relation=OTHER_CHILD, target=PARENT),
            publish("leaf", "(a >= 5)", relation=CHILD),
        ],
    )

    seen = gateway.commit(
        relation_of(PARTITIONS[1]), Insert(CHILD, (b"3",)), Insert(CHILD, (b"7",))
    )

    assert [(s.topic, s.key) for s in data(seen)] == [
        ("root.public.parent", {"a": 3}),
        ("leaf.public.child", {"a": 7}),
    ]


@pytest.mark.parametrize(
    ("named", "topics"),
    [
        pytest.param((CHILD,), ["leaf.public.child"], id="one leaf"),
        pytest.param(
            (CHILD, OTHER_CHILD), ["root.public.parent", "leaf.public.child"], id="all leaves"
        ),
    ],
)
def test_a_root_read_by_leaf_is_truncated_when_all_leaves_are(
    named: tuple[int, ...], topics: list[str]
) -> None:
    gateway = Gateway(
        PARTITIONS,
        [
            publish("root", relation=CHILD, target=PARENT),
            publish("root", relation=OTHER_CHILD, target=PARENT),
            publish("leaf", relation=CHILD),
        ],
    )

    seen = gateway.commit(
        relation_of(PARTITIONS[1]), relation_of(PARTITIONS[2]), Truncate(False, False, named)
    )

    assert [s.topic for s in data(seen)] == topics


def test_a_leaf_with_columns_in_another_order_is_mapped_by_name() -> None:
    parent = table(PARENT, "parent", TWO_COLUMNS, kind="p", leaves=(CHILD,))
    child = table(CHILD, "child", (column("b", 1), column("a", 2)), ancestors=(PARENT,))
    gateway = Gateway([parent, child], [publish(where="(b > 5)", relation=CHILD, target=PARENT)])

    seen = data(gateway.commit(relation_of(child), Insert(CHILD, (b"6", b"1"))))

    assert seen[0].value is not None
    assert seen[0].value["after"] == {"a": 1, "b": 6}


def test_a_partition_of_later_times_is_published_as_its_root_at_once() -> None:
    root = table(T1 + 60, "tree", TWO_COLUMNS, kind="p", leaves=(T1,))
    leaf = table(T1, "low", TWO_COLUMNS, ancestors=(root.oid,))
    late = table(T1 + 61, "high", TWO_COLUMNS, ancestors=(root.oid,))
    gateway = Gateway([root, leaf], [publish(target=root.oid)])
    gateway.replanned = [
        replace(
            gateway.plan,
            tables={t.oid: t for t in (root, leaf, late)},
            publishes=(
                publish(target=root.oid),
                publish(relation=late.oid, target=root.oid),
            ),
        )
    ]

    seen = gateway.commit(relation_of(late), Insert(late.oid, (b"1", b"1")))

    assert [s.topic for s in data(seen)] == ["s.public.tree"]
