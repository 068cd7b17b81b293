"""Replay: rows read at different positions brought to one, by a subscriber's own rules. Pure.

A row was read under some snapshot, which saw some changes of its key and not others. The others are
applied, in order. A row keeps its values when its key changes. They may be unknown: the old key was
read after the change, the new one before, and the change did not carry all of them. The key is
*open* then, and has to be read again.

Rows under several snapshots are those of the source, which has a row for each change of one. Rows
of a subscriber are read under one snapshot; it skips a change of a row that it does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from spark_consumer.verify.text import Row

__all__ = ["Change", "replay", "replay_rows"]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a subscriber table.

    Attributes:
        op: Kind: ``put`` (a whole row), ``set`` (columns of an existing row), ``delete``, or
            ``move`` (another key, and columns, for an existing row).
        xid: ID of the source's transaction.
        commit_lsn: LSN of that transaction's commit.
        key: Key of the row after the change; for ``delete`` the former one. () without a key.
        old: For ``move``, the former key. For a table without a key, the whole former row.
        row: Row after the change; None for ``delete``.
        unsent: Positions in `row` of the columns that keep their values.
    """

    op: str
    xid: int
    commit_lsn: int
    key: Row
    old: Row | None
    row: Row | None
    unsent: frozenset[int] = frozenset()


def replay(
    changes: Iterable[Change], rows: dict[Row, Row], sees: Callable[[Row, Change], bool]
) -> set[Row]:
    """Apply changes to rows by key, in place.

    Args:
        changes: Changes in order.
        rows: Rows that were read, by key; a key without a row did not exist.
        sees: Whether the row that was read under a key has the change already.

    Returns:
        The open keys, whose rows are unknown.
    """
    opened: set[Row] = set()
    for change in changes:
        key, row = change.key, change.row
        if change.op == "move":
            _move(change, rows, sees, opened)
        elif not sees(key, change):
            if change.op == "delete":
                rows.pop(key, None)
                opened.discard(key)
            elif change.op == "put":
                assert row is not None
                rows[key] = row
                opened.discard(key)
            elif key in rows:
                rows[key] = _filled(rows[key], change)
            elif key in opened and not change.unsent:
                assert row is not None
                rows[key] = row
                opened.discard(key)
    return opened


def _move(
    change: Change,
    rows: dict[Row, Row],
    sees: Callable[[Row, Change], bool],
    opened: set[Row],
) -> None:
    assert change.old is not None
    unknown = sees(change.old, change)
    before = None
    if not unknown:
        unknown = change.old in opened
        opened.discard(change.old)
        before = rows.pop(change.old, None)
    if sees(change.key, change):
        return
    if unknown and change.unsent:
        rows.pop(change.key, None)
        opened.add(change.key)
    elif unknown:
        # There was a row to change, and the change carries all of it.
        assert change.row is not None
        rows[change.key] = change.row
        opened.discard(change.key)
    elif before is not None:
        rows[change.key] = _filled(before, change)
        opened.discard(change.key)


def replay_rows(changes: Iterable[Change], rows: Counter[Row]) -> None:
    """Apply changes to the rows of a table without a key, in place.

    Args:
        changes: Changes in order; none that the rows have already.
        rows: Number of occurrences by row; at least for rows that `changes` name.
    """
    for change in changes:
        if change.old is not None:
            if rows[change.old] <= 0:
                continue
            rows[change.old] -= 1
        if change.row is not None:
            rows[change.row] += 1


def _filled(before: Row, change: Change) -> Row:
    assert change.row is not None
    if not change.unsent:
        return change.row
    return tuple(
        old if place in change.unsent else new
        for place, (old, new) in enumerate(zip(before, change.row, strict=True))
    )
