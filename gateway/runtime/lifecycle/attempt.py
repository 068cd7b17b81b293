"""One attempt: from nothing but the configuration to a running loop, and to its end.

The steps, each of which relies on the one before:

    1. definitions, plan, topics: read from configuration and server; nothing is changed
    2. a first look (`gateway.runtime.lifecycle.start_decision`): a slot that is not ours is left
       alone; a first start claims it in Kafka and creates it
    3. the slot's stream is started: from here on no other gateway leads
       (`gateway.runtime.lifecycle.leadership`), and the server is answered all the time
       (`gateway.runtime.loop.receiver`)
    4. `init_transactions` fences a predecessor that may still be writing; then the watermark is
       read, and the decision is made again with facts that no other gateway can change now
    5. stream, until stopped, or until other definitions come into force at one LSN

Publications exist before the slot's first position, because pgoutput looks them up as of the
position it decodes. They are changed only when all filters and schemas have been accepted, or the
slot would lack changes that the old definitions publish.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Final

import psycopg

from gateway.core.errors import TransientError
from gateway.core.failpoints import fail_point
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.watermark import CopyRequest, CopyState, StateParts, Watermark
from gateway.definitions.changes import fingerprint_of
from gateway.definitions.model import Definitions, Plan
from gateway.definitions.moving import inner_oids
from gateway.definitions.tables.unread import with_unread
from gateway.observe import event
from gateway.routing.build.followed_tables import stale_sets
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.runtime.lifecycle.activation import (
    accept_requests,
    begin,
    commit_states,
    put_into_force,
)
from gateway.runtime.lifecycle.leadership import lock_first_start, start_over, start_stream
from gateway.runtime.lifecycle.process import Carried, Process
from gateway.runtime.lifecycle.slot_start import OPEN_TIMEOUT_S, SlotStart
from gateway.runtime.lifecycle.standby import DefinitionsChanged
from gateway.runtime.lifecycle.start_decision import Facts, GoOn, StartOver, decide, look
from gateway.runtime.lifecycle.streaming import Streaming
from gateway.runtime.loop.pipeline import Outcome
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.planning.lost_records import copied_again
from gateway.runtime.planning.lost_topics import forget_lost, hold_lost, unknown_ends
from gateway.runtime.planning.ownership import (
    all_pending,
    check_owners,
    forget_foreign_offsets,
    published_until,
    warn_of_gaps,
)
from gateway.runtime.planning.routes import Outside
from gateway.runtime.planning.setup import (
    make_sink,
    set_up,
    slot_identity,
    warn_of_risks,
)
from gateway.runtime.planning.untrusted_texts import refused_requests, trusted_progress
from gateway.runtime.reload.missed_changes import report_missed
from gateway.sink.delivery.committed_state import CommittedState
from gateway.sink.delivery.sink import TransactionalSink
from gateway.sink.registry.registry import Registry
from gateway.source.session.connection import connect
from gateway.source.stream.connection import ReplicationConnection
from gateway.source.stream.slot import is_reading

__all__ = ["Attempt"]

_LOG: Final = logging.getLogger(__name__)


class Attempt:
    """One attempt, which runs once.

    Args:
        process: State that all attempts share.
        carried: State left by the attempt before; changed for the next one.

    Attributes:
        stood_by: Whether another process had the slot at first.
        streaming_since: Time at which the loop began, in monotonic seconds, or None.
    """

    def __init__(self, process: Process, carried: Carried) -> None:
        self._process = process
        self._carried = carried
        self.stood_by = False
        self.streaming_since: float | None = None

    def run(self) -> Outcome:
        """Run the attempt; return why it ended.

        Raises:
            StoppedWaiting: `stopping` returned True before the loop began.
            TransientError: a transient failure; nothing was acknowledged that is not in Kafka.
            FatalError: a person must act.
        """
        self._process.counters.enter("starting")
        with ExitStack() as stack:
            slot = self._prepare(stack)
            stream = self._acquire(slot)
            if stream is None:
                return Outcome.START_AGAIN
            slot = replace(slot, reader_pid=stream.backend_pid)
            fail_point("start.slot_taken")
            receiver, sink = self._open(stack, slot, stream)
            with receiver.answering():
                begun = self._begin(slot, receiver, sink)
                if begun is None:
                    return Outcome.START_AGAIN
                slot, going_on, accepted, parts = begun
                streaming = Streaming(
                    self._process, self._carried, slot, receiver, sink, going_on, accepted, parts
                )
                del begun, parts  # may be large
            stack.callback(streaming.close)
            self.streaming_since = time.monotonic()
            return streaming.run()

    def _prepare(self, stack: ExitStack) -> SlotStart:
        """Make the plan, and create the slot if there is none."""
        process, carried, settings = self._process, self._carried, self._process.settings
        connection = stack.enter_context(
            connect(settings.source.dsn, on_wait=self._check_interrupted)
        )
        registry = Registry(settings.registry, on_wait=self._check_interrupted)
        stack.callback(registry.close)
        setup = set_up(
            settings,
            connection,
            registry,
            carried.definitions,
            carried.faults,
            hidden=carried.hidden,
        )
        carried.hidden = setup.hidden
        carried.warned |= warn_of_risks(setup.risks, carried.warned)
        evaluator = process.evaluator(self._check_interrupted)
        stack.callback(evaluator.close)
        outside = Outside(connection, registry, evaluator)
        slot = SlotStart(process, settings, setup, outside, self._check_interrupted)
        seen = setup.progress
        first_look = slot.facts(None if seen is None or seen.watermark is None else seen)
        if look(first_look) is not None:
            lock_first_start(connection, settings.source.slot)
            facts = slot.facts()
            if (first_start := look(facts)) is not None:
                made_at = slot.make(first_start.because, facts.watermark)
                return replace(slot, made_at=made_at)
        return slot

    def _acquire(self, slot: SlotStart) -> ReplicationConnection | None:
        """Start the slot's stream; stand by while another gateway reads it. None: start again."""
        identity = slot_identity(slot.setup.facts, slot.settings)
        self._process.standby.begin(identity, slot.setup.definitions.fingerprint)
        try:
            stream = start_stream(slot, partial(self._stand_by, slot.outside.connection))
        except DefinitionsChanged:
            self._carried.definitions = stream = None
        if stream is None or self.stood_by:
            self._process.members.forget()  # the other gateway may have altered the publications
        if stream is None:
            # Left out, they would be copied again although the other gateway has published them.
            self._carried.hidden = {}
        return stream

    def _open(
        self, stack: ExitStack, slot: SlotStart, stream: ReplicationConnection
    ) -> tuple[Receiver, TransactionalSink]:
        """Open receiver and sink, which are closed in the safe order."""
        process, settings, setup = self._process, slot.settings, slot.setup
        receiver = stack.enter_context(
            Receiver(
                stream,
                spool_directory=settings.gateway.spool_directory,
                feedback_interval_s=settings.limits.feedback_interval_s,
            )
        )
        sink = make_sink(
            settings,
            setup.facts,
            slot.outside.registry,
            batch_bytes=setup.batch_bytes,
            on_away=process.counters.set_away,
        )
        # After an outage of Kafka, the slot decides which gateway goes on.
        source = settings.source
        sink.resume_while(
            partial(is_reading, source.dsn, source.slot, stream.backend_pid),
            partial(check_owners, settings, setup.facts, slot.subscriptions),
        )
        # The stream goes first: a server that is stopping does not wait for Kafka.
        stack.callback(lambda: sink.close(process.close_timeout_s()))
        stack.callback(receiver.close)
        return receiver, sink

    def _begin(
        self, slot: SlotStart, receiver: Receiver, sink: TransactionalSink
    ) -> tuple[SlotStart, GoOn, tuple[CopyRequest, ...], StateParts] | None:
        """Fence a predecessor, decide by its progress, and commit that; None to start again.

        Returns:
            The slot with its final setup, where to go on, the accepted requests, and the parts of
            the state of sub-selects, none for a new slot.
        """
        process, carried, connection = self._process, self._carried, slot.outside.connection
        recovered = sink.open(OPEN_TIMEOUT_S, stopping=process.stopping)
        recovered = trusted_progress(connection, recovered, process.counters)
        if _is_superseded(carried.definitions, recovered):
            carried.definitions, carried.hidden = None, {}
            process.members.forget()
            process.standby.supersede()
            return None
        if process.standby.refuses(recovered.watermark):
            return None
        settings, setup, lost = hold_lost(
            slot.settings,
            slot.setup,
            slot.outside,
            recovered,
            carried.lost,
            carried.faults,
            was_down=carried.was_down,
        )
        slot = replace(slot, settings=settings, setup=setup)
        going_on = self._decide(slot, receiver, sink, recovered, lost)
        if going_on is None:
            return None
        asked = recovered.requests
        watermark = accept_requests(
            setup.plan,
            going_on.watermark,
            asked,
            connection,
            sink,
            unfit=refused_requests(connection, setup.plan, asked),
            stopping=process.stopping,
        )
        # It is committed with the next position; the registry has them all by now, or had them.
        watermark = replace(watermark, schemas=setup.schemas)
        parts = {} if going_on.confirmed_lsn is None else recovered.parts
        return slot, replace(going_on, watermark=watermark), asked, parts

    def _decide(
        self,
        slot: SlotStart,
        receiver: Receiver,
        sink: TransactionalSink,
        recovered: CommittedState,
        lost: Collection[str],
    ) -> GoOn | None:
        """Decide by the watermark, with no other writer; None if the slot was dropped.

        `lost`: topics whose tables are copied again.
        """
        settings, setup = slot.settings, slot.setup
        committed, recovered = recovered.watermark, _with_unread(slot, recovered)
        known = recovered.watermark
        if known is not None and lost:
            states = copied_again(known.copies, lost, setup.routing.topic_names)
            recovered = replace(recovered, watermark=replace(known, copies=states))
        # Before anything is written; again, as it may have been long since the first look.
        taken = slot.claim()
        fail_point("start.topics_claimed")
        if taken:
            recovered = forget_foreign_offsets(
                settings, setup.facts, slot.outside.registry, sink, recovered, taken
            )
            fail_point("start.offsets_forgotten")
        sink.begin_after(unknown_ends(settings, setup, recovered), setup.topic_ids)
        # For the whole plan: tables that cannot be published are refused before anything is done.
        routes = self._routes(slot)
        fingerprint, stopping = setup.definitions.fingerprint, self._process.stopping
        facts = slot.facts_while_held(recovered)
        position = ZERO_LSN if facts.watermark is None else facts.watermark.end_lsn
        position = position or slot.made_at or ZERO_LSN
        warn_of_gaps(setup.plan, taken, position, facts.server)
        if slot.made_at is not None and _is_new(facts, slot.made_at):
            first = Watermark(slot.made_at, setup.facts.timeline, fingerprint, ())
            return GoOn(begin(setup.plan, first, routes, sink, stopping, recovered.parts))
        if taken and facts.watermark is not None:
            facts = replace(facts, watermark=all_pending(facts.watermark, taken))
        decision = decide(facts)
        if not isinstance(decision, GoOn):
            assert isinstance(decision, StartOver), "the slot is held, so it exists"
            start_over(slot, receiver, sink, decision)
            return None
        if self._finds_lost_members(slot, decision.watermark):
            return None
        unread = set[int]() if known is None else _lost_inner_tables(setup.plan, known.copies)
        self._carried.broken_sets |= unread
        stale = stale_sets(setup.plan, recovered.parts, unread)
        if known is not None and (known != committed or stale):
            # Before the publications: they may read the relations again at the next start, and
            # lose tables of sub-selects, whose sets must not be there when they come back.
            commit_states(known, sink, stopping, stale)
        slot.ensure_publications()
        if not (decision.rewritten or decision.altered or lost or taken):
            return decision
        watermark = put_into_force(
            setup.plan,
            fingerprint,
            decision.watermark,
            routes,
            sink,
            reconcile=decision.rewritten,
            stopping=stopping,
            published=published_until(settings, taken, facts.server),
        )
        if lost:
            forget_lost(settings, setup, slot.outside.registry, recovered, lost)
            ends = unknown_ends(settings, setup, recovered, lost)
            sink.begin_after(ends, setup.topic_ids)
        return replace(decision, watermark=watermark)

    def _finds_lost_members(self, slot: SlotStart, watermark: Watermark) -> bool:
        """Look for tables that others have taken out of the gateway's publications meanwhile.

        The next attempt holds them, which is committed before they are added again. The one after
        that copies them, or they wait for their owner.
        """
        connection, plan = slot.outside.connection, slot.setup.plan
        lost = self._process.members.look_at_start(connection, plan, watermark.copies)
        report_missed(plan, lost)
        self._carried.faults = {**self._carried.faults, **lost}
        return bool(lost)

    def _routes(self, slot: SlotStart) -> RelationRoutes:
        """Build the routes of the whole plan, with schemas registered and the evaluator open.

        Raises:
            FatalError: something of the plan cannot be published.
        """
        setup, outside = slot.setup, slot.outside
        routes = outside.routes(setup.plan, setup.routing, ask_server=self._carried.ask_server)
        # `setup.schemas` is empty unless all were registered, or known, when the plan was made.
        routes.register_all(request=outside.registry.request, known=setup.schemas)
        for (subscription, _), error in routes.addresses.refused.items():
            event(
                _LOG,
                logging.WARNING,
                "the registry refuses the schema of a table; its changes go to the error topic",
                subscription=subscription,
                error=error.message,
            )
        if routes.filters.ask_server:
            outside.evaluator.open()
        return routes

    def _check_interrupted(self) -> None:
        """End a wait for a server if the gateway is stopping.

        Before the loop has begun, nothing is lost by that; afterwards the wait goes on until the
        part of the shutdown timeout has passed that is not kept for closing.

        Raises:
            TransientError: the wait has to end.
        """
        process = self._process
        if process.stopping() and (self.streaming_since is None or process.time_is_up()):
            raise TransientError("interrupted, because the gateway is stopping")

    def _stand_by(self, connection: psycopg.Connection, seconds: float) -> None:
        self.stood_by = True
        self._process.standby.wait(connection)
        # All servers have answered by now.
        self._process.counters.set_denied(None)
        self._process.counters.enter("standby")
        self._process.pause(seconds)


def _lost_inner_tables(plan: Plan, states: Iterable[CopyState]) -> set[int]:
    """Return the tables of sub-selects that may have been in no publication of the gateway's.

    Their sets are built again, as the tables that select by them are copied again. One that is read
    for a table that goes on was there all the time: with it, that table would be held as well.
    Partitions are not looked at for that, and always count.
    """
    known = {(state.subscription, state.oid): state for state in states}
    lost: set[int] = set()
    there: set[int] = set()
    for copy in plan.copies:
        if (state := known.get((copy.subscription, copy.target_oid))) is None:
            continue
        if state.cause in ("taken_out", "publication"):
            lost |= inner_oids(copy.filters)
        elif state.state in ("copying", "ready") and state.definition == fingerprint_of(plan, copy):
            there |= inner_oids(copy.filters)
    return lost - {oid for oid in there if not plan.tables[oid].ancestors}


def _with_unread(slot: SlotStart, recovered: CommittedState) -> CommittedState:
    """Return the progress, with the relations of tables whose updates and deletes are not read."""
    watermark = recovered.watermark
    if watermark is None:
        return recovered
    states = with_unread(slot.setup.plan, watermark.copies, slot.read_with_updates())
    return replace(recovered, watermark=replace(watermark, copies=states))


def _is_new(facts: Facts, made_at: Lsn) -> bool:
    """Whether the slot is still the one made there, and nothing was streamed from it."""
    slot, claim = facts.slot, facts.watermark
    at = None if slot is None else slot.confirmed_flush_lsn
    return at == made_at and claim is not None and claim.end_lsn == ZERO_LSN


def _is_superseded(definitions: Definitions | None, recovered: CommittedState) -> bool:
    """Whether other definitions than these are in force by now: another gateway has led."""
    watermark = recovered.watermark
    if definitions is None or watermark is None:
        return False
    return watermark.definitions not in ("", definitions.fingerprint)
