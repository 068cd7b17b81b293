"""Changes of a table that a read of it may not see, and how its rows are brought to the present.

A read under a snapshot S is placed at a position P of the stream. Transactions before P that S does
not see are made up for: their changes are applied to the rows that were read, in commit order. If
two changes concern one row, the second is made by a transaction that sees the first, so this order
is right. Each names its row by the key it had; no comparison of keys is ever made here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from gateway.copy.lines import CopiedRow, Row, key_of_line, row_of
from gateway.copy.snapshot import Snapshot
from gateway.core.copy_progress import Key
from gateway.pgoutput.messages import UNCHANGED

__all__ = ["Change", "Entry", "IncompleteRow", "Later", "Op", "UnseenChanges"]


class Op(Enum):
    """Effect of a change on a row; TRUNCATE concerns all of them.

    SET keeps the key, MOVE may change it. A MOVE without an old row is of a row that nobody knows.
    """

    PUT = "put"
    SET = "set"
    MOVE = "move"
    DELETE = "delete"
    TRUNCATE = "truncate"


class Change(NamedTuple):
    """A change, with the rows before and after it; empty for none, or one that is not known."""

    op: Op
    old: Row
    new: Row


Entry: TypeAlias = tuple[int, list[Change]]
"""A transaction and its changes, in order."""

Later: TypeAlias = Callable[[], list[Change]]
"""Makes changes that few reads ever ask for."""


class IncompleteRow(NamedTuple):
    """A row that is not known in full, and the transaction that left it so."""

    xid: int
    row: Row


class UnseenChanges:
    """The latest changes of one table, in order. Not thread-safe.

    Args:
        key: Positions of the key's columns in a row.
    """

    def __init__(self, key: Sequence[int]) -> None:
        self._key = tuple(key)
        self._key_width = max(self._key, default=0) + 1
        self._entries: list[tuple[int, list[Change | Later]]] = []

    def __bool__(self) -> bool:
        return bool(self._entries)

    def note(self, xid: int, change: Change | Later) -> None:
        """Note a change of the source's transaction `xid`, or how to make some."""
        if self._entries and self._entries[-1][0] == xid:
            self._entries[-1][1].append(change)
        else:
            self._entries.append((xid, [change]))

    def clear(self) -> None:
        """Forget all of them."""
        self._entries.clear()

    def forget(self, snapshots: Collection[Snapshot]) -> None:
        """Drop the changes that all of some snapshots see."""
        self._entries = [
            entry
            for entry in self._entries
            if not all(snapshot.sees(entry[0]) for snapshot in snapshots)
        ]

    def unseen_by(self, snapshot: Snapshot) -> list[Entry]:
        """Return the transactions that `snapshot` does not see, or may not."""
        found: list[Entry] = []
        for number, (xid, noted) in enumerate(self._entries):
            if not snapshot.sees(xid):
                made = [c for each in noted for c in (each() if callable(each) else (each,))]
                self._entries[number] = xid, [*made]
                found.append((xid, made))
        return found

    def key_of(self, row: Row) -> Key:
        """Return the key of a row."""
        return tuple([row[index] for index in self._key])  # type: ignore[misc]

    def key_of_copied(self, copied: CopiedRow) -> Key:
        """Return the key of a row, or of a line."""
        if isinstance(copied, bytes):
            return key_of_line(copied, self._key, self._key_width)  # type: ignore[return-value]
        return self.key_of(copied)

    def separate(
        self, rows: Iterable[CopiedRow], unseen: Sequence[Entry], concerned: set[Key]
    ) -> tuple[list[CopiedRow], dict[Key, Row]]:
        """Separate the rows that no change concerns from the others, which are parsed.

        Args:
            rows: Rows that were read.
            unseen: The changes that their snapshot does not see.
            concerned: Further keys whose rows are parsed; it is added to.
        """
        truncated = False
        for _, changes in unseen:
            for op, old, new in changes:
                truncated |= op is Op.TRUNCATE
                concerned.update(self.key_of(row) for row in (old, new) if row)
        others: list[CopiedRow] = []
        known: dict[Key, Row] = {}
        for copied in rows:
            key = self.key_of_copied(copied)
            if key in concerned:
                known[key] = row_of(copied)
            elif not truncated:
                others.append(copied)
        return others, known

    def make_up_for(
        self, rows: dict[Key, Row], unseen: Sequence[Entry], *, all_known: bool
    ) -> dict[Key, IncompleteRow]:
        """Bring `rows` to the present; return the rows that are not known in full.

        Args:
            rows: Rows that were read, by their keys.
            unseen: The changes that their snapshot does not see.
            all_known: Whether no change that keeps the key can make a row wanted that was not read.
        """
        moved: dict[Key, IncompleteRow] = {}
        for xid, changes in unseen:
            for op, old, new in changes:
                match op:
                    case Op.PUT:
                        # Whether it is in the read's range does not matter: it is this row now.
                        rows[self.key_of(new)] = new
                        moved.pop(self.key_of(new), None)
                    case Op.SET | Op.MOVE:
                        before, after = self.key_of(old or new), self.key_of(new)
                        row = rows.pop(before, None)
                        if op is Op.MOVE and not old:
                            row = None  # an INSERT that lacks values
                        if row is None and op is Op.SET and all_known:
                            continue  # also one that has come from elsewhere, and is to be read
                        moved.pop(before, None)
                        row = _filled(row or new, new)
                        if UNCHANGED in row:
                            moved[after] = IncompleteRow(xid, row)
                        else:
                            rows[after] = row
                    case Op.DELETE:
                        rows.pop(self.key_of(old), None)
                        moved.pop(self.key_of(old), None)
                    case Op.TRUNCATE:
                        rows.clear()
                        moved.clear()
        return moved


def _filled(row: Row, new: Row) -> Row:
    if UNCHANGED not in new:
        return new
    return [before if after is UNCHANGED else after for before, after in zip(row, new, strict=True)]
