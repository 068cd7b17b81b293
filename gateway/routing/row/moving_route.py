"""Route of a relation's changes to the targets whose filters have sub-selects.

Which record is right is `gateway.subselects.moves`' decision; here it is made. A row that replaces
what there may be is a ``d`` of the old key, if that is another one, and a ``c``; they are no halves
of a key change, which consumers fold into one UPDATE and skip if they lack the old row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from gateway.copy.unseen import Change
from gateway.core.errors import UnfitError
from gateway.core.records import Record
from gateway.definitions.model import Operation
from gateway.routing.row.projection_route import Draft, ProjectionRoute
from gateway.routing.row.quarantine import UnfitChange
from gateway.routing.row.targets import MovingTargets, Row, Target
from gateway.routing.row.transaction_state import TransactionState
from gateway.rowfilter import Action
from gateway.subselects.following import FollowedTransaction, Following
from gateway.subselects.moves.decision import Sending
from gateway.subselects.moves.table_moves import TableMoves
from gateway.subselects.moves.transaction import RowChange

__all__ = ["MovingRoute", "looked_up_by"]

_ACTIONS: Final = {
    Sending.INSERT: Action.INSERT,
    Sending.UPDATE: Action.UPDATE,
    Sending.DELETE: Action.DELETE,
    Sending.REMOVE: Action.DELETE,
    Sending.REPLACE: Action.INSERT,
}
"""Operation as which a record is counted."""


class ReadChange(Protocol):
    """A change of one row, as `gateway.routing.row.relation_route` reads it."""

    @property
    def old(self) -> Row | None:
        """The old row, or what was sent of it."""
        ...

    @property
    def new(self) -> Row | None:
        """The new row."""
        ...

    @property
    def is_insert(self) -> bool:
        """Whether it is an INSERT."""
        ...


class MovingRoute:
    """Route of one relation to the targets of one outer table.

    Args:
        following: Sets and moves.
        table_oid: OID of the outer table.
        targets: Targets with the routes that encode for them, by subscription.
        pick: Function from a tuple to a row of the table's moves.
        looked_up: Targets of each projection, by its identity, as the compiled path finds them;
            None if it cannot.

    Attributes:
        table_oid, looked_up: As the arguments.
    """

    def __init__(
        self,
        following: Following,
        table_oid: int,
        targets: Mapping[str, tuple[ProjectionRoute, Target]],
        pick: Callable[[Row], Row],
        looked_up: Mapping[int, MovingTargets] | None = None,
    ) -> None:
        self._following = following
        self.table_oid = table_oid
        self._targets = targets
        self._pick = pick
        self.looked_up = looked_up
        self._candidates = following.candidates_of(table_oid)
        self._revision: tuple[int, int] | None = None
        self._are_looked_up = False

    def is_calm(self, tx: TransactionState | None) -> bool:
        """Whether look-ups decide about a transaction's next rows, or say that they do not.

        Args:
            tx: State of the transaction; None for one that changes no set and has not begun.
        """
        moves = self._following.moves[self.table_oid]
        if self.looked_up is None or moves.has_listed:
            return False
        if tx is not None and not _followed(tx).outer(self.table_oid).is_calm:
            return False
        revision = self._candidates.revision
        if revision != self._revision:
            self._revision = revision
            self._are_looked_up = self._candidates.are_looked_up()
            for targets in self.looked_up.values():
                for index in targets.indexes:
                    index.lookup.clear()
        return self._are_looked_up

    def note(self, read: Callable[[], Iterable[ReadChange]], xid: int) -> None:
        """Note changes that the compiled path has routed.

        Args:
            read: Reads them again.
            xid: Their transaction.
        """
        moves, pick = self._following.moves[self.table_oid], self._pick

        def make() -> list[Change]:
            return [_noted(moves, pick, change) for change in read()]

        moves.note(xid, make)

    def insert(self, row: Row, lsn: int, tx: TransactionState, out: list[Record]) -> None:
        """Publish an INSERT to the targets that want the row."""
        followed = _followed(tx)
        change = followed.outer(self.table_oid).insert(self._pick(row))
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
        change = followed.outer(self.table_oid).update(before, self._pick(new))
        self._publish(change, followed, old, full, new, lsn, tx, out)

    def delete(
        self, old: Row, full: bool, lsn: int, tx: TransactionState, out: list[Record]
    ) -> None:
        """Publish a DELETE to the targets that have the row, or may have it."""
        followed = _followed(tx)
        change = followed.outer(self.table_oid).delete(self._pick(old))
        self._publish(change, followed, old, full, None, lsn, tx, out)

    def truncate(self, tx: TransactionState) -> None:
        """Note a TRUNCATE, whose records others publish."""
        _followed(tx).outer(self.table_oid).truncate()

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
            names |= self._following.candidates(self.table_oid, view, followed.changes)
        made: dict[tuple[int, Sending], list[list[Draft]]] = {}
        for name in sorted(names):
            sending = change.judge(name).sending
            if sending is Sending.NOTHING or name not in self._targets:
                continue
            route, target = self._targets[name]
            try:
                if target.refused is not None:
                    raise target.refused
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
                route.handle_unfit(error, operation, unfit, target, tx, out)


def looked_up_by(routes: Iterable[MovingRoute]) -> dict[int, MovingTargets] | None:
    """Return the targets of all routes as the compiled path finds them; None if it cannot."""
    found: dict[int, MovingTargets] = {}
    for route in routes:
        if route.looked_up is None:
            return None
        found |= route.looked_up
    return found


def _noted(moves: TableMoves, pick: Callable[[Row], Row], change: ReadChange) -> Change:
    old = None if change.old is None else pick(change.old)
    if change.new is None:
        assert old is not None
        return moves.deleted(old)
    new = pick(change.new)
    return moves.inserted(new) if change.is_insert else moves.updated(old, new)


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
    before = None if old is None else route.masked(old)
    after = None if new is None else route.masked(new)
    if sending in (Sending.DELETE, Sending.REMOVE):
        # Without an old row, no column of the replica identity has changed.
        gone = before if before is not None else after
        assert gone is not None
        full = full and before is not None
        if sending is Sending.REMOVE:
            return [route.draft_remove(gone, full, lsn, tx.seq, tx)]
        return [route.draft_delete(gone, full, lsn, tx.seq, tx)]
    assert after is not None
    if sending is Sending.UPDATE:
        return [route.draft_update(Action.UPDATE, before, full, after, lsn, tx)]
    inserted = [route.draft(b"c", after, None, after, lsn, tx.seq, tx)]
    if sending is Sending.INSERT or before is None or route.encode_place is None:
        return [inserted]
    if route.encode_place(before) == route.encode_place(after):
        return [inserted]
    return [route.draft_remove(before, full, lsn, tx.seq - 1, tx), inserted]
