"""How far a loop is and where it ends, as a table of what it is told."""

from __future__ import annotations

import pytest

from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.runtime.loop.stream_position import StreamPosition

START = Lsn(1000)


@pytest.mark.parametrize(
    ("next_lsn", "reached"),
    [
        pytest.param(None, 3005, id="no commit record lies across it"),
        pytest.param(Lsn(3000), 3000, id="inside a commit record"),
        pytest.param(Lsn(3005), 3005, id="where a commit record begins"),
        pytest.param(Lsn(4000), 3005, id="before the next commit record"),
        pytest.param(ZERO_LSN, 1000, id="not known where the record begins"),
    ],
)
def test_an_end_is_never_confirmed_inside_a_commit_record(
    next_lsn: Lsn | None, reached: int
) -> None:
    position = StreamPosition(START, Lsn(3005))

    position.end(next_lsn)

    assert position.passed
    assert (position.reached, position.published) == (reached, 3005)


def test_only_the_first_record_after_the_end_counts() -> None:
    position = StreamPosition(START, Lsn(3005))

    for next_lsn in (Lsn(3000), Lsn(4000), ZERO_LSN, None):
        position.end(next_lsn)

    assert (position.reached, position.published) == (3000, 3005)


def test_an_end_behind_what_was_reached_takes_nothing_back() -> None:
    position = StreamPosition(START, Lsn(900))

    position.end()

    assert (position.reached, position.published) == (1000, 1000)


@pytest.mark.parametrize(
    ("endpos", "point", "copying", "limit", "switched"),
    [
        (None, None, False, None, False),
        (3000, None, False, 3000, False),
        (3000, None, True, None, False),
        (None, 2500, False, 2500, True),
        (None, 2500, True, 2500, True),
        (3000, 2500, True, 2500, True),
        (2400, 2500, False, 2400, False),
        (2500, 2500, False, 2500, False),
    ],
)
def test_the_loop_ends_at_what_comes_first_but_not_at_an_endpos_before_all_is_copied(
    endpos: int | None, point: int | None, copying: bool, limit: int | None, switched: bool
) -> None:
    position = StreamPosition(START, None if endpos is None else Lsn(endpos))

    for _ in range(2 if point else 0):
        position.switch_at(Lsn(point or 0))

    assert position.limit(copying=copying) == limit
    assert position.switched is switched


def test_a_position_only_moves_forward() -> None:
    position = StreamPosition(START)

    reached = []
    for lsn in (900, 1100, 1050, 1100, 2000):
        position.advance(Lsn(lsn))
        reached.append(position.reached)

    assert reached == [1000, 1100, 1100, 1100, 2000]
