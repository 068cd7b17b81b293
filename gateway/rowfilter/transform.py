"""Transformation of an UPDATE by a row filter between table and subscriber.

    old row     new row     becomes
    no match    no match    nothing
    no match    match       INSERT      the row enters the filtered set
    match       no match    DELETE      the row leaves it
    match       match       UPDATE

Source: manual, "Row Filters", table "UPDATE Transformation Summary"; pgoutput_row_filter().
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeAlias

from gateway.pgoutput.messages import UNCHANGED, ColumnValue

__all__ = ["Action", "Predicate", "decide_update", "fill_unchanged", "update_action"]

Predicate: TypeAlias = Callable[[Sequence[ColumnValue]], bool]


class Action(Enum):
    """Operation sent to a subscriber."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


def update_action(*, old_passes: bool, new_passes: bool) -> Action | None:
    """Return the operation for an UPDATE, given which row versions pass the filter."""
    match old_passes, new_passes:
        case True, True:
            return Action.UPDATE
        case False, True:
            return Action.INSERT
        case True, False:
            return Action.DELETE
        case _:
            return None


def fill_unchanged(old: Sequence[ColumnValue], new: Sequence[ColumnValue]) -> Sequence[ColumnValue]:
    """Return `new` with its unchanged TOAST columns filled from `old`, if that has them.

    A NULL in `old` means NULL or not logged: such a column stays `UNCHANGED`. When a filter
    makes an INSERT of an UPDATE, this is the row to send.
    """
    if UNCHANGED not in new:
        return new
    return tuple(
        before if after is UNCHANGED and before is not None else after
        for before, after in zip(old, new, strict=True)
    )


def decide_update(
    passes: Predicate, old: Sequence[ColumnValue] | None, new: Sequence[ColumnValue]
) -> Action | None:
    """Evaluate a filter for an UPDATE as pgoutput does; None: nothing is sent.

    Without an old tuple (no replica identity column changed) the new row alone decides between
    UPDATE and nothing. With one, unchanged TOAST columns of the new row have been taken from it
    (`fill_unchanged`).

    Raises:
        FilterEvaluationError: PostgreSQL would fail on this row.
    """
    if old is None:
        return Action.UPDATE if passes(new) else None
    old_passes = passes(old)
    return update_action(old_passes=old_passes, new_passes=passes(new))
