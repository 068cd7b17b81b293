"""The two moments at which tables are copied: the first start, and when definitions take over."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.copy import CopyStopped, InitialCopy
from gateway.definitions.model import Definitions, Plan, Table
from gateway.envelope.envelope import TransactionContext
from gateway.lsn import ZERO_LSN, Lsn, format_lsn
from gateway.observe import Counters, event
from gateway.records import Watermark
from gateway.reload import Takeover
from gateway.routing import RoutingSettings
from gateway.routing.routes import RelationRoutes
from gateway.routing.totals import Totals
from gateway.sink.producer import TransactionalSink
from gateway.sink.registry import Registry
from gateway.source.catalog import ServerCatalog
from gateway.source.connection import ServerFacts
from gateway.source.replication import ReplicationConnection
from gateway.source.snapshot import SnapshotReader

__all__ = ["CopyReport", "Copying", "Prepared"]

_LOG: Final = logging.getLogger(__name__)

CopyReport = Callable[[str, Table, int, int | None], None]
"""Told how far a copy is: subscription, table, rows, estimate."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What an attempt has found out before it touches the slot."""

    facts: ServerFacts
    plan: Plan
    definitions: Definitions
    routing: RoutingSettings


@dataclass(frozen=True, slots=True)
class Copying:
    """Copies tables for the daemon.

    Attributes:
        stopping: Asked often; True gives up with `CopyStopped`.
    """

    settings: Settings
    counters: Counters
    report: CopyReport
    stopping: Callable[[], bool]

    def first_start(
        self,
        prepared: Prepared,
        routes: RelationRoutes,
        totals: Totals,
        sink: TransactionalSink,
    ) -> Watermark:
        """Create the slot and copy the tables at its consistent point."""
        settings = self.settings
        replication = ReplicationConnection(settings.source.dsn)
        try:
            snapshot = replication.create_slot(
                settings.source.slot,
                two_phase=any(s.two_phase for s in prepared.plan.subscriptions),
                on_wait=self._waiting_for_slot,
            )
            point = snapshot.consistent_point
            event(
                _LOG,
                logging.INFO,
                "slot created",
                slot=settings.source.slot,
                consistent_point=format_lsn(point),
            )
            base = Watermark(
                ZERO_LSN, prepared.facts.timeline, prepared.definitions.fingerprint, ()
            )
            with SnapshotReader(settings.source.dsn, snapshot.snapshot_name) as reader:
                copy = InitialCopy(
                    prepared.plan,
                    routes,
                    totals,
                    reader,
                    sink,
                    settings.limits,
                    self.counters,
                    consistent_point=point,
                    context=_copy_context(prepared.routing, point),
                    report=self.report,
                    stopping=self.stopping,
                )
                return copy.run(base)
        finally:
            replication.close()

    def take_over(
        self,
        takeover: Takeover,
        connection: psycopg.Connection,
        totals: Totals,
        sink: TransactionalSink,
        registry: Registry,
        watermark: Watermark,
    ) -> None:
        """Put other definitions into force: markers, the rows that change sides, the watermark."""
        settings = self.settings
        routes = RelationRoutes(
            takeover.plan, takeover.routing, totals, ServerCatalog(connection), registry
        )
        with ExitStack() as stack:
            reader: SnapshotReader | None = None
            if takeover.snapshot is not None:
                reader = stack.enter_context(SnapshotReader(settings.source.dsn, takeover.snapshot))
            copy = InitialCopy(
                takeover.plan,
                routes,
                totals,
                reader,
                sink,
                settings.limits,
                self.counters,
                consistent_point=takeover.point,
                context=_copy_context(takeover.routing, takeover.point),
                report=self.report,
                stopping=self.stopping,
            )
            after = copy.take_over(watermark, takeover.changes, takeover.definitions.fingerprint)
        self.counters.durable_lsn = after.end_lsn
        event(
            _LOG,
            logging.INFO,
            "definitions in force",
            lsn=format_lsn(takeover.point),
            subscriptions=len(takeover.plan.subscriptions),
            copied_tables=len(takeover.changes),
        )

    def _waiting_for_slot(self, waited_s: float) -> None:
        if self.stopping():
            raise CopyStopped
        if int(waited_s) % 10 == 9:
            event(
                _LOG,
                logging.WARNING,
                "the slot waits for transactions that are still running",
                waited_s=int(waited_s),
            )


def _copy_context(routing: RoutingSettings, point: Lsn) -> TransactionContext:
    now_ms = time.time_ns() // 1_000_000
    return TransactionContext(
        gateway=routing.gateway,
        db=routing.database,
        version=routing.version,
        xid=None,
        commit_lsn=point,
        commit_time=now_ms * 1000 - 946_684_800_000_000,
        origin=None,
        snapshot="true",
        ts_ms=now_ms,
    )
