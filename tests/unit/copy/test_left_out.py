"""Rows that a narrowed read has left out, and that a change makes wanted."""

from __future__ import annotations

import pytest

from gateway.copy import Chunk, ChunkedCopy, Key, Progress, Row, Snapshot, row_of
from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import UNCHANGED

UNSEEN = 7
LEFT_OUT: Key = (b"2",)


def place(copy: ChunkedCopy, *, by_key: bool) -> list[Row]:
    """Place a range of two rows, of which the second was left out, before transaction 7 is seen."""
    snapshot = Snapshot.parse(f"{UNSEEN}:{UNSEEN}:")
    chunk = Chunk(
        copy.request(), [b"1\tone\tx\n"], snapshot, Lsn(10), LEFT_OUT, False, 1, 1, by_key
    )
    return [list(row_of(row)) for row in copy.place(chunk)]


def test_it_is_taken_from_a_change_that_has_all_of_it() -> None:
    copy = ChunkedCopy([0], Progress())
    copy.update(UNSEEN, [b"2", b"two", b"y"], [b"2", b"deux", b"y"])

    assert place(copy, by_key=False) == [[b"1", b"one", b"x"], [b"2", b"deux", b"y"]]
    assert copy.request().again == ()


def test_it_is_read_again_where_the_change_has_not_all_of_it() -> None:
    copy = ChunkedCopy([0], Progress())
    copy.update(UNSEEN, None, [b"2", b"deux", UNCHANGED])

    assert place(copy, by_key=False) == [[b"1", b"one", b"x"]]
    assert copy.request().again == (LEFT_OUT,)


@pytest.mark.parametrize("large", [b"y", UNCHANGED])
def test_it_stays_unwanted_where_that_is_said_by_its_key(large: bytes) -> None:
    copy = ChunkedCopy([0], Progress())
    copy.update(UNSEEN, None, [b"2", b"deux", large])

    assert place(copy, by_key=True) == [[b"1", b"one", b"x"]]
    assert copy.request().again == ()


def test_it_is_read_again_where_it_was_changed_after_it_had_come_from_elsewhere() -> None:
    copy = ChunkedCopy([0], Progress())
    copy.update(UNSEEN, [b"9", None, None], [b"2", b"deux", UNCHANGED])
    copy.update(UNSEEN, None, [b"2", b"zwei", UNCHANGED])

    assert place(copy, by_key=True) == [[b"1", b"one", b"x"]]
    assert copy.request().again == (LEFT_OUT,)
