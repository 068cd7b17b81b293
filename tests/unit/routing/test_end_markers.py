"""END markers: what a transaction has published, topic by topic, for each subscription."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gateway.pgoutput.messages import Insert, Message, Truncate
from tests.support.gateway.routing_scene import (
    CHILD,
    OTHER_CHILD,
    PARENT,
    TWO_COLUMNS,
    Gateway,
    Seen,
    key_tuple,
    publish,
    relation_of,
    table,
    update,
)

TABLES = [table(100 + n, f"t{n}", TWO_COLUMNS) for n in range(4)]
PARTITIONED = [
    table(PARENT, "parent", TWO_COLUMNS, kind="p", leaves=(CHILD, OTHER_CHILD)),
    table(CHILD, "child", TWO_COLUMNS, ancestors=(PARENT,)),
    table(OTHER_CHILD, "other", TWO_COLUMNS, ancestors=(PARENT,)),
]
LONG = 20
"""So many changes and more are no short transaction."""


def counts(seen: Sequence[Seen]) -> dict[str, list[tuple[str, int]]]:
    """By subscription, the topics and numbers of its END marker; in the order of the markers."""
    return {
        s.topic.removesuffix(".transaction"): [
            (topic["topic"], topic["records"]) for topic in s.value["topics"]
        ]
        for s in seen
        if s.value is not None and s.op == "END"
    }


def rows(oid: int, number: int, first: int = 1) -> list[Message]:
    return [Insert(oid, (b"%d" % n, b"2")) for n in range(first, first + number)]


@pytest.mark.parametrize("times", [1, LONG], ids=["short", "long"])
def test_a_marker_names_each_topic_of_its_subscription_once(times: int) -> None:
    # Topics are numbered as rows of their relations are first seen: those of t3 come before t0's.
    publishes = [publish(name, relation=t.oid) for t in TABLES for name in ("a", "b")]
    gateway = Gateway(TABLES, publishes)
    gateway.commit(*(relation_of(TABLES[n]) for n in (3, 1, 0, 2)), *rows(103, 1))

    seen = gateway.commit(*rows(100, times), *rows(103, 2 * times), *rows(100, 1, 500))

    expected = {"t3": 2 * times, "t0": times + 1}
    assert counts(seen) == {
        name: [(f"{name}.public.{t}", expected[t]) for t in expected] for name in ("a", "b")
    }
    assert set(gateway.router.ended) == {"a", "b"}
    assert len(set(gateway.router.ended.values())) == 1


@pytest.mark.parametrize("times", [1, LONG], ids=["short", "long"])
def test_leaves_that_are_published_as_their_root_are_counted_together(times: int) -> None:
    publishes = [
        *(publish("root", relation=leaf, target=PARENT) for leaf in (CHILD, OTHER_CHILD)),
        *(publish("leaf", relation=leaf) for leaf in (CHILD, OTHER_CHILD)),
    ]
    gateway = Gateway(PARTITIONED, publishes)
    gateway.commit(*(relation_of(leaf) for leaf in PARTITIONED[1:]), *rows(CHILD, 1))

    seen = gateway.commit(*rows(CHILD, times), *rows(OTHER_CHILD, times), *rows(CHILD, 1, 500))

    assert counts(seen) == {
        "root": [("root.public.parent", 2 * times + 1)],
        "leaf": [("leaf.public.child", times + 1), ("leaf.public.other", times)],
    }


def test_what_was_routed_here_and_in_c_is_counted_together() -> None:
    # A key change makes two records; the tombstone between them is not counted.
    gateway = Gateway(TABLES, [publish("a", relation=100), publish("b", relation=100)])
    gateway.commit(relation_of(TABLES[0]), *rows(100, 1))

    seen = gateway.commit(
        *rows(100, LONG),
        update(key_tuple(b"1", None), b"9000", b"2", oid=100),
        Truncate(False, False, (100,)),
        *rows(100, LONG, 100),
    )

    expected = 2 * LONG + 3
    assert counts(seen) == {n: [(f"{n}.public.t0", expected)] for n in ("a", "b")}
    tally = gateway.router.tally()
    assert tally.rows["a", "public.t0", "insert"] == 2 * LONG + 1
    assert tally.rows["a", "public.t0", "update"] == 1
    assert tally.rows["a", "public.t0", "truncate"] == 1


def test_a_transaction_leaves_nothing_for_the_next_ones_marker() -> None:
    gateway = Gateway(TABLES, [publish("a", relation=t.oid) for t in TABLES])
    gateway.commit(*map(relation_of, TABLES), *rows(100, LONG), *rows(101, LONG))

    seen = gateway.commit(*rows(101, LONG))

    assert counts(seen) == {"a": [("a.public.t1", LONG)]}


def test_of_hundreds_of_subscriptions_each_has_its_own_marker() -> None:
    names = [f"s{n:03}" for n in range(300)]
    gateway = Gateway(
        TABLES, [publish(name, f"(a = {n})", relation=100) for n, name in enumerate(names)]
    )
    gateway.commit(relation_of(TABLES[0]))

    seen = gateway.commit(*rows(100, 200), *rows(100, 50, 100))

    assert counts(seen) == {
        name: [(f"{name}.public.t0", 1 + (100 <= n < 150))]
        for n, name in enumerate(names)
        if 1 <= n <= 200
    }
