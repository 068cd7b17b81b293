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
from contextlib import ExitStack, closing, nullcontext
from functools import partial
from typing import Final

from gateway.config import Settings
from gateway.core.errors import FatalError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn, format_lsn
from gateway.core.records import Record
from gateway.core.watermark import CopyRequest, CopyState, StatePart, StateParts, Watermark
from gateway.definitions.requests import new_partitions, released
from gateway.observe import event
from gateway.routing import Router
from gateway.routing.build.followed_tables import FollowedTables
from gateway.routing.row.native import why_interpreted
from gateway.runtime.copy.coordinator import TableCopier
from gateway.runtime.copy.merging import warn_of_merging
from gateway.runtime.copy.move_markers import MoveMarkers
from gateway.runtime.lifecycle.activation import accept_requests, put_into_force
from gateway.runtime.lifecycle.process import Carried, Process
from gateway.runtime.lifecycle.slot_start import SlotStart
from gateway.runtime.lifecycle.start_decision import GoOn
from gateway.runtime.loop.memory import clear_up
from gateway.runtime.loop.pipeline import Outcome, Pipeline
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.loop.stream_position import Ends
from gateway.runtime.planning.ownership import forget_foreign_offsets
from gateway.runtime.planning.plan_reader import PlanReader
from gateway.runtime.planning.set_stores import set_store
from gateway.runtime.reload.reloader import PreparedDefinitions, Reloader
from gateway.sink.delivery.batches import why_one_by_one
from gateway.sink.delivery.sink import TransactionalSink
from gateway.source.copy.chunk_reader import ChunkReader
from gateway.subselects.following import Following
from gateway.subselects.sets.value_set import SetBrokenError
from gateway.transactions import Assembler

__all__ = ["Streaming"]

_LOG: Final = logging.getLogger(__name__)


class Streaming:
    """The runs of the loop on one stream, which has begun.

    It is an object beside `gateway.runtime.lifecycle.attempt.Attempt` because all that it works
    with is there from its beginning; a start gets that step by step, and may end at each.

    Args:
        process: State that all attempts share.
        carried: State for the next attempt.
        slot: The slot, with the setup of the attempt.
        going_on: Committed watermark, and the LSN at which the stream begins.
        accepted: Requests that have been accepted.
        parts: Committed parts of the state of sub-selects.
    """

    def __init__(
        self,
        process: Process,
        carried: Carried,
        slot: SlotStart,
        receiver: Receiver,
        sink: TransactionalSink,
        going_on: GoOn,
        accepted: Sequence[CopyRequest],
        parts: StateParts,
    ) -> None:
        settings, setup, outside = slot.settings, slot.setup, slot.outside
        self._process = process
        self._carried = carried
        self._slot = slot
        self._receiver = receiver
        self._sink = sink
        self._accepted = {request.name for request in accepted}
        self._reader = PlanReader(
            settings,
            outside.connection,
            setup.definitions,
            setup.plan,
            going_on.watermark,
            before=setup.catalog,
            reports_ddl=setup.reports_ddl,
            since=going_on.confirmed_lsn or ZERO_LSN,
        )
        followed = FollowedTables(
            setup.plan, parts, make=set_store(settings), broken=carried.pop_broken_sets()
        )
        for fault in followed.following.faults:
            event(_LOG, logging.WARNING, "state of sub-selects not used", because=fault)
        self._followed = followed if followed.outer else None
        self._routes = outside.routes(
            setup.plan,
            setup.routing,
            reader=self._reader,
            ask_server=carried.ask_server,
            moving=None if self._followed is None else followed.moving,
        )
        self._routes.begins |= _published_elsewhere(going_on.watermark, settings)
        router = Router(
            self._routes,
            setup.routing,
            inner=None if self._followed is None else followed.changes,
            answering=receiver.answering,
        )
        self._assembler = Assembler(
            version=setup.protocol.version,
            parallel_streaming=setup.protocol.streaming == "parallel",
            max_buffer_bytes=settings.limits.max_buffer_bytes,
            spool_directory=settings.gateway.spool_directory,
            series=router.routes_series,
        )
        self._pipeline = self._make_pipeline(router, going_on, followed)

    def _make_pipeline(self, router: Router, going_on: GoOn, followed: FollowedTables) -> Pipeline:
        """Return the loop, which all runs on this stream share."""
        process, addresses = self._process, self._routes.addresses
        return Pipeline(
            self._receiver,
            self._sink,
            self._assembler,
            router,
            going_on.watermark,
            [subscription.name for subscription in self._slot.setup.plan.subscriptions],
            self._slot.settings.limits,
            process.counters,
            ends=Ends(process.endpos, process.stopping, process.time_is_up),
            confirmed_lsn=going_on.confirmed_lsn,
            pop_state=partial(
                _pop_state,
                followed.following,
                MoveMarkers(followed, addresses, process.counters),
                self._receiver,
            ),
            on_batch=process.on_batch,
        )

    def close(self) -> None:
        """Close the files of the sets of sub-selects."""
        if self._followed is not None:
            self._followed.following.close()

    def run(self) -> Outcome:
        """Stream; return why it ended.

        Raises:
            TransientError: an edge failed.
            FatalError: a person must act.
        """
        self._process.standby.lead()
        self._carried.has_streamed = True
        # What was lost before is being copied; tables of which changes are missing are held.
        self._process.members.lost.clear()
        self._carried.definitions, self._carried.lost = self._slot.setup.definitions, frozenset()
        self._log_start()
        self._post_start()
        self._slot.outside.registry.send_later()
        try:
            with closing(self._assembler):
                while (outcome := self._run()) is None:
                    pass
        except SetBrokenError as error:
            self._carried.broken_sets |= {error.table_oid}
            raise TransientError(error.message, hint=error.hint) from None
        finally:
            # However it has ended, the next attempt holds them before it goes on.
            self._carried.faults = {**self._carried.faults, **self._process.members.lost}
        self._receiver.finish(self._process.close_timeout_s())
        return outcome

    def _run(self) -> Outcome | None:
        """Run the loop once; None if it goes on, with the copies that were requested."""
        settings, counters = self._slot.settings, self._process.counters
        with ExitStack() as stack:
            reloader = stack.enter_context(self._reloader())
            with self._receiver.answering():
                copier = stack.enter_context(self._copier(stack))
            outcome = self._pipeline.run(copier, switch=reloader, renew=reloader.is_asked_to_copy)
            if copier.faults and settings.definitions.on_table_error == "stop":
                raise FatalError(next(iter(copier.faults.values())).reason)
            again = outcome is Outcome.START_AGAIN and not self._pipeline.is_ending
            asked = reloader.requests if again else ()
            if asked and not self._needs_attempt(copier, asked):
                # The stream goes on, and threads may take their time to end.
                with self._receiver.answering():
                    stack.close()
                    clear_up()
                    self._accept(asked, reloader.unfit)
                return None
        event(
            _LOG,
            logging.INFO,
            outcome.value,
            watermark=format_lsn(self._pipeline.durable.end_lsn),
            transactions=counters.transactions,
            records=counters.records,
        )
        self._carried.faults = {**self._carried.faults, **copier.faults}
        if outcome is Outcome.REACHED_SWITCH:
            with self._receiver.answering():
                self._put_into_force(reloader.prepared())
        return outcome

    def _needs_attempt(self, copier: TableCopier, asked: tuple[CopyRequest, ...]) -> bool:
        """Whether only another attempt, which makes another plan, can accept the requests."""
        states = self._pipeline.durable.copies
        return bool(
            copier.needs_successor
            or self._routes.needs_replan
            or new_partitions(self._slot.setup.plan, states)
            or released(states, asked) != states
        )

    def _accept(self, asked: tuple[CopyRequest, ...], unfit: Mapping[str, str]) -> None:
        watermark = accept_requests(
            self._slot.setup.plan,
            self._pipeline.durable,
            asked,
            self._slot.outside.connection,
            self._sink,
            unfit=unfit,
            stopping=self._process.stopping,
        )
        self._pipeline.go_on_from(watermark)
        self._accepted.update(request.name for request in asked)

    def _put_into_force(self, prepared: PreparedDefinitions) -> None:
        if prepared.taken:
            # Only now, as the loop has ended: its sink compares what it knows with what Kafka has.
            settings, setup, outside = self._slot.settings, self._slot.setup, self._slot.outside
            forget_foreign_offsets(
                *(settings, setup.facts, outside.registry),
                *(self._sink, self._sink.committed, prepared.taken),
            )
        put_into_force(
            self._reader.settle(prepared.plan, prepared.definitions, prepared.snapshot),
            prepared.definitions.fingerprint,
            self._pipeline.durable,
            self._slot.outside.routes(prepared.plan, prepared.routing),
            self._sink,
            reconcile=prepared.reconcile,
            stopping=self._process.stopping,
        )
        self._process.members.lost.clear()  # they are held now
        self._carried.definitions, self._carried.faults = prepared.definitions, {}
        self._carried.hidden = prepared.hidden

    def _reloader(self) -> Reloader:
        return Reloader(
            self._slot.settings,
            self._pipeline.durable,
            self._slot.setup,
            counters=self._process.counters,
            stream_plan=self._reader.stream_plan,
            copies=self._copies,
            requested=self._process.reload,
            held_looks=self._process.held_looks,
            members=self._process.members,
            accepted=self._accepted,
        )

    def _copies(self) -> Sequence[CopyState]:
        """Return the states of all copies, for other threads."""
        posted = self._process.counters.posted
        loop = None if posted is None else posted.loop
        return self._pipeline.durable.copies if loop is None else loop.copies

    def _log_start(self) -> None:
        protocol = self._slot.setup.protocol
        why, one_by_one = why_interpreted(), why_one_by_one()
        event(
            _LOG,
            logging.INFO,
            "streaming",
            slot=self._slot.settings.source.slot,
            watermark=format_lsn(self._pipeline.durable.end_lsn),
            protocol=protocol.version,
            streaming=protocol.streaming,
            two_phase=protocol.two_phase,
            binary=protocol.binary,
            rows="compiled" if why is None else f"interpreted: {why}",
            producing="compiled" if one_by_one is None else f"one by one: {one_by_one}",
        )

    def _post_start(self) -> None:
        """Post what holds while this stream runs; log subscriptions that became held."""
        setup, counters = self._slot.setup, self._process.counters
        counters.durable_lsn = self._pipeline.durable.end_lsn
        evaluators = self._routes.filters.evaluators
        counters.filters = {
            (p.subscription, str(setup.plan.tables[p.target_oid])): evaluators(p)
            for p in setup.plan.publishes
        }
        for name, because in setup.routing.muted.items():
            if counters.muted.get(name) != because:
                event(
                    _LOG,
                    logging.ERROR,
                    "a subscription is held",
                    subscription=name,
                    because=because,
                )
        counters.muted = setup.routing.muted
        counters.owner = setup.routing.writer.owner
        counters.set_away("")
        counters.set_denied(None)
        counters.enter("streaming")

    def _copier(self, stack: ExitStack) -> TableCopier:
        settings, evaluator = self._slot.settings, None
        copying = any(not state.is_settled for state in self._pipeline.durable.copies)
        if copying and self._routes.filters.ask_server:
            # The stream has its own, which may be busy with another transaction.
            evaluator = stack.enter_context(closing(self._process.evaluator(self._slot.on_wait)))
            evaluator.open()
        copier = TableCopier(
            self._slot.setup.plan,
            self._pipeline.durable.copies,
            self._routes,
            self._slot.setup.routing,
            settings.copy,
            self._process.counters,
            open_reader=lambda on_wait: ChunkReader(
                settings.source.dsn,
                slot=settings.source.slot,
                on_wait=on_wait,
                spool_directory=settings.gateway.spool_directory,
            ),
            evaluator=evaluator,
            report=self._process.report_copy,
            followed=self._followed,
        )
        warn_of_merging(settings.kafka, copier.merging())
        return copier


def _published_elsewhere(watermark: Watermark, settings: Settings) -> dict[tuple[str, int], Lsn]:
    """Return positions up to which another gateway has published, by subscription and OID."""
    return {
        (state.subscription, state.oid): state.consistent_point
        for state in watermark.copies
        if state.state == "pending"
        and state.consistent_point is not None
        and state.consistent_point > watermark.end_lsn
        and settings.envelope.of(state.subscription).truncates
    }


def _pop_state(
    following: Following, markers: MoveMarkers, receiver: Receiver, lsn: Lsn
) -> tuple[tuple[StatePart, ...], list[Record]]:
    """Return what is committed of sub-selects; of new sets that takes time."""
    with receiver.answering() if following.has_built else nullcontext():
        parts = following.pop_parts()
    return parts, markers.records(lsn) if parts else []
