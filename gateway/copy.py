"""The initial copy: the rows that pass the filters, at the slot's consistent point.

The state per subscriber table is pending, copying, ready. An attempt begins with a ``t`` record
(``source.snapshot = "first"``) to every partition of the topic, then its ``r`` records, then a COPY
marker ``ready``; all at (consistent point, seq 0). A copy is committed in batches. If the gateway
dies in between, its exported snapshot is gone: the next attempt takes a new slot with a later
consistent point, and its ``t`` record makes consumers drop the rows of the dead one. There is no
watermark (``end_lsn`` 0) before all tables are ready, which is how a start tells the two apart.

The filters are evaluated by PostgreSQL itself here, in the COPY; but for those that may raise where
such rows are quarantined (`RelationRoutes.copy_route`).
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol

from gateway.config import LimitsTable
from gateway.definitions.model import Plan, Table, TableCopy
from gateway.envelope.envelope import Snapshot, TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_copy
from gateway.lsn import Lsn, format_lsn
from gateway.observe import Counters, event, report_quarantined
from gateway.pgoutput.messages import ColumnValue
from gateway.ports import Sink
from gateway.records import Batch, CopyState, CopyStateKind, Record, Watermark
from gateway.routing.routes import RelationRoutes
from gateway.routing.state import TransactionState
from gateway.routing.totals import PartitionCount, Totals

__all__ = ["CopyStopped", "InitialCopy", "RowReader"]

_LOG: Final = logging.getLogger(__name__)
_REPORT_INTERVAL_S: Final = 5.0


class CopyStopped(Exception):
    """The copy was told to stop; it starts anew next time."""


class RowReader(Protocol):
    """Reads tables as they are in one exported snapshot."""

    def copy_rows(
        self, table: Table, columns: Sequence[str], where: Sequence[str]
    ) -> Iterator[Sequence[Sequence[ColumnValue]]]:
        """Yield batches of rows for which any of `where` is true; all rows when it is empty."""

    def estimate_rows(self, table: Table) -> int | None:
        """Return the planner's idea of the number of rows; None when it has none."""


class InitialCopy:
    """Copies all tables of a plan at one consistent point.

    Args:
        report: Called with (subscription, table, rows so far, estimate) now and then.
        stopping: Asked between batches.
    """

    def __init__(
        self,
        plan: Plan,
        routes: RelationRoutes,
        totals: Totals,
        reader: RowReader,
        sink: Sink,
        limits: LimitsTable,
        counters: Counters,
        *,
        consistent_point: Lsn,
        context: TransactionContext,
        report: Callable[[str, Table, int, int | None], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._routes = routes
        self._totals = totals
        self._reader = reader
        self._sink = sink
        self._limits = limits
        self._counters = counters
        self._consistent_point = consistent_point
        self._context = context
        self._headers = HeaderMaker(consistent_point, None, None, None)
        self._report = report
        self._stopping = stopping
        self._states: dict[tuple[str, int], CopyState] = {
            (copy.subscription, copy.target_oid): self._state(copy, "pending")
            for copy in plan.copies
        }

    def run(self, base: Watermark) -> Watermark:
        """Copy everything; return the first watermark, durable in Kafka.

        Raises:
            CopyStopped: `stopping` said so.
            TransientError: an edge failed; nothing of this attempt counts.
        """
        base = replace(base, end_lsn=Lsn(0))
        for copy in self._plan.copies:
            self._copy(copy, base)
        first = replace(base, end_lsn=self._consistent_point, copies=self._copies())
        self._submit(Batch([], first, self._totals.take_changed()))
        self._wait_for_sink()
        return first

    def _copy(self, copy: TableCopy, base: Watermark) -> None:
        table = self._routes.table(copy.target_oid)
        route = self._routes.copy_route(copy)
        estimate = self._reader.estimate_rows(table)
        counts: dict[int, PartitionCount] = {}
        records: list[Record] = []
        first = self._transaction("first")
        route.group.truncate(self._consistent_point, first, route.taker, records)
        records.append(self._marker(copy, "copying", ()))
        rows = 0
        reported = time.monotonic()
        tx = self._transaction("true")
        for batch in self._reader.copy_rows(table, route.columns, route.where):
            if self._stopping():
                raise CopyStopped
            before = len(records)
            for row in batch:
                route.group.insert(row, self._consistent_point, tx, records)
            rows += len(records) - before
            self._counters.copied_rows += len(records) - before
            if len(records) >= self._limits.copy_batch_rows:
                self._commit(records, base, counts)
                records = []
            if time.monotonic() - reported >= _REPORT_INTERVAL_S:
                self._report(copy.subscription, table, rows, estimate)
                reported = time.monotonic()
        self._settle(counts)
        records.append(self._marker(copy, "ready", tuple(counts.values())))
        self._submit(
            Batch(records, replace(base, copies=self._copies()), self._totals.take_changed())
        )
        self._report(copy.subscription, table, rows, rows)
        report_quarantined(_LOG, self._counters, tx.quarantined)
        event(
            _LOG,
            logging.INFO,
            "table copied",
            subscription=copy.subscription,
            relation=table,
            rows=rows,
            consistent_point=format_lsn(self._consistent_point),
        )

    def _commit(
        self, records: list[Record], base: Watermark, counts: dict[int, PartitionCount]
    ) -> None:
        self._settle(counts)
        self._submit(
            Batch(records, replace(base, copies=self._copies()), self._totals.take_changed())
        )

    def _settle(self, counts: dict[int, PartitionCount]) -> None:
        """Add the batch's counts to the attempt's."""
        for _, changed in self._totals.settle():
            for count in changed:
                before = counts.get(count.partition)
                records = count.records + (0 if before is None else before.records)
                counts[count.partition] = replace(count, records=records)

    def _marker(
        self, copy: TableCopy, state: CopyStateKind, counts: Sequence[PartitionCount]
    ) -> Record:
        """Set the state of a table, and say so."""
        entry = self._state(copy, state)
        self._states[copy.subscription, copy.target_oid] = entry
        value = encode_copy(
            entry,
            [(c.topic, c.partition, c.records, c.total) for c in counts],
        )
        headers = self._headers.make(self._consistent_point, 0, b"COPY")
        return self._routes.marker(copy.subscription, value, headers)

    def _state(self, copy: TableCopy, state: CopyStateKind) -> CopyState:
        table = self._routes.table(copy.target_oid)
        return CopyState(copy.subscription, table.schema, table.name, state, self._consistent_point)

    def _copies(self) -> tuple[CopyState, ...]:
        return tuple(self._states.values())

    def _transaction(self, snapshot: Snapshot) -> TransactionState:
        return TransactionState(replace(self._context, snapshot=snapshot), self._headers)

    def _submit(self, batch: Batch) -> None:
        """Hand a batch over as soon as the one before is committed."""
        self._wait_for_sink()
        self._sink.submit(batch)

    def _wait_for_sink(self) -> None:
        while self._sink.busy:
            select.select([self._sink.fileno()], [], [], 0.5)
            self._sink.collect()
            if self._stopping():
                raise CopyStopped
