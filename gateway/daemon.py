"""The daemon: from the configuration to a running pipeline, and again after what may pass.

Every attempt begins from nothing but the configuration, the server and the watermark in Kafka, so
that a retry is the same as a restart. Order matters at the first start: the producer fences a
predecessor before the slot is looked at; the publications exist before the slot's first position,
because pgoutput looks them up as of the position it decodes.

What a start does (delivery contract, point 2):

    slot     watermark   ──►
    no       no              first start: new slot, initial copy
    yes      no              the copy died: new slot, the copy again
    no       yes             stop: changes since the watermark are gone
    yes      yes             go on from the watermark, if the slot is not beyond it

The watermark also has the definitions that it was written under. When they are others than those of
the file, or tables are missing, the start goes on with what is the same in both, and lets the rest
take over at one LSN (`gateway.reload`), as when they change while it runs. Then it starts anew.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.copy import CopyStopped, InitialCopy
from gateway.definitions.changes import fingerprint_of, key_of_copy, outdated, without
from gateway.definitions.combine import make_plan
from gateway.definitions.model import Definitions, Plan, Table, TableCopy
from gateway.envelope.envelope import TransactionContext
from gateway.errors import FatalError, SlotError, TransientError
from gateway.following import PlanReader
from gateway.lsn import ZERO_LSN, Lsn, format_lsn
from gateway.observe import Counters, event
from gateway.pipeline import Outcome, Pipeline
from gateway.provision import (
    check_partitions,
    ensure_all_topics,
    make_sink,
    read_definitions,
    routing_settings,
)
from gateway.records import Watermark
from gateway.reload import Reloader, Takeover
from gateway.routing import Router, RoutingSettings
from gateway.routing.routes import RelationRoutes
from gateway.routing.totals import Totals
from gateway.sink.producer import TransactionalSink
from gateway.sink.registry import Registry
from gateway.source.catalog import ServerCatalog, read_catalog
from gateway.source.connection import ServerFacts, connect, server_facts
from gateway.source.negotiation import negotiate
from gateway.source.publications import ensure_publications, extend_publications
from gateway.source.replication import OUTPUT_PLUGIN, ReplicationConnection
from gateway.source.slot import SlotStatus, check_slot, slot_status
from gateway.source.snapshot import SnapshotReader
from gateway.transactions import Assembler

__all__ = ["Daemon"]

_LOG: Final = logging.getLogger(__name__)
_FIRST_BACKOFF_S: Final = 0.5
_MAX_BACKOFF_S: Final = 15.0
_STEADY_S: Final = 60.0
"""A stream that has lasted this long worked, also when there was nothing to commit."""
_OPEN_TIMEOUT_S: Final = 60.0
_TOPICS_TIMEOUT_S: Final = 10.0
_CLOSE_S: Final = 1.0

CopyReport = Callable[[str, Table, int, int | None], None]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What an attempt has found out before it touches the slot."""

    facts: ServerFacts
    plan: Plan
    definitions: Definitions
    routing: RoutingSettings


class Daemon:
    """Runs the gateway.

    Args:
        stopping: Asked often; True ends the run in good order.
        pause: Waits for so many seconds, or until `stopping` may have changed.
        reload: True once after a person asked for the definitions to be read anew.
        report_copy: Told how far the initial copy is: subscription, table, rows, estimate.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        endpos: Lsn | None,
        stopping: Callable[[], bool],
        pause: Callable[[float], None],
        report_copy: CopyReport,
        reload: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._endpos = endpos
        self._asked_to_stop = stopping
        self._stop_by: float | None = None
        self._pause = pause
        self._report_copy = report_copy
        self._reload = reload
        self._streaming_since: float | None = None
        self.counters = Counters()

    def run(self) -> Outcome:
        """Run until stopped or at endpos; try again after what may pass.

        Raises:
            TransientError: nothing has worked for ``limits.retry_for_s``.
            FatalError: a person must act.
        """
        for warning in self._settings.warnings:
            event(_LOG, logging.WARNING, "doubtful setting", detail=warning)
        failing_since: float | None = None
        backoff = _FIRST_BACKOFF_S
        while not self._stopping():
            before = self.counters.durable_lsn
            self._streaming_since = None
            try:
                outcome = self._attempt()
                if outcome is not Outcome.REACHED_SWITCH:
                    return outcome
                failing_since, backoff = None, _FIRST_BACKOFF_S
            except CopyStopped:
                break
            except TransientError as error:
                if self._stopping():
                    break  # what is not committed was not acknowledged either
                now = time.monotonic()
                worked = self.counters.durable_lsn > before or self._was_steady(now)
                if failing_since is None or worked:
                    failing_since, backoff = now, _FIRST_BACKOFF_S
                if now - failing_since + backoff > self._settings.limits.retry_for_s:
                    raise
                event(_LOG, logging.WARNING, "trying again", in_s=backoff, error=error.message)
                self._pause(backoff)
                backoff = min(backoff * 2, _MAX_BACKOFF_S)
        return Outcome.STOPPED

    def _was_steady(self, now: float) -> bool:
        return self._streaming_since is not None and now - self._streaming_since > _STEADY_S

    def _stopping(self) -> bool:
        if self._stop_by is None and self._asked_to_stop():
            self._stop_by = time.monotonic() + self._settings.limits.shutdown_timeout_s
        return self._stop_by is not None

    def _close_timeout_s(self) -> float:
        """How long an open Kafka transaction may still take: what is left of the shutdown."""
        if self._stop_by is None:
            return self._settings.limits.shutdown_timeout_s
        return max(_CLOSE_S, self._stop_by - time.monotonic())

    def _attempt(self) -> Outcome:
        settings = self._settings
        definitions = read_definitions(settings)
        with connect(settings.source.dsn) as connection:
            prepared = self._prepare(connection, definitions)
            registry = Registry(settings.registry)
            sink = make_sink(settings, prepared.facts, registry)
            try:
                recovered = sink.open(_OPEN_TIMEOUT_S, stopping=self._stopping)
                check_partitions(prepared.routing.partitions, recovered.totals)
                totals = Totals(recovered.totals)
                # For the whole plan: what cannot be published is refused before anything is done.
                routes = RelationRoutes(
                    prepared.plan, prepared.routing, totals, ServerCatalog(connection), registry
                )
                routes.register_all()
                watermark = self._start_from(recovered.watermark, connection, prepared)
                waiting = [] if watermark is None else _waiting(prepared, watermark)
                # Not before: definitions that are refused must leave the publications alone, or
                # the slot would not have the changes that the old ones take.
                self._ensure_publications(connection, prepared.plan, keep=bool(waiting))
                if watermark is None:
                    watermark = self._first_start(prepared, routes, totals, sink)
                elif waiting:
                    watermark = _without_waiting(prepared.plan, watermark, waiting)
                    prepared = replace(prepared, plan=without(prepared.plan, waiting))
                else:
                    watermark = _as_planned(
                        prepared.plan, _without_waiting(prepared.plan, watermark, ())
                    )
                reader = PlanReader(settings, connection, prepared.definitions, prepared.plan)
                routes = RelationRoutes(
                    prepared.plan,
                    prepared.routing,
                    totals,
                    ServerCatalog(connection),
                    registry,
                    replan=reader.now,
                )
                with Reloader(
                    settings,
                    watermark,
                    None if waiting else prepared.plan,
                    prepared.definitions,
                    requested=self._reload,
                ) as reloader:
                    outcome, watermark = self._stream(
                        prepared, routes, totals, sink, watermark, reloader
                    )
                    if outcome is Outcome.REACHED_SWITCH:
                        takeover = reloader.take()
                        try:
                            self._take_over(takeover, connection, totals, sink, registry, watermark)
                        finally:
                            takeover.close()
                    return outcome
            finally:
                sink.close(self._close_timeout_s())

    def _prepare(self, connection: psycopg.Connection, definitions: Definitions) -> _Prepared:
        settings = self._settings
        facts = server_facts(connection)
        if facts.wal_level != "logical":
            raise FatalError(
                f"the source server has wal_level = {facts.wal_level}",
                hint="set wal_level = logical in postgresql.conf and restart the server",
            )
        for subscription in definitions.subscriptions:
            if subscription.connection_given:
                event(
                    _LOG,
                    logging.INFO,
                    "CONNECTION is not used, source.dsn is",
                    subscription=subscription.name,
                )
        catalog = read_catalog(connection, definitions)
        plan = make_plan(
            definitions,
            catalog,
            prefix=settings.source.slot,
            missing_identity=settings.definitions.missing_identity,
        )
        for warning in plan.warnings:
            event(_LOG, logging.WARNING, "definition", detail=warning)
        partitions = ensure_all_topics(settings, plan, timeout_s=_TOPICS_TIMEOUT_S)
        routing = routing_settings(settings, facts, plan, partitions)
        return _Prepared(facts, plan, definitions, routing)

    def _ensure_publications(
        self, connection: psycopg.Connection, plan: Plan, *, keep: bool
    ) -> None:
        """Make them what `plan` needs; `keep` what is there as well, for as long as it is read."""
        make = extend_publications if keep else ensure_publications
        for line in make(connection, plan, prefix=self._settings.source.slot):
            event(_LOG, logging.INFO, "publication", detail=line)

    def _start_from(
        self, watermark: Watermark | None, connection: psycopg.Connection, prepared: _Prepared
    ) -> Watermark | None:
        """Decide by slot and watermark; None: make a new slot and copy."""
        name = self._settings.source.slot
        status = slot_status(connection, name)
        if watermark is None or watermark.end_lsn == ZERO_LSN:
            if status is not None:
                if status.plugin != OUTPUT_PLUGIN or status.database != prepared.facts.database:
                    check_slot(status, prepared.facts.database)  # not ours to drop
                event(_LOG, logging.WARNING, "the initial copy was not finished: again", slot=name)
                self._drop_slot(name)
            return None
        if status is None:
            raise SlotError(
                f'replication slot "{name}" is gone; Kafka has its changes up to '
                f"{format_lsn(watermark.end_lsn)}, and those since are lost",
                hint="`pgsluice slot drop` forgets the watermark too; the next `pgsluice run` "
                "then copies all tables anew",
            )
        check_slot(status, prepared.facts.database)
        _check_position(status, watermark)
        return watermark

    def _drop_slot(self, name: str) -> None:
        replication = ReplicationConnection(self._settings.source.dsn)
        try:
            replication.drop_slot(name, wait=True)
        finally:
            replication.close()

    def _first_start(
        self,
        prepared: _Prepared,
        routes: RelationRoutes,
        totals: Totals,
        sink: TransactionalSink,
    ) -> Watermark:
        """Create the slot and copy the tables at its consistent point."""
        settings = self._settings
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
                    report=self._report_copy,
                    stopping=self._stopping,
                )
                return copy.run(base)
        finally:
            replication.close()

    def _waiting_for_slot(self, waited_s: float) -> None:
        if self._stopping():
            raise CopyStopped
        if int(waited_s) % 10 == 9:
            event(
                _LOG,
                logging.WARNING,
                "the slot waits for transactions that are still running",
                waited_s=int(waited_s),
            )

    def _take_over(
        self,
        takeover: Takeover,
        connection: psycopg.Connection,
        totals: Totals,
        sink: TransactionalSink,
        registry: Registry,
        watermark: Watermark,
    ) -> None:
        """Put other definitions into force: markers, the rows that change sides, the watermark."""
        settings = self._settings
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
                report=self._report_copy,
                stopping=self._stopping,
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

    def _stream(
        self,
        prepared: _Prepared,
        routes: RelationRoutes,
        totals: Totals,
        sink: TransactionalSink,
        watermark: Watermark,
        reloader: Reloader,
    ) -> tuple[Outcome, Watermark]:
        """Run the pipeline; return why it ended, and the watermark in Kafka."""
        settings = self._settings
        source = ReplicationConnection(settings.source.dsn)
        protocol = negotiate(prepared.plan.subscriptions, source.server_version)
        assembler = Assembler(
            version=protocol.version,
            parallel_streaming=protocol.streaming == "parallel",
            max_buffer_bytes=settings.limits.max_buffer_bytes,
            spool_directory=settings.gateway.spool_directory,
        )
        try:
            source.start(
                settings.source.slot,
                [publication.name for publication in prepared.plan.server_publications],
                version=protocol.version,
                streaming=protocol.streaming,
                two_phase=protocol.two_phase,
                binary=protocol.binary,
                messages=bool(settings.messages.prefixes),
            )
            self.counters.durable_lsn = watermark.end_lsn
            event(
                _LOG,
                logging.INFO,
                "streaming",
                slot=settings.source.slot,
                watermark=format_lsn(watermark.end_lsn),
                protocol=protocol.version,
                streaming=protocol.streaming,
                two_phase=protocol.two_phase,
                binary=protocol.binary,
            )
            self._streaming_since = time.monotonic()
            pipeline = Pipeline(
                source,
                sink,
                assembler,
                Router(routes, totals, prepared.routing),
                watermark,
                [subscription.name for subscription in prepared.plan.subscriptions],
                settings.limits,
                self.counters,
                endpos=self._endpos,
                stopping=self._stopping,
                switch=reloader,
            )
            outcome = pipeline.run()
            event(
                _LOG,
                logging.INFO,
                outcome.value,
                watermark=format_lsn(pipeline.durable.end_lsn),
                transactions=self.counters.transactions,
                records=self.counters.records,
            )
            return outcome, pipeline.durable
        finally:
            source.close()
            assembler.close()


def _waiting(prepared: _Prepared, watermark: Watermark) -> list[TableCopy]:
    """Return the tables that cannot go on as planned, because their rows have to come first.

    Under the same definitions that is a table that is not there yet; one that a publication of the
    database now takes otherwise goes on at once, as natively.
    """
    late = outdated(prepared.plan, watermark.copies)
    if watermark.definitions != prepared.definitions.fingerprint:
        return late
    ready = {(s.subscription, s.schema, s.table) for s in watermark.copies if s.state == "ready"}
    return [copy for copy in late if key_of_copy(prepared.plan, copy) not in ready]


def _without_waiting(plan: Plan, watermark: Watermark, waiting: Sequence[TableCopy]) -> Watermark:
    """Return `watermark` with the states that hold once it moves on without some tables.

    Those have no longer what their old definition says. Nor have the ones that the definitions do
    not name any more; should they come back, they are copied.
    """
    late = {key_of_copy(plan, copy) for copy in waiting}
    named = {key_of_copy(plan, copy) for copy in plan.copies}
    copies = [
        replace(s, state="pending", definition="") if key in late else s
        for s in watermark.copies
        if (key := (s.subscription, s.schema, s.table)) in named
    ]
    return replace(watermark, copies=tuple(copies))


def _as_planned(plan: Plan, watermark: Watermark) -> Watermark:
    """Return `watermark` with the fingerprints of `plan`, all of whose tables are there."""
    now = {key_of_copy(plan, copy): fingerprint_of(plan, copy) for copy in plan.copies}
    copies = tuple(
        replace(s, definition=now.get((s.subscription, s.schema, s.table), s.definition))
        for s in watermark.copies
    )
    return replace(watermark, copies=copies)


def _check_position(status: SlotStatus, watermark: Watermark) -> None:
    """Refuse a slot from which changes since the watermark can no longer be read."""
    confirmed = status.confirmed_flush_lsn
    if confirmed is not None and confirmed > watermark.end_lsn:
        raise SlotError(
            f'replication slot "{status.name}" was moved to {format_lsn(confirmed)}, beyond the '
            f"watermark {format_lsn(watermark.end_lsn)}: changes in between are lost",
            hint="find out who advanced the slot; `pgsluice slot drop`, then `pgsluice run` copies "
            "all tables anew",
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
