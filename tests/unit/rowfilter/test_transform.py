from __future__ import annotations

import pytest

from gateway.pgoutput.messages import UNCHANGED
from gateway.rowfilter import (
    Action,
    combine,
    compile_filter,
    decide_update,
    fill_unchanged,
    update_action,
)
from tests.unit.rowfilter.columns import COLUMNS

NAMES = ("a", "b", "c")
P1 = compile_filter("((a > 5) AND (c = 'NSW'::text))", COLUMNS).bind(NAMES)


@pytest.mark.parametrize(
    ("old_passes", "new_passes", "action"),
    [
        (False, False, None),
        (False, True, Action.INSERT),
        (True, False, Action.DELETE),
        (True, True, Action.UPDATE),
    ],
)
def test_the_manuals_table(old_passes: bool, new_passes: bool, action: Action | None) -> None:
    assert update_action(old_passes=old_passes, new_passes=new_passes) is action


@pytest.mark.parametrize(
    ("old", "new", "action"),
    [
        ((b"6", None, b"NSW"), (b"6", b"999", b"NSW"), Action.UPDATE),
        ((b"2", None, b"NSW"), (b"555", b"102", b"NSW"), Action.INSERT),
        ((b"9", None, b"NSW"), (b"9", b"109", b"VIC"), Action.DELETE),
        ((b"2", None, b"NSW"), (b"3", b"102", b"NSW"), None),
    ],
    ids=["stays", "enters", "leaves", "stays outside"],
)
def test_the_manuals_updates(
    old: tuple[bytes | None, ...], new: tuple[bytes, ...], action: Action | None
) -> None:
    assert decide_update(P1, old, new) is action


def test_without_an_old_tuple_the_new_row_alone_decides() -> None:
    assert decide_update(P1, None, (b"6", b"1", b"NSW")) is Action.UPDATE
    assert decide_update(P1, None, (b"5", b"1", b"NSW")) is None


def test_an_unchanged_value_is_taken_from_the_old_tuple_before_filtering() -> None:
    old = (b"2", None, b"NSW")

    assert fill_unchanged(old, (b"6", b"1", UNCHANGED)) == (b"6", b"1", b"NSW")
    assert decide_update(P1, old, (b"6", b"1", b"NSW")) is Action.INSERT


def test_an_unchanged_value_that_the_old_tuple_lacks_stays_unchanged() -> None:
    new = (b"6", UNCHANGED, b"NSW")

    assert fill_unchanged((b"2", None, b"NSW"), new) == new
    assert decide_update(P1, (b"2", None, b"NSW"), new) is Action.INSERT


def test_a_row_without_unchanged_values_is_returned_as_it_is() -> None:
    new = (b"6", b"1", b"NSW")

    assert fill_unchanged((b"2", None, None), new) is new


def test_without_a_filter_an_update_stays_an_update() -> None:
    assert decide_update(combine([], NAMES), (b"1", None, None), (b"2", None, None)) is (
        Action.UPDATE
    )
