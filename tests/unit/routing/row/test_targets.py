"""Subscriptions that select by equality are found by look-up."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.definitions.model import (
    Collation,
    Column,
)
from gateway.pgoutput.messages import (
    Delete,
    Insert,
)
from tests.support.gateway.routing_scene import (
    T1,
    Gateway,
    Seen,
    column,
    data,
    key_tuple,
    publish,
    relation_of,
    table,
    update,
)

TEXT = Collation('pg_catalog."C"', True, True)

REGIONAL = table(
    T1,
    "t1",
    (
        column("a", 1),
        Column("region", 2, 25, -1, "text", 25, -1, "b", False, "", TEXT),
    ),
    identity=("a", "region"),
    primary_key=("a", "region"),
)

BY_REGION = [
    publish("eu", "(region = 'EU'::text)"),
    publish("us", "(region = ANY (ARRAY['US'::text, 'CA'::text]))"),
    publish("big", "((a > 5) AND (region = 'EU'::text))"),
    publish("all"),
]


def where(seen: Sequence[Seen]) -> set[tuple[str, str | None]]:
    return {(s.topic.partition(".")[0], s.op) for s in data(seen) if s.value is not None}


def test_targets_are_found_by_look_up() -> None:
    gateway = Gateway([REGIONAL], BY_REGION)

    eu = gateway.commit(relation_of(REGIONAL), Insert(T1, (b"1", b"EU")))
    canada = gateway.commit(Insert(T1, (b"2", b"CA")))
    nobody = gateway.commit(Insert(T1, (b"3", b"JP")))

    assert where(eu) == {("eu", "c"), ("all", "c")}
    assert where(canada) == {("us", "c"), ("all", "c")}
    assert where(nobody) == {("all", "c")}


def test_an_update_from_one_look_up_to_another_concerns_both() -> None:
    gateway = Gateway([REGIONAL], BY_REGION)
    moved = update(key_tuple(b"9", b"EU"), b"9", b"US")

    seen = gateway.commit(relation_of(REGIONAL), moved)

    assert where(seen) == {("eu", "d"), ("big", "d"), ("us", "c"), ("all", "d"), ("all", "c")}


def test_a_delete_concerns_the_targets_of_the_old_row() -> None:
    gateway = Gateway([REGIONAL], BY_REGION)

    seen = gateway.commit(relation_of(REGIONAL), Delete(T1, key_tuple(b"9", b"EU")))

    assert where(seen) == {("eu", "d"), ("big", "d"), ("all", "d")}
