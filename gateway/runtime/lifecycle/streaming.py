"""Streaming phase of an attempt: runs of the loop, with copy requests accepted between them.

A request ends a run of the loop in good order: everything routed is in Kafka then. The states that
follow from it are committed, and the loop goes on with the same stream, the same relations and a
new copier, for which this is a beginning like any other: nothing that was published before has to
be shown to it. A table that was altered or is held meanwhile needs a new plan; then the attempt
ends, and the next one accepts the requests as well.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Final

from gateway.core.errors import FatalError
from gateway.core.lsn import Lsn, format_lsn
from gateway.core.watermark import CopyRequest, CopyState, Watermark
from gateway.definitions.model import Fault, TableId
from gateway.definitions.requests import new_partitions, oids_of, released
from gateway.observe import event
from gateway.routing import Router
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.row.native import why_interpreted
from gateway.runtime.copy.coordinator import TableCopier
from gateway.runtime.lifecycle.activation import accept_requests
from gateway.runtime.lifecycle.process import Process
from gateway.runtime.lifecycle.slot_start import SlotStart
from gateway.runtime.loop.history_check import HistoryCheck
from gateway.runtime.loop.memory import clear_up
from gateway.runtime.loop.pipeline import Outcome, Pipeline
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.planning.plan import PlanReader
from gateway.runtime.planning.reload import PreparedDefinitions, Reloader
from gateway.sink.delivery.batches import why_one_by_one
from gateway.sink.delivery.sink import TransactionalSink
from gateway.source.copy.chunk_reader import ChunkReader
from gateway.source.provisioning.privileges import why_unreadable
from gateway.transactions import Assembler

__all__ = ["Streaming"]

_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Streaming:
    """One run, on a stream that has begun.

    Attributes:
        slot: The slot, with the setup of the attempt.
        reader: Reader of the plan, which follows DDL messages.
        watermark: The watermark that Kafka has committed.
        done_requests: Names of the requests that have been accepted.
        faults: Faults of tables that the copy could not read.
        takeover: Definitions to put into force after `Outcome.REACHED_SWITCH`.
    """

    process: Process
    slot: SlotStart
    reader: PlanReader
    routes: RelationRoutes
    receiver: Receiver
    sink: TransactionalSink
    watermark: Watermark
    done_requests: set[str]
    takeover: PreparedDefinitions | None = None
    faults: dict[TableId, Fault] = field(default_factory=dict)

    def run(self, confirmed_lsn: Lsn | None) -> Outcome:
        """Stream; return why it ended. `confirmed_lsn` is that of the slot, None for a new one.

        Raises:
            TransientError: an edge failed.
            FatalError: a person must act.
        """
        process, setup = self.process, self.slot.setup
        settings, protocol = self.slot.settings, setup.protocol
        self._announce()
        router = Router(self.routes, setup.routing, answering=self.receiver.answering)
        assembler = Assembler(
            version=protocol.version,
            parallel_streaming=protocol.streaming == "parallel",
            max_buffer_bytes=settings.limits.max_buffer_bytes,
            spool_directory=settings.gateway.spool_directory,
            series=router.routes_series,
        )
        with closing(assembler):
            pipeline = Pipeline(
                self.receiver,
                self.sink,
                assembler,
                router,
                self.watermark,
                [subscription.name for subscription in setup.plan.subscriptions],
                settings.limits,
                process.counters,
                endpos=process.endpos,
                stopping=process.stopping,
                history=HistoryCheck(self.watermark, confirmed_lsn),
            )
            while True:
                outcome, asked, unfit = self._run(pipeline)
                if not asked:
                    return outcome
                self._accept(asked, unfit)

    def _run(
        self, pipeline: Pipeline
    ) -> tuple[Outcome, tuple[CopyRequest, ...], Mapping[str, str]]:
        """Run the loop once.

        Returns:
            Why it ended, the requests with which it can go on, and the reasons, by name, for
            which some of these cannot be used.
        """
        setup = self.slot.setup
        with ExitStack() as stack:
            reloader = stack.enter_context(
                Reloader(
                    self.slot.settings,
                    self.watermark,
                    setup.plan,
                    setup.definitions,
                    counters=self.process.counters,
                    before=setup.catalog,
                    reports_ddl=setup.reports_ddl,
                    stream_plan=self.reader.stream_plan,
                    names=setup.names,
                    copies=self._copies,
                    requested=self.process.reload,
                    held_looks=self.process.held_looks,
                    accepted=self.done_requests,
                )
            )
            with self.receiver.answering():
                copier = stack.enter_context(self._copier(stack))
            pipeline.begin(
                self.watermark,
                copier,
                switch=reloader,
                renew=reloader.is_asked_to_copy,
            )
            outcome = pipeline.run()
            self.watermark = pipeline.durable
            self.faults |= copier.faults
            if self.faults and self.slot.settings.definitions.on_table_error == "stop":
                raise FatalError(next(iter(self.faults.values())).reason)
            asked = reloader.requests if outcome is Outcome.START_AGAIN else ()
            if (
                copier.altered
                or self.routes.needs_replan
                or new_partitions(setup.plan, self.watermark.copies)
                or released(self.watermark.copies, asked) != self.watermark.copies
            ):
                asked = ()
            if outcome is Outcome.REACHED_SWITCH:
                self.takeover = reloader.prepared()
            if asked:
                # The stream goes on, and threads may take their time to end.
                with self.receiver.answering():
                    stack.close()
                    clear_up()
        if not asked:
            event(
                _LOG,
                logging.INFO,
                outcome.value,
                watermark=format_lsn(self.watermark.end_lsn),
                transactions=self.process.counters.transactions,
                records=self.process.counters.records,
            )
        return outcome, asked, reloader.unfit

    def _accept(self, asked: tuple[CopyRequest, ...], unfit: Mapping[str, str]) -> None:
        with self.receiver.answering():
            self.watermark = accept_requests(
                self.slot.setup.plan,
                self.watermark,
                asked,
                {},
                why_unreadable(self.slot.outside.connection, oids_of(self.slot.setup.plan, asked)),
                self.sink,
                unfit=unfit,
                stopping=self.process.stopping,
            )
        self.done_requests.update(request.name for request in asked)

    def _copies(self) -> Sequence[CopyState]:
        """Return the states of all copies, for other threads."""
        posted = self.process.counters.posted
        loop = None if posted is None else posted.loop
        return self.watermark.copies if loop is None else loop.copies

    def _announce(self) -> None:
        protocol, plan = self.slot.setup.protocol, self.slot.setup.plan
        self.process.counters.durable_lsn = self.watermark.end_lsn
        why, one_by_one = why_interpreted(), why_one_by_one()
        event(
            _LOG,
            logging.INFO,
            "streaming",
            slot=self.slot.settings.source.slot,
            watermark=format_lsn(self.watermark.end_lsn),
            protocol=protocol.version,
            streaming=protocol.streaming,
            two_phase=protocol.two_phase,
            binary=protocol.binary,
            rows="compiled" if why is None else f"interpreted: {why}",
            producing="compiled" if one_by_one is None else f"one by one: {one_by_one}",
        )
        self.process.counters.filters = {
            (p.subscription, str(plan.tables[p.target_oid])): self.routes.filters.evaluators(p)
            for p in plan.publishes
        }
        for name, because in self.slot.setup.routing.muted.items():
            if self.process.counters.muted.get(name) != because:
                event(
                    _LOG,
                    logging.ERROR,
                    "a subscription is held",
                    subscription=name,
                    because=because,
                )
        self.process.counters.muted = self.slot.setup.routing.muted
        self.process.counters.set_away("")
        self.process.counters.set_denied(None)
        self.process.counters.enter("streaming")

    def _copier(self, stack: ExitStack) -> TableCopier:
        settings, evaluator = self.slot.settings, None
        copying = any(not state.is_settled for state in self.watermark.copies)
        if copying and self.routes.filters.ask_server:
            # The stream has its own, which may be busy with another transaction.
            evaluator = stack.enter_context(closing(self.process.evaluator(self.slot.on_wait)))
            evaluator.open()
        return TableCopier(
            self.slot.setup.plan,
            self.watermark.copies,
            self.routes,
            self.slot.setup.routing,
            settings.copy,
            self.process.counters,
            open_reader=lambda on_wait: ChunkReader(
                settings.source.dsn,
                slot=settings.source.slot,
                on_wait=on_wait,
                spool_directory=settings.gateway.spool_directory,
            ),
            evaluator=evaluator,
            report=self.process.report_copy,
        )
