"""How much of a transaction is handed over at once."""

from __future__ import annotations

import pytest

from gateway.pgoutput.messages import Insert
from gateway.routing.pieces import PIECE_RECORDS
from tests.support.routing_scene import T1, T1_TABLE, Gateway, publish, relation_of


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
