"""Rows that enter or leave a subscription because another table has changed, as records.

They come from a read that is placed between two transactions, like the rows of a copy: ``r`` is the
row as it is now, and ``d`` says that the subscription does not have it now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from gateway.copy import row_of
from gateway.core.errors import UnfitError
from gateway.core.records import Record
from gateway.definitions.model import Operation
from gateway.routing.row.copied_rows import CopyRoute
from gateway.routing.row.quarantine import UnfitChange
from gateway.routing.row.transaction_state import TransactionState
from gateway.rowfilter import Action
from gateway.subselects.moves.table_moves import MovedRow

__all__ = ["MovedRows"]

_ROWS: Final = 1_000


class MovedRows:
    """Route of a table's moved rows.

    Args:
        route: Route of the table's copied rows to the same subscriptions.
        full: Whether the replica identity is the whole row.
    """

    def __init__(self, route: CopyRoute, *, full: bool) -> None:
        self._full = full
        self._targets = {
            target.counter.subscription: (projection, target)
            for projection in route.projection_routes
            for target in projection.targets
        }

    def publish(
        self, rows: Iterable[MovedRow], lsn: int, tx: TransactionState
    ) -> Iterator[list[Record]]:
        """Yield the records of `rows`, in bounded pieces.

        Args:
            rows: Rows with all their values, as `TableMoves.place` returns them.
            lsn: Position of the rows.
            tx: State created for these rows.

        Raises:
            UnfitError: a row cannot be published and is not quarantined.
        """
        rows = iter(rows)
        while piece := list(islice(rows, _ROWS)):
            out: list[Record] = []
            for moved in piece:
                self._publish(moved, lsn, tx, out)
            yield out
        for _, target in self._targets.values():
            target.counter.end_copy(rows=False)  # they are counted as inserts and deletes

    def _publish(self, moved: MovedRow, lsn: int, tx: TransactionState, out: list[Record]) -> None:
        route, target = self._targets[moved.subscription]
        row = row_of(moved.row)
        try:
            if target.refused is not None:
                raise target.refused
            masked = route.masked(row)
            if moved.wanted:
                drafts = [route.draft(tx.insert_op, masked, None, masked, lsn, tx.seq, tx)]
                route.emit(drafts, target, Action.INSERT, tx, out)
            else:
                drafts = route.draft_remove(masked, self._full, lsn, tx.seq, tx)
                route.emit(drafts, target, Action.DELETE, tx, out)
        except UnfitError as error:
            change = UnfitChange(tx.insert_op, None, False, row, lsn)
            route.handle_unfit(error, Operation.INSERT, change, target, tx, out)
