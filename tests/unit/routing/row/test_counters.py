"""What is counted by table while rows are routed: as subscribers see it, after filtering."""

from __future__ import annotations

from gateway.pgoutput.messages import Delete, Insert, OldTuple, OldTupleKind, Truncate, Update
from gateway.routing.row.counters import RowKey
from tests.support.gateway.routing_scene import T1, T1_TABLE, Gateway, publish, relation_of


def row(a: int, b: int) -> tuple[bytes, bytes]:
    return b"%d" % a, b"%d" % b


def rows(gateway: Gateway, subscription: str) -> dict[str, int]:
    """By operation, what is not 0."""
    found: dict[RowKey, int] = dict(gateway.router.tally().rows)
    return {key[2]: count for key, count in found.items() if key[0] == subscription and count}


def test_changes_are_counted_as_each_subscription_takes_them() -> None:
    gateway = Gateway([T1_TABLE], [publish("all"), publish("some", "(a > 5)")])

    gateway.commit(
        relation_of(T1_TABLE),
        Insert(T1, row(1, 0)),
        Insert(T1, row(9, 0)),
        Update(T1, None, row(9, 1)),
        Update(T1, OldTuple(OldTupleKind.KEY, (b"1", None)), row(7, 0)),
        Update(T1, OldTuple(OldTupleKind.KEY, (b"9", None)), row(2, 1)),
        Delete(T1, OldTuple(OldTupleKind.KEY, (b"2", None))),
    )

    # A change of the key is one update for who keeps the row.
    assert rows(gateway, "all") == {"insert": 2, "update": 3, "delete": 1}
    assert rows(gateway, "some") == {"insert": 2, "update": 1, "delete": 1}


def test_what_was_looked_at_is_counted_over_all_transactions() -> None:
    gateway = Gateway([T1_TABLE], [publish("some", "(a > 5)")])

    gateway.commit(relation_of(T1_TABLE), Insert(T1, row(1, 0)), Insert(T1, row(9, 0)))
    gateway.commit(Insert(T1, row(2, 0)))

    assert gateway.router.tally().changes == {("some", "public.t1"): 3}
    assert rows(gateway, "some") == {"insert": 1}


def test_a_truncate_is_one_for_each_that_takes_it_and_no_row() -> None:
    gateway = Gateway([T1_TABLE], [publish("s")], partitions=3)

    seen = gateway.commit(
        relation_of(T1_TABLE), Insert(T1, row(1, 0)), Truncate(False, False, (T1,))
    )

    assert [s.op for s in seen].count("t") == 3
    assert rows(gateway, "s") == {"insert": 1, "truncate": 1}
    assert gateway.router.tally().changes == {("s", "public.t1"): 1}


def test_a_transaction_of_another_origin_is_looked_at_and_not_taken() -> None:
    gateway = Gateway([T1_TABLE], [publish("s")], origin_none=frozenset({"s"}))

    gateway.commit(relation_of(T1_TABLE), Insert(T1, row(1, 0)), origin="elsewhere")

    assert rows(gateway, "s") == {}
    assert gateway.router.tally().changes == {("s", "public.t1"): 1}
