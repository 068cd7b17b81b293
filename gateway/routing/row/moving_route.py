"""Route of a relation's changes to the targets whose filters have sub-selects.

Which record is right is `gateway.subselects.moves`' decision; here it is made. A row that replaces
what there may be is a ``d`` of the old key, if that is another one, and a ``c``; they are no halves
of a key change, which consumers fold into one UPDATE and skip if they lack the old row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gateway.core.errors import UnfitError
from gateway.core.records import Record
from gateway.definitions.model import Operation
from gateway.routing.row.projection_route import Draft, ProjectionRoute
from gateway.routing.row.quarantine import UnfitChange
from gateway.routing.row.targets import Row, Target
from gateway.routing.row.transaction_state import TransactionState
from gateway.rowfilter import Action
from gateway.subselects.following import FollowedTransaction, Following
from gateway.subselects.moves.decision import Sending
from gateway.subselects.moves.transaction import RowChange

__all__ = ["MovingRoute"]

_ACTIONS: Final = {
    Sending.INSERT: Action.INSERT,
    Sending.UPDATE: Action.UPDATE,
    Sending.DELETE: Action.DELETE,
    Sending.REPLACE: Action.INSERT,
}
"""Operation as which a record is counted."""


class MovingRoute:
    """Route of one relation to the targets of one outer table.

    Args:
        following: Sets and moves.
        table_oid: OID of the outer table.
        targets: Targets with the routes that encode for them, by subscription.
        pick: Function from a tuple to a row of the table's moves.
    """

    def __init__(
        self,
        following: Following,
        table_oid: int,
        targets: Mapping[str, tuple[ProjectionRoute, Target]],
        pick: Callable[[Row], Row],
    ) -> None:
        self._following = following
        self._table_oid = table_oid
        self._targets = targets
        self._pick = pick

    def insert(self, row: Row, lsn: int, tx: TransactionState, out: list[Record]) -> None:
        """Publish an INSERT to the targets that want the row."""
        followed = _followed(tx)
        change = followed.outer(self._table_oid).insert(self._pick(row))
        self._publish(change, followed, None, False, row, lsn, tx, out)

    def update(
        self,
        old: Row | None,
        full: bool,
        new: Row,
        lsn: int,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        """Publish an UPDATE to each target, as whatever is right there."""
        followed = _followed(tx)
        before = None if old is None else self._pick(old)
        change = followed.outer(self._table_oid).update(before, self._pick(new))
        self._publish(change, followed, old, full, new, lsn, tx, out)

    def delete(
        self, old: Row, full: bool, lsn: int, tx: TransactionState, out: list[Record]
    ) -> None:
        """Publish a DELETE to the targets that have the row, or may have it."""
        followed = _followed(tx)
        change = followed.outer(self._table_oid).delete(self._pick(old))
        self._publish(change, followed, old, full, None, lsn, tx, out)

    def truncate(self, tx: TransactionState) -> None:
        """Note a TRUNCATE, whose records others publish."""
        _followed(tx).outer(self._table_oid).truncate()

    def _publish(
        self,
        change: RowChange,
        followed: FollowedTransaction,
        old: Row | None,
        full: bool,
        new: Row | None,
        lsn: int,
        tx: TransactionState,
        out: list[Record],
    ) -> None:
        names = set(change.must_judge)
        for view in change.views:
            names |= self._following.candidates(self._table_oid, view, followed.changes)
        made: dict[tuple[int, Sending], list[list[Draft]]] = {}
        for name in sorted(names):
            sending = change.judge(name).sending
            if sending is Sending.NOTHING or name not in self._targets:
                continue
            route, target = self._targets[name]
            try:
                place = id(route), sending
                if place not in made:
                    made[place] = _drafts(route, sending, old, full, new, lsn, tx)
                for drafts in made[place]:
                    route.emit(drafts, target, _ACTIONS[sending], tx, out)
            except UnfitError as error:
                operation, op = (
                    (Operation.DELETE, b"d") if new is None else (Operation.UPDATE, b"u")
                )
                unfit = UnfitChange(op, old, full, new, lsn)
                route.fail(error, operation, unfit, target, tx, out)


def _followed(tx: TransactionState) -> FollowedTransaction:
    assert tx.followed is not None
    return tx.followed


def _drafts(
    route: ProjectionRoute,
    sending: Sending,
    old: Row | None,
    full: bool,
    new: Row | None,
    lsn: int,
    tx: TransactionState,
) -> list[list[Draft]]:
    """Make the records of a change, in groups that are emitted one after the other."""
    before = None if old is None else route.shown(old)
    after = None if new is None else route.shown(new)
    if sending is Sending.DELETE:
        # Without an old row, no column of the replica identity has changed.
        gone = before if before is not None else after
        assert gone is not None
        return [route.draft_delete(gone, full and before is not None, lsn, tx.seq, tx)]
    assert after is not None
    if sending is Sending.UPDATE:
        return [route.draft_update(Action.UPDATE, before, full, after, lsn, tx)]
    inserted = [route.draft(b"c", after, None, after, lsn, tx.seq, tx)]
    if sending is Sending.INSERT or before is None or route.encode_place is None:
        return [inserted]
    if route.encode_place(before) == route.encode_place(after):
        return [inserted]
    return [route.draft_delete(before, full, lsn, tx.seq - 1, tx), inserted]
