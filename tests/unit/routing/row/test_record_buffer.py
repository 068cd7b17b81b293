"""How much of a transaction is handed over at once."""

from __future__ import annotations

import pytest

from gateway.pgoutput.messages import Insert, Message, Truncate
from gateway.routing.row.record_buffer import PIECE_BYTES, PIECE_RECORDS
from tests.support.gateway.routing_scene import (
    T1,
    T1_TABLE,
    Gateway,
    column,
    publish,
    relation_of,
    table,
)


@pytest.mark.parametrize(
    ("rows", "pieces"),
    [
        pytest.param(1, [2], id="a row and its marker are one piece"),
        pytest.param(PIECE_RECORDS, [PIECE_RECORDS, 1], id="a full piece waits for nothing"),
        pytest.param(PIECE_RECORDS + 5, [PIECE_RECORDS, 6], id="the marker goes with what is left"),
        pytest.param(0, [], id="nothing"),
    ],
)
def test_a_piece_is_bounded_and_the_last_one_has_the_marker(rows: int, pieces: list[int]) -> None:
    gateway = Gateway([T1_TABLE], [publish()])
    gateway.commit(relation_of(T1_TABLE))
    transaction = gateway.transaction(*(Insert(T1, (b"%d" % n, b"2")) for n in range(rows)))

    routed = [len(piece) for piece in gateway.router.route(transaction)]

    assert routed == pieces


@pytest.mark.parametrize("subscriptions", [1, 30, 1500])
def test_a_piece_ends_with_the_row_that_fills_it_whoever_takes_it(subscriptions: int) -> None:
    # Rows of which somebody takes none are in between, and chunks are not where pieces end.
    names = [f"s{n}" for n in range(subscriptions)]
    gateway = Gateway([T1_TABLE], [publish(name, "(a % 2 = 0)") for name in names])
    gateway.commit(relation_of(T1_TABLE))
    rows = 6_000 // subscriptions + 2
    transaction = gateway.transaction(*(Insert(T1, (b"%d" % n, b"2")) for n in range(2 * rows)))

    *routed, last = (len(piece) for piece in gateway.router.route(transaction))

    full = -(-PIECE_RECORDS // subscriptions) * subscriptions
    assert set(routed) == {full}
    assert sum(routed) + last == rows * subscriptions + subscriptions  # and their markers


def test_a_piece_ends_where_its_values_are_large() -> None:
    text = table(T1 + 1, "t2", (column("a", 1), column("b", 2, 25, "text")))
    gateway = Gateway([text], [publish("a", relation=T1 + 1), publish("b", relation=T1 + 1)])
    gateway.commit(relation_of(text))
    large = b"x" * (PIECE_BYTES // 5)
    # A TRUNCATE is left to the interpreted path; what was routed before it counts.
    changes: list[Message] = [Insert(T1 + 1, (b"%d" % n, large)) for n in range(9)]
    transaction = gateway.transaction(*changes[:1], Truncate(False, False, (T1 + 1,)), *changes[1:])

    routed = [len(piece) for piece in gateway.router.route(transaction)]

    assert routed == [2 + 2 + 4, 6, 6, 2]
