"""The initial copy: the rows that pass the filters, at the slot's consistent point.

The state per subscriber table is pending, copying, ready. An attempt begins with a ``t`` record
(``source.snapshot = "first"``) to every partition of the topic, then its ``r`` records, then a COPY
marker ``ready``; all at (consistent point, seq 0). A copy is committed in batches. If the gateway
dies in between, its exported snapshot is gone: the next attempt takes a new slot with a later
consistent point, and its ``t`` record makes consumers drop the rows of the dead one. There is no
watermark (``end_lsn`` 0) before all tables are ready, which is how a start tells the two apart.

The same procedure brings tables to changed definitions while the gateway runs (`take_over`), from
the snapshot of a temporary slot. Behind a RELOAD marker, a table of which only the filters have
changed gets ``d`` records for the rows that leave and ``r`` records for those that enter; any other
is copied as a whole. Until all of it is done the watermark names the definitions from before.

The filters are evaluated by PostgreSQL itself here, in the COPY; but for those that may raise where
such rows are quarantined (`RelationRoutes.copy_route`).
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from gateway.config import LimitsTable
from gateway.definitions.changes import Difference, TableChange, fingerprint_of, taken_on
from gateway.definitions.model import Plan, Table, TableCopy
from gateway.envelope.envelope import Snapshot, TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.envelope.markers import encode_copy, encode_reload
from gateway.lsn import Lsn, format_lsn
from gateway.observe import Counters, event, report_quarantined
from gateway.pgoutput.messages import ColumnValue, ReplicaIdentity
from gateway.ports import Sink
from gateway.records import Batch, CopyState, CopyStateKind, Record, Watermark
from gateway.routing.routes import CopyRoute, RelationRoutes
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
    """Copies tables of a plan at one consistent point; for one run.

    Args:
        reader: None when no table is to be copied.
        report: Called with (subscription, table, rows so far, estimate) now and then.
        stopping: Asked between batches.
    """

    def __init__(
        self,
        plan: Plan,
        routes: RelationRoutes,
        totals: Totals,
        reader: RowReader | None,
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
            self._copy(copy, base, None)
        copied = {(copy.subscription, copy.target_oid) for copy in self._plan.copies}
        return self._finish(replace(base, end_lsn=self._consistent_point), copied)

    def take_over(
        self, base: Watermark, changes: Sequence[TableChange], definitions: str
    ) -> Watermark:
        """Bring the tables of `changes` to the plan's definitions, those of the others being equal.

        Args:
            base: The watermark in force: everything that ends at or before the consistent point is
                in Kafka under the old definitions.
            changes: As `table_changes` has found them.
            definitions: Fingerprint of the new definitions.

        Returns:
            The watermark with the new definitions, durable in Kafka.

        Raises:
            CopyStopped: `stopping` said so.
            TransientError: an edge failed. The watermark keeps the old definitions, and the tables
                that were not finished are marked as not ready.
        """
        changed = {(change.copy.subscription, change.copy.target_oid) for change in changes}
        known = {(state.subscription, state.schema, state.table): state for state in base.copies}
        for copy in self._plan.copies:
            key = (copy.subscription, copy.target_oid)
            table = self._routes.table(copy.target_oid)
            state = known.get((copy.subscription, table.schema, table.name))
            if key not in changed and state is not None:
                self._states[key] = state
        value = encode_reload(self._consistent_point, definitions)
        headers = self._headers.make(self._consistent_point, 0, b"RELOAD")
        records = [self._routes.marker(s.name, value, headers) for s in self._plan.subscriptions]
        # All at once, so that nobody takes the tables for complete in between.
        records += [self._marker(change.copy, "pending", ()) for change in changes]
        self._submit(Batch(records, replace(base, copies=self._copies())))
        for change in changes:
            self._copy(change.copy, base, change.difference)
        return self._finish(replace(base, definitions=definitions), changed)

    def _finish(self, watermark: Watermark, copied: Collection[tuple[str, int]]) -> Watermark:
        """Commit `watermark` with all tables ready under the plan's definitions."""
        for copy in self._plan.copies:
            key = (copy.subscription, copy.target_oid)
            state, definition = self._states[key], fingerprint_of(self._plan, copy)
            if key not in copied:
                definition = taken_on(state.definition, definition)
            self._states[key] = replace(state, definition=definition)
        last = replace(watermark, copies=self._copies())
        self._submit(Batch([], last, self._totals.take_changed()))
        self._wait_for_sink()
        return last

    def _copy(self, copy: TableCopy, base: Watermark, difference: Difference | None) -> None:
        assert self._reader is not None
        table = self._routes.table(copy.target_oid)
        route = self._routes.copy_route(copy)
        run = _TableRun(copy, table, route, base, self._transaction("true"))
        run.records.append(self._marker(copy, "copying", ()))
        # Rows that were quarantined under the old filters are in no known state.
        if difference is None or self._routes.quarantines(difference.filters):
            run.estimate = self._reader.estimate_rows(table)
            first = self._transaction("first")
            route.group.truncate(self._consistent_point, first, route.taker, run.records)
            self._read(run, route.where, self._enter)
        else:
            self._read(run, [difference.leaving], self._leave)
            self._read(run, [difference.entering], self._enter)
        self._settle(run.counts)
        run.records.append(self._marker(copy, "ready", tuple(run.counts.values())))
        self._submit(
            Batch(run.records, replace(base, copies=self._copies()), self._totals.take_changed())
        )
        self._report(copy.subscription, table, run.rows, run.rows)
        report_quarantined(_LOG, self._counters, run.transaction.quarantined)
        event(
            _LOG,
            logging.INFO,
            "table copied" if difference is None else "table brought to its new filter",
            subscription=copy.subscription,
            relation=table,
            rows=run.rows,
            consistent_point=format_lsn(self._consistent_point),
        )

    def _read(
        self,
        run: _TableRun,
        where: Sequence[str],
        publish: Callable[[_TableRun, Sequence[ColumnValue]], None],
    ) -> None:
        """Read the rows for which any of `where` is true, and `publish` each."""
        assert self._reader is not None
        reported = time.monotonic()
        for batch in self._reader.copy_rows(run.table, run.route.columns, where):
            if self._stopping():
                raise CopyStopped
            before = len(run.records)
            for row in batch:
                publish(run, row)
            run.rows += len(run.records) - before
            self._counters.copied_rows += len(run.records) - before
            if len(run.records) >= self._limits.copy_batch_rows:
                self._commit(run.records, run.base, run.counts)
                run.records = []
            if time.monotonic() - reported >= _REPORT_INTERVAL_S:
                self._report(run.copy.subscription, run.table, run.rows, run.estimate)
                reported = time.monotonic()

    def _enter(self, run: _TableRun, row: Sequence[ColumnValue]) -> None:
        run.route.group.insert(row, self._consistent_point, run.transaction, run.records)

    def _leave(self, run: _TableRun, row: Sequence[ColumnValue]) -> None:
        group = run.route.group
        full = run.table.replica_identity is ReplicaIdentity.FULL
        drafts = group.draft_delete(row, full, self._consistent_point, 0, run.transaction)
        group.emit(drafts, run.route.taker, run.records)

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


@dataclass(slots=True)
class _TableRun:
    """One table while it is copied.

    Attributes:
        counts: By partition, the records of the attempt that are committed.
        rows: Records of rows so far.
    """

    copy: TableCopy
    table: Table
    route: CopyRoute
    base: Watermark
    transaction: TransactionState
    estimate: int | None = None
    records: list[Record] = field(default_factory=list)
    counts: dict[int, PartitionCount] = field(default_factory=dict)
    rows: int = 0
