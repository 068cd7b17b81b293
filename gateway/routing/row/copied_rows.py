"""Routing for tables that are being copied: rows to records, and live changes to the copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import Final

from gateway.copy import ChunkedCopy, CopiedRow, row_of
from gateway.core.records import Record
from gateway.definitions.model import Table
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.routing.ports import Evaluator
from gateway.routing.row.filters import Asking
from gateway.routing.row.native import CompiledRows
from gateway.routing.row.projection_route import ProjectionRoute
from gateway.routing.row.server_filters import judge_rows
from gateway.routing.row.targets import Row
from gateway.routing.row.transaction_state import TransactionState

__all__ = ["CopyRoute", "CopyWatch", "picker"]

_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class CopyRoute:
    """Route of a table's copied rows to some subscriptions.

    Attributes:
        table: Subscriber table.
        columns: Columns to read, in the order of the rows' values.
        key: Names of the key columns, in the table's order; empty without a key.
        projection_routes: Route of each projection; its targets evaluate the filters.
        asking: Question that the server is asked about the rows, or None.
        compiled: C path for COPY lines, or None.
    """

    table: Table
    columns: tuple[str, ...]
    key: tuple[str, ...]
    projection_routes: tuple[ProjectionRoute, ...]
    asking: Asking | None = None
    compiled: CompiledRows | None = None

    def begin(self, lsn: int, tx: TransactionState) -> list[Record]:
        """Return the ``t`` records that make consumers discard their rows, if they get such."""
        out: list[Record] = []
        for route in self.projection_routes:
            for target in route.targets:
                if route.encoder.envelope.truncates:
                    route.truncate(lsn, tx, target, out, is_reported=False)
                target.counter.end_copy(rows=False)
        return out

    def publish(
        self,
        rows: Iterable[CopiedRow],
        lsn: int,
        tx: TransactionState,
        evaluator: Evaluator | None = None,
    ) -> Iterator[list[Record]]:
        """Yield the ``r`` records of `rows`, in bounded pieces.

        Args:
            rows: Rows with all their values.
            lsn: Position of the rows.
            tx: State created for these rows.
            evaluator: Idle evaluator of the filters that are not evaluated here.

        Raises:
            UnfitError: a row cannot be published and is not quarantined.
            TransientError: the connection that evaluates filters was lost.
        """
        rows = iter(rows)
        while piece := list(islice(rows, _ROWS)):
            out: list[Record] = []
            self._publish(piece, lsn, tx, evaluator, out)
            yield out
        for route in self.projection_routes:
            for target in route.targets:
                target.counter.end_copy(rows=True)

    def _publish(
        self,
        piece: list[CopiedRow],
        lsn: int,
        tx: TransactionState,
        evaluator: Evaluator | None,
        out: list[Record],
    ) -> None:
        def interpret(copied: CopiedRow) -> None:
            row = row_of(copied)
            for route in self.projection_routes:
                route.insert(row, lsn, tx, out)

        if self.compiled is not None:
            self.compiled.copy(piece, lsn, tx, out, interpret)
            return
        rows: Sequence[Row] = [row_of(copied) for copied in piece]
        if self.asking is not None:
            assert evaluator is not None
            rows = judge_rows(evaluator, self.asking, rows)
        for row in rows:
            interpret(row)


class CopyWatch:
    """Observer that passes the changes of one relation to a copy.

    Args:
        copy: Copy that receives the changes.
        columns: Names of the columns of the copy's rows.
        sent: Names of the columns of the relation's tuples.
    """

    __slots__ = ("_copy", "_pick")

    def __init__(self, copy: ChunkedCopy, columns: Sequence[str], sent: Sequence[str]) -> None:
        self._copy = copy
        self._pick = picker([sent.index(name) if name in sent else None for name in columns])

    def insert(self, row: Row, tx: TransactionState) -> None:
        """Pass an INSERT."""
        assert tx.context.xid is not None
        self._copy.insert(tx.context.xid, self._pick(row))

    def update(self, old: Row | None, new: Row, tx: TransactionState) -> None:
        """Pass an UPDATE."""
        assert tx.context.xid is not None
        before = None if old is None else self._pick(old)
        self._copy.update(tx.context.xid, before, self._pick(new))

    def delete(self, old: Row, tx: TransactionState) -> None:
        """Pass a DELETE."""
        assert tx.context.xid is not None
        self._copy.delete(tx.context.xid, self._pick(old))

    def truncate(self, tx: TransactionState) -> None:
        """Pass a TRUNCATE."""
        assert tx.context.xid is not None
        self._copy.truncate(tx.context.xid)


def picker(positions: Sequence[int | None]) -> Callable[[Row], Row]:
    """Return a function that picks a tuple's values in the order of `positions`."""
    known = [position for position in positions if position is not None]
    if len(known) == len(positions) > 1:
        return itemgetter(*known)

    def pick(row: Row) -> Row:
        # The relation did not have such a column yet; no chunk needs rows that lack a value.
        values: list[ColumnValue] = [
            UNCHANGED if position is None else row[position] for position in positions
        ]
        return values

    return pick
