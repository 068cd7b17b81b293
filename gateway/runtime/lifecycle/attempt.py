"""One attempt: from nothing but the configuration to a running loop, and to its end.

Order, because each step relies on the one before:

    1. definitions, plan, topics: what the configuration and the server say; nothing is changed
    2. a first look (`gateway.runtime.lifecycle.start_decision`): a slot that is not ours is left
       alone; a first start claims it in Kafka and makes it
    3. the slot's stream is started: from here on nobody else leads
       (`gateway.runtime.lifecycle.leadership`), and the server is answered all the time
       (`gateway.runtime.loop.receiver`)
    4. `init_transactions` fences a predecessor that may still be writing; then the watermark is
       read, and the decision is made again with what nobody else can change now
    5. stream, until stopped, or until definitions take over at one LSN

Publications exist before the slot's first position, because pgoutput looks them up as of the
position it decodes. They are changed only when all filters and schemas have been accepted, or the
slot would lack changes that the old definitions take.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import psycopg

from gateway.config import Settings
from gateway.core.errors import TransientError
from gateway.core.failpoints import fail_point
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.records import Watermark
from gateway.definitions.combine import TableId
from gateway.definitions.ddl.alterations import PREFIXES as TOLD
from gateway.definitions.model import Definitions, Fault, Plan
from gateway.definitions.requests import new_partitions, oids_of
from gateway.definitions.server import SUFFIXES
from gateway.observe import Counters, event
from gateway.runtime.copy.jobs import CopyReport
from gateway.runtime.lifecycle.activation import begin, make_slot, put_into_force, take_requests
from gateway.runtime.lifecycle.leadership import lock_first_start, start_stream
from gateway.runtime.lifecycle.standby import DefinitionsChanged, Standby
from gateway.runtime.lifecycle.start_decision import Decision, Facts, GoOn, StartOver, decide, look
from gateway.runtime.lifecycle.streaming import Streaming
from gateway.runtime.loop.pipeline import Outcome
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.planning.held_retries import HeldLooks
from gateway.runtime.planning.lost_records import copied_again
from gateway.runtime.planning.lost_topics import forget_lost, hold_lost, unknown_ends
from gateway.runtime.planning.ownership import claim_topics
from gateway.runtime.planning.plan import PlanReader
from gateway.runtime.planning.routes import Outside
from gateway.runtime.planning.setup import (
    Setup,
    commit_claim,
    make_evaluator,
    make_sink,
    set_up,
    slot_identity,
    warn_of_risks,
)
from gateway.runtime.planning.untrusted_texts import believable, refused_requests
from gateway.sink.delivery.producer import Recovered, TransactionalSink
from gateway.sink.own_topics.progress import read_progress, read_systems
from gateway.sink.registry.registry import Registry
from gateway.source.catalog.partitions import partition_conditions
from gateway.source.filters.evaluator import ServerEvaluator
from gateway.source.provisioning.own_publications import check_publications, ensure_publications
from gateway.source.provisioning.privileges import why_unreadable
from gateway.source.session.connection import connect
from gateway.source.stream.connection import ReplicationConnection
from gateway.source.stream.server_position import server_position
from gateway.source.stream.slot import is_reading, slot_status

__all__ = ["Attempt"]

_LOG: Final = logging.getLogger(__name__)
_OPEN_TIMEOUT_S: Final = 60.0
_READ_S: Final = 30.0


@dataclass(slots=True)
class Attempt:
    """Runs once.

    Attributes:
        stopping: Asked often; True ends the attempt in good order.
        pause: Waits for so many seconds, or until `stopping` may have changed.
        reload: True once after a person asked for the definitions to be read anew.
        close_timeout_s: How long an open Kafka transaction may take at the end.
        time_is_up: Stopping has taken as long as it may.
        was_down: No attempt has streamed up to this one, but for one that failed: any time may have
            passed since.
        ask_server: Filters that the server evaluates may come up.
        standby: Says whether a failover would change what is published.
        lost: Topics that an attempt before has found to lack records.
        held_looks: Says when to look at what is held.
        stood_by: Another process had the slot at first.
        warned: Risks of topics that the log has named.
        definitions: Those in force, where a gateway has streamed; None: as the file has them.
        faults: Of tables that a copy could not read; they are held until definitions take over.
        streaming_since: When the loop began, in seconds of the monotonic clock; None: not yet.
    """

    settings: Settings
    counters: Counters
    report_copy: CopyReport
    endpos: Lsn | None
    stopping: Callable[[], bool]
    pause: Callable[[float], None]
    reload: Callable[[], bool]
    close_timeout_s: Callable[[], float]
    time_is_up: Callable[[], bool]
    standby: Standby
    held_looks: HeldLooks
    was_down: bool = True
    ask_server: bool = False
    lost: frozenset[str] = frozenset()
    stood_by: bool = False
    warned: frozenset[str] = frozenset()
    definitions: Definitions | None = None
    faults: Mapping[TableId, Fault] = field(default_factory=dict)
    streaming_since: float | None = None

    def run(self) -> Outcome:
        """Return why it ended.

        Raises:
            StoppedWaiting: `stopping` said so before the loop began.
            TransientError: what failed may pass; nothing was acknowledged that is not in Kafka.
            FatalError: a person must act.
        """
        settings = self.settings
        self.counters.enter("starting")
        with ExitStack() as stack:
            connection = stack.enter_context(
                connect(settings.source.dsn, on_wait=self._look_at_the_clock)
            )
            registry = Registry(settings.registry, on_wait=self._look_at_the_clock)
            stack.callback(registry.close)
            setup = set_up(settings, connection, registry, self.definitions, self.faults)
            self.warned |= warn_of_risks(setup.risks, self.warned)
            evaluator = self._evaluator()
            stack.callback(evaluator.close)
            outside = Outside(connection, registry, evaluator)
            made: Lsn | None = None
            if look(self._facts(setup, outside)) is not None:
                lock_first_start(connection, settings.source.slot)
                if (first_start := look(self._facts(setup, outside))) is not None:
                    made = self._make_slot(setup, outside, first_start.because)
            self.standby.begin(slot_identity(setup.facts, settings), setup.definitions.fingerprint)
            try:
                stream = start_stream(
                    connection,
                    settings.source.slot,
                    lambda: self._start(setup),
                    stopping=self.stopping,
                    pause=partial(self._stand_by, connection),
                    why_not=self.standby.why_not,
                )
            except DefinitionsChanged:
                self.definitions = None
                return Outcome.START_ANEW
            if stream is None:
                return Outcome.START_ANEW
            fail_point("start.slot_taken")
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
                registry,
                batch_bytes=setup.batch_bytes,
                on_away=self.counters.set_away,
            )
            # When Kafka is back from an outage, who has the slot decides whose turn it is.
            source = settings.source
            sink.resume_while(partial(is_reading, source.dsn, source.slot, stream.backend_pid))
            # The stream goes first: a server that is stopping does not wait for Kafka.
            stack.callback(lambda: sink.close(self.close_timeout_s()))
            stack.callback(receiver.close)
            with receiver.attended():
                recovered = sink.open(_OPEN_TIMEOUT_S, stopping=self.stopping)
                recovered = believable(connection, recovered, self.counters)
                if self.definitions is not None and _is_superseded(self.definitions, recovered):
                    self.definitions = None
                    self.standby.supersede()
                    return Outcome.START_ANEW
                if self.standby.refuses(recovered.watermark):
                    return Outcome.START_ANEW
                self.settings, setup, lost = hold_lost(
                    settings,
                    setup,
                    outside,
                    recovered,
                    self.lost,
                    self.faults,
                    was_down=self.was_down,
                )
                going_on = self._take_over(setup, outside, receiver, sink, made, recovered, lost)
                if going_on is not None:
                    going_on = self._take_requests(setup, outside, sink, recovered, going_on)
            if going_on is None:
                return Outcome.START_ANEW
            return self._go_on(setup, outside, receiver, sink, going_on, recovered)

    def _take_over(
        self,
        setup: Setup,
        outside: Outside,
        receiver: Receiver,
        sink: TransactionalSink,
        made: Lsn | None,
        recovered: Recovered,
        lost: Collection[str],
    ) -> GoOn | None:
        """Decide by the watermark, nobody else writing; None: the slot was given up, start anew.

        `lost`: topics whose tables are copied again.
        """
        if lost and recovered.watermark is not None:
            states = copied_again(recovered.watermark.copies, lost, setup.routing.topic_names)
            recovered = replace(recovered, watermark=replace(recovered.watermark, copies=states))
        # Before anything is written; again, as it may have been long since the first look.
        self._claim(setup, outside)
        sink.begin_after(unknown_ends(self.settings, setup, recovered), setup.topic_ids)
        # For the whole plan: what cannot be published is refused before anything is done.
        routes = outside.routes(setup.plan, setup.routing, ask_server=self.ask_server)
        routes.register_all()
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
        fingerprint = setup.definitions.fingerprint
        if made is not None and _is_claim(recovered.watermark):
            names = self.settings.topics.names
            first = Watermark(made, setup.facts.timeline, fingerprint, ())
            return GoOn(begin(setup.plan, names, first, routes, sink, self.stopping))
        decision = decide(self._facts(setup, outside, recovered))
        if not isinstance(decision, GoOn):
            self._start_over(setup, receiver, sink, decision)
            return None
        self._ensure_publications(outside.connection, setup.plan)
        if not (decision.rewritten or decision.altered or lost):
            return decision
        watermark = put_into_force(
            setup.plan,
            self.settings.topics.names,
            fingerprint,
            decision.watermark,
            routes,
            sink,
            reconcile=decision.rewritten,
            stopping=self.stopping,
        )
        if lost:
            forget_lost(self.settings, setup, outside.registry, recovered, lost)
            ends = unknown_ends(self.settings, setup, recovered, lost)
            sink.begin_after(ends, setup.topic_ids)
        return replace(decision, watermark=watermark)

    def _take_requests(
        self,
        setup: Setup,
        outside: Outside,
        sink: TransactionalSink,
        recovered: Recovered,
        going_on: GoOn,
    ) -> GoOn:
        """Let be copied what was asked for, and what came with new partitions."""
        found = new_partitions(setup.plan, going_on.watermark.copies)
        if not (found or recovered.requests):
            return going_on
        unfit = refused_requests(outside.connection, setup.plan, recovered.requests)
        conditions = partition_conditions(outside.connection, frozenset().union(*found.values()))
        watermark = take_requests(
            setup.plan,
            going_on.watermark,
            recovered.requests,
            conditions,
            why_unreadable(outside.connection, oids_of(setup.plan, recovered.requests)),
            sink,
            unfit=unfit,
            stopping=self.stopping,
        )
        return replace(going_on, watermark=watermark)

    def _go_on(
        self,
        setup: Setup,
        outside: Outside,
        receiver: Receiver,
        sink: TransactionalSink,
        going_on: GoOn,
        recovered: Recovered,
    ) -> Outcome:
        reader = PlanReader(
            self.settings,
            outside.connection,
            setup.definitions,
            setup.plan,
            going_on.watermark,
            before=setup.catalog,
            tells=setup.tells,
            since=going_on.confirmed_lsn or ZERO_LSN,
        )
        routes = outside.routes(
            setup.plan, setup.routing, reader=reader, ask_server=self.ask_server
        )
        streaming = Streaming(
            settings=self.settings,
            counters=self.counters,
            report_copy=self.report_copy,
            endpos=self.endpos,
            stopping=self.stopping,
            reload=self.reload,
            make_evaluator=self._evaluator,
            stream_plan=reader.stream_plan,
            unreadable=partial(why_unreadable, outside.connection),
            setup=setup,
            routes=routes,
            receiver=receiver,
            sink=sink,
            watermark=going_on.watermark,
            taken={request.name for request in recovered.requests},
            held_looks=self.held_looks,
        )
        self.streaming_since = time.monotonic()
        self.standby.lead()
        self.definitions = setup.definitions
        outcome = streaming.run(going_on)
        self.faults = {**self.faults, **streaming.faults}
        if (takeover := streaming.takeover) is not None:
            with receiver.attended():
                put_into_force(
                    reader.settle(takeover.plan, takeover.definitions, takeover.read_at),
                    takeover.routing.topic_names,
                    takeover.definitions.fingerprint,
                    streaming.watermark,
                    outside.routes(takeover.plan, takeover.routing),
                    sink,
                    reconcile=takeover.reconcile,
                    stopping=self.stopping,
                )
            self.definitions, self.faults = takeover.definitions, {}
        receiver.finish(self.close_timeout_s())
        return outcome

    def _evaluator(self) -> ServerEvaluator:
        counted = self.counters.count_evaluated
        return make_evaluator(self.settings, on_wait=self._look_at_the_clock, asked=counted)

    def _facts(self, setup: Setup, outside: Outside, recovered: Recovered | None = None) -> Facts:
        """Gather what a start is decided by; the server last, because it only moves forward.

        Args:
            setup: What the configuration means.
            outside: With the connection to the source server.
            recovered: What the sink has read, when it is open; None: look for it, and claim
                nothing.
        """
        source = self.settings.source
        fingerprint = setup.definitions.fingerprint
        slot = slot_status(outside.connection, source.slot)
        elsewhere: list[str] = []
        if recovered is None:
            kafka, topic = self.settings.kafka, self.settings.topics.progress
            identity = slot_identity(setup.facts, self.settings)
            recovered = read_progress(kafka, topic, identity, _READ_S, settled=False)
            if recovered.watermark is None and slot is not None:
                # Its claim may be in a Kafka transaction that is just being committed.
                recovered = read_progress(kafka, topic, identity, _READ_S)
            elif slot is None and recovered.watermark is not None:
                # Another gateway may have made it, and streamed, while Kafka was read.
                slot = slot_status(outside.connection, source.slot)
            elif recovered.watermark is None:
                elsewhere = read_systems(kafka, topic, identity, fingerprint, _READ_S)
        return Facts(
            name=source.slot,
            slot=slot,
            watermark=recovered.watermark,
            server=server_position(outside.connection, source.dsn, on_wait=self._look_at_the_clock),
            plan=setup.plan,
            definitions=fingerprint,
            policy=source.on_lost_slot,
            elsewhere=elsewhere,
            topic_names=self.settings.topics.names,
        )

    def _make_slot(self, setup: Setup, outside: Outside, because: str | None) -> Lsn:
        if because is not None:
            event(_LOG, logging.WARNING, "all tables are copied anew", because=because)
        outside.routes(setup.plan, setup.routing).register_all()
        self._claim(setup, outside)
        self._ensure_publications(outside.connection, setup.plan)
        sink = make_sink(self.settings, setup.facts, outside.registry)
        try:
            sink.open(_OPEN_TIMEOUT_S, stopping=self.stopping)
            commit_claim(sink, setup.facts.timeline, setup.definitions.fingerprint)
        finally:
            sink.close(self.close_timeout_s())
        fail_point("start.claimed")
        return make_slot(self.settings, setup.protocol, self._look_at_the_clock)

    def _claim(self, setup: Setup, outside: Outside) -> None:
        muted = setup.routing.muted
        names = [s.name for s in setup.plan.subscriptions if s.name not in muted]
        claim_topics(self.settings, outside.connection, setup.facts, outside.registry, names)

    def _start_over(
        self, setup: Setup, receiver: Receiver, sink: TransactionalSink, decision: Decision
    ) -> None:
        """Give up a slot that is proven to be ours; the next attempt makes it anew."""
        assert isinstance(decision, StartOver), "the slot is held, so it exists"
        name = self.settings.source.slot
        event(_LOG, logging.WARNING, "starting over", slot=name, because=decision.because)
        commit_claim(sink, setup.facts.timeline, setup.definitions.fingerprint)
        receiver.close()
        replication = ReplicationConnection(
            self.settings.source.dsn, on_wait=self._look_at_the_clock
        )
        try:
            replication.drop_slot(name, wait=True)
        finally:
            replication.close()

    def _start(self, setup: Setup) -> ReplicationConnection:
        source = ReplicationConnection(
            self.settings.source.dsn,
            receiver_timeout_s=self.settings.source.receiver_timeout_s,
            on_wait=self._look_at_the_clock,
        )
        try:
            return source.start(
                self.settings.source.slot,
                # All of them: what is still to be read may have been published by another one.
                [self.settings.source.slot + suffix for suffix in SUFFIXES],
                version=setup.protocol.version,
                streaming=setup.protocol.streaming,
                two_phase=setup.protocol.two_phase,
                binary=setup.protocol.binary,
                messages=setup.tells or bool(self.settings.messages.prefixes),
                prefixes=TOLD.union(self.settings.messages.prefixes),
            )
        except BaseException:
            source.close()
            raise

    def _look_at_the_clock(self) -> None:
        """Give up waiting for a server: at once when nothing streams yet, else when time is up.

        Raises:
            TransientError: the gateway is to stop.
        """
        if self.stopping() and (self.streaming_since is None or self.time_is_up()):
            raise TransientError("interrupted, because the gateway is stopping")

    def _stand_by(self, connection: psycopg.Connection, seconds: float) -> None:
        self.stood_by = True
        self.standby.wait(connection)
        self.counters.enter("standby")
        self.pause(seconds)

    def _ensure_publications(self, connection: psycopg.Connection, plan: Plan) -> None:
        prefix = self.settings.source.slot
        for line in ensure_publications(connection, plan, prefix=prefix):
            event(_LOG, logging.INFO, "publication", detail=line)
        for line in check_publications(connection, plan, prefix=prefix):
            # Only what takes away is left, when the role may not do it.
            event(
                _LOG,
                logging.WARNING,
                "a publication has more than is read",
                hint=f"let its owner run: {line}",
            )


def _is_superseded(definitions: Definitions, recovered: Recovered) -> bool:
    """Whether other definitions than these are in force by now: another gateway has led."""
    watermark = recovered.watermark
    return watermark is not None and watermark.definitions not in ("", definitions.fingerprint)


def _is_claim(watermark: Watermark | None) -> bool:
    return watermark is not None and watermark.end_lsn == ZERO_LSN
