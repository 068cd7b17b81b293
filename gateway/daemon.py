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
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.copy import CopyStopped
from gateway.definitions.changes import as_planned, waiting, without, without_states
from gateway.definitions.combine import make_plan
from gateway.definitions.model import Definitions, Plan
from gateway.definitions.server import SUFFIXES
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
from gateway.reload import Reloader
from gateway.routing import Router
from gateway.routing.routes import RelationRoutes
from gateway.routing.totals import Totals
from gateway.sink.producer import TransactionalSink
from gateway.sink.registry import Registry
from gateway.source.catalog import ServerCatalog, read_catalog
from gateway.source.connection import connect, server_facts
from gateway.source.negotiation import negotiate
from gateway.source.publications import ensure_publications, extend_publications
from gateway.source.replication import OUTPUT_PLUGIN, ReplicationConnection
from gateway.source.slot import SlotStatus, check_slot, slot_status
from gateway.starting import Copying, CopyReport, Prepared
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
        self._reload = reload
        self._streaming_since: float | None = None
        self.counters = Counters()
        self._copying = Copying(settings, self.counters, report_copy, self._stopping)

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
                late = (
                    []
                    if watermark is None
                    else waiting(prepared.plan, prepared.definitions.fingerprint, watermark)
                )
                # Not before: definitions that are refused must leave the publications alone, or
                # the slot would not have the changes that the old ones take.
                self._ensure_publications(connection, prepared.plan, keep=bool(late))
                if watermark is None:
                    watermark = self._copying.first_start(prepared, routes, totals, sink)
                elif late:
                    watermark = without_states(prepared.plan, watermark, late)
                    prepared = replace(prepared, plan=without(prepared.plan, late))
                else:
                    watermark = as_planned(
                        prepared.plan, without_states(prepared.plan, watermark, ())
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
                    None if late else prepared.plan,
                    prepared.definitions,
                    requested=self._reload,
                    adopted=lambda: routes.adopted,
                ) as reloader:
                    outcome, watermark = self._stream(
                        prepared, routes, totals, sink, watermark, reloader
                    )
                    if outcome is Outcome.REACHED_SWITCH:
                        takeover = reloader.take()
                        try:
                            self._copying.take_over(
                                takeover, connection, totals, sink, registry, watermark
                            )
                        finally:
                            takeover.close()
                    return outcome
            finally:
                sink.close(self._close_timeout_s())

    def _prepare(self, connection: psycopg.Connection, definitions: Definitions) -> Prepared:
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
        return Prepared(facts, plan, definitions, routing)

    def _ensure_publications(
        self, connection: psycopg.Connection, plan: Plan, *, keep: bool
    ) -> None:
        """Make them what `plan` needs; `keep` what is there as well, for as long as it is read."""
        make = extend_publications if keep else ensure_publications
        for line in make(connection, plan, prefix=self._settings.source.slot):
            event(_LOG, logging.INFO, "publication", detail=line)

    def _start_from(
        self, watermark: Watermark | None, connection: psycopg.Connection, prepared: Prepared
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

    def _stream(
        self,
        prepared: Prepared,
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
                # All of them: what is still to be read may have been published by another one.
                [settings.source.slot + suffix for suffix in SUFFIXES],
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
