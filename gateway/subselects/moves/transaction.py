"""One transaction of the stream, judged change by change for each subscription of an outer table.

The sets have been changed by all of the transaction before its first change is judged: old rows
count as of its beginning, new ones as of its end. A row that the transaction changes twice was sent
by the second rule before, so that what the subscriber has of it is remembered until the end, if the
transaction has changed a set at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gateway.copy import Row
from gateway.core.copy_progress import Key
from gateway.pgoutput.messages import UNCHANGED
from gateway.subselects.formula import RowView, SetTest, Subselect, Truth, holds
from gateway.subselects.moves.decision import Decision, Sending, decide
from gateway.subselects.moves.state import Slice
from gateway.subselects.moves.table_moves import TableMoves
from gateway.subselects.sets.changes import Before, SetChange

__all__ = ["MoveTransaction", "RowChange"]

_LEFT_OVER = {
    Sending.NOTHING: Truth.NO,
    Sending.DELETE: Truth.NO,
    Sending.REMOVE: Truth.NO,
    Sending.INSERT: Truth.YES,
    Sending.UPDATE: Truth.YES,
    Sending.REPLACE: Truth.YES,
}
"""Whether the subscriber has the new row afterwards, if it is not read by its key."""


class MoveTransaction:
    """A transaction of the source, until its `end`.

    Args:
        moves: Moves of the outer table.
        xid: The transaction.
        changes: Its changes of the sets.
    """

    def __init__(self, moves: TableMoves, xid: int, changes: Mapping[Subselect, SetChange]) -> None:
        self._moves = moves
        self._xid = xid
        self._changes = changes
        self._touched: dict[Key, dict[str, Truth]] = {}
        self._is_truncated = False

    @property
    def is_calm(self) -> bool:
        """Whether rows of which nothing is unsettled are judged by the sets as they are."""
        return not (self._changes or self._is_truncated)

    def insert(self, new: Row) -> RowChange:
        """Begin with an INSERT; each subscription that may want the row is asked for next."""
        self._moves.note(self._xid, self._moves.inserted(new))
        return self._change(None, new)

    def update(self, old: Row | None, new: Row) -> RowChange:
        """Begin with an UPDATE; without an old row, no column that decides has changed.

        Unchanged values of the new row are filled from the old one, where that has them.
        """
        self._moves.note(self._xid, self._moves.updated(old, new))
        return self._change(new if old is None else old, new)

    def delete(self, old: Row) -> RowChange:
        """Begin with a DELETE."""
        self._moves.note(self._xid, self._moves.deleted(old))
        return self._change(old, None)

    def truncate(self) -> None:
        """Note a TRUNCATE, which every subscription is sent."""
        self._moves.note_truncate(self._xid)
        self._moves.truncate()
        self._touched.clear()
        self._is_truncated = True

    def end(self) -> None:
        """End the transaction: slices become unsettled."""
        self._moves.unsettle(self._changes)

    def _change(self, old: Row | None, new: Row | None) -> RowChange:
        key_of = self._moves.key_of
        before = None if old is None else key_of(old)
        after = None if new is None else key_of(new)
        remembered = None if before is None else self._touched.get(before)
        left: dict[str, Truth] = {}
        # Otherwise the sets are the same before and after, and say of a row that is changed twice
        # what was decided about it: a transaction may have millions of rows.
        if self._changes or self._is_truncated:
            if before is not None:
                self._touched[before] = {}  # who is not asked has it no more than before
            if after is not None:
                self._touched[after] = left
        return RowChange(self, old, new, before, after, remembered, left)

    def has(self, subscription: str, view: RowView) -> Truth:
        """Return whether a subscriber had a row when the transaction began."""
        moves = self._moves
        if self._is_truncated:
            return Truth.NO
        if subscription in moves.whole:
            return Truth.MAYBE

        def test(each: SetTest) -> Truth:
            value = view.value(each.columns)
            change = self._changes.get(each.subselect)
            if moves.is_unsettled(Slice(each.columns, value), subscription):
                return Truth.MAYBE
            members = moves.members(each.subselect)
            if change is not None:
                if change.is_whole:
                    return Truth.MAYBE
                members = Before(members, change)
            return Truth.YES if holds(each.kind, value, members) else Truth.NO

        return moves.truth(subscription, view, test)

    def judge(self, change: RowChange, subscription: str) -> Decision:
        """Return what a subscription is sent of a change."""
        moves = self._moves
        wanted = change.new_view is not None and moves.wants(subscription, change.new_view)
        whole = change.new is not None and UNCHANGED not in change.new
        found = decide(self._has(change, subscription), wanted=wanted, whole=whole)
        if change.old_key is not None:
            moves.settle_key(change.old_key, subscription)
        if change.new_key is not None:
            if found.read_key:
                moves.list_key(change.new_key, subscription, self._xid)
            else:
                moves.settle_key(change.new_key, subscription)
            left = Truth.MAYBE if found.read_key else _LEFT_OVER[found.sending]
            change.left[subscription] = left
        return found

    def _has(self, change: RowChange, subscription: str) -> Truth:
        key = change.old_key if change.old_key is not None else change.new_key
        assert key is not None
        if subscription in self._moves.listed(key):
            return Truth.MAYBE
        if change.old_view is None:
            return Truth.NO
        if change.remembered is not None:
            return change.remembered.get(subscription, Truth.NO)
        return self.has(subscription, change.old_view)

    def view(self, row: Row | None) -> RowView | None:
        """Return what filters see of a row."""
        return None if row is None else self._moves.view(row)

    def listed(self, *keys: Key | None) -> Collection[str]:
        """Return the subscriptions for which one of some keys is unsettled."""
        return {name for key in keys if key is not None for name in self._moves.listed(key)}


class RowChange:
    """A change of one row; every subscription that may have the old row or want the new is judged.

    Attributes:
        must_judge: Subscriptions that are judged whatever their filters say of the rows.
    """

    __slots__ = (
        "_transaction",
        "left",
        "must_judge",
        "new",
        "new_key",
        "new_view",
        "old_key",
        "old_view",
        "remembered",
    )

    def __init__(
        self,
        transaction: MoveTransaction,
        old: Row | None,
        new: Row | None,
        old_key: Key | None,
        new_key: Key | None,
        remembered: Mapping[str, Truth] | None,
        left: dict[str, Truth],
    ) -> None:
        self._transaction = transaction
        self.new = new
        self.old_key = old_key
        self.new_key = new_key
        self.old_view = transaction.view(old)
        self.new_view = self.old_view if new is old else transaction.view(new)
        self.remembered = remembered
        self.left = left
        self.must_judge = frozenset({*transaction.listed(old_key, new_key), *(remembered or ())})

    @property
    def views(self) -> list[RowView]:
        """The old and the new row, or the one that is both."""
        both = (self.old_view, self.new_view)
        if self.old_view is self.new_view:
            both = (self.old_view, None)
        return [view for view in both if view is not None]

    def judge(self, subscription: str) -> Decision:
        """Return what a subscription is sent."""
        return self._transaction.judge(self, subscription)
