"""A gateway's process: attempts as `gateway.runtime.lifecycle.attempt` makes them, on the world.

The steps and their order are those of an attempt; what it asks PostgreSQL and Kafka is asked of the
simulated ones, and each step may be the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gateway.config import LimitsTable
from gateway.core.errors import FatalError, SlotBusyError, TransientError
from gateway.core.lsn import ZERO_LSN, Lsn
from gateway.core.watermark import Watermark
from gateway.definitions.model import Plan
from gateway.observe import Counters
from gateway.runtime.lifecycle.start_decision import Facts, GoOn, StartOver, decide, look
from gateway.runtime.loop.pipeline import Outcome, Pipeline
from gateway.runtime.loop.receiver import Receiver
from gateway.runtime.loop.stream_position import Ends
from gateway.transactions import Assembler
from tests.support.simulation.kafka import SimulatedSink
from tests.support.simulation.process import Process
from tests.support.simulation.router import SUBSCRIPTION, PlainRouter
from tests.support.simulation.server import SLOT, Session, Stream

if TYPE_CHECKING:
    from tests.support.simulation.world import World

__all__ = ["Gateway"]

_DEFINITIONS: Final = "f"
_LIMITS: Final = LimitsTable(max_batch_records=8)
_PLAN: Final = Plan({}, (), (), (), ())


class Gateway:
    """One gateway.

    Attributes:
        stopping: Whether it was asked to stop.
        ended: Outcome, once it has ended in good order.
        refused: Error for which it gave up, or None.
    """

    def __init__(self, world: World, *, endpos: int | None = None) -> None:
        self._world = world
        self._endpos = None if endpos is None else Lsn(endpos)
        self.stopping = False
        self.ended: Outcome | None = None
        self.refused: FatalError | None = None
        self._stream: Stream | None = None
        self._session: Session | None = None
        self.process = Process(self._run)

    @property
    def streams(self) -> bool:
        """Whether the slot is its own now."""
        return self._stream is not None and not self._stream.gone

    def kill(self) -> None:
        """Kill -9: PostgreSQL sees the connections end, Kafka sees nothing."""
        self.process.kill()
        self.cut_off()

    def cut_off(self) -> None:
        """End its connections to PostgreSQL, as time-outs do."""
        if self._stream is not None and self._world.server.stream is self._stream:
            self._world.server.disconnect()
        if self._session is not None:
            self._session.close()

    def _run(self, process: Process) -> None:
        while self.ended is None and not self.stopping:
            try:
                self.ended = self._attempt(process)
                self._close()
            except TransientError:
                self._close()
                process.pause()
            except FatalError as error:
                self._close()
                self.refused = error
                return

    def _close(self) -> None:
        """End the connections of an attempt that has ended."""
        self.process.check()
        if self._stream is not None:
            self._stream.close()
        if self._session is not None:
            self._session.close()

    def _attempt(self, process: Process) -> Outcome | None:
        """Make one attempt; None to start again."""
        server = self._world.server
        session = self._session = Session(server)
        made_at: Lsn | None = None
        if look(self._facts(process, session)) is not None:
            session.lock_first_start()
            process.pause()
            facts = self._facts(process, session)
            if look(facts) is not None:
                made_at = self._first_start(process, facts.watermark)
        while True:
            process.pause()
            if self.stopping:
                return Outcome.STOPPED
            status = session.slot_status()
            if status is None:
                return None
            if not status.active:
                break
        self._stream = stream = server.start()
        process.pause()
        sink = SimulatedSink(self._world.kafka, process.check)
        watermark = sink.open()
        process.pause()
        going_on = self._begin(process, session, sink, watermark, made_at)
        return None if going_on is None else self._loop(process, stream, sink, going_on)

    def _begin(
        self,
        process: Process,
        session: Session,
        sink: SimulatedSink,
        watermark: Watermark | None,
        made_at: Lsn | None,
    ) -> GoOn | None:
        """Decide by the committed watermark, with the slot; None to start again."""
        stream = self._stream
        assert stream is not None
        timeline = session.position().timeline
        facts = self._facts(process, session, watermark, fenced=True)
        if stream.gone:  # which pg_replication_slots says at the same time
            raise TransientError("the slot was lost during the start")
        assert facts.slot is not None
        is_new = made_at == facts.slot.confirmed_flush_lsn
        if made_at is not None and is_new and watermark and watermark.end_lsn == ZERO_LSN:
            first = Watermark(made_at, timeline, _DEFINITIONS, ())
            self._commit(process, sink, first)
            return GoOn(first)
        decision = decide(facts)
        if isinstance(decision, GoOn):
            return decision
        assert isinstance(decision, StartOver)
        session.lock_first_start()
        process.pause()
        self._commit(process, sink, Watermark(ZERO_LSN, timeline, _DEFINITIONS, ()))
        stream.close()
        process.pause()
        while self._world.server.stream is not None:
            process.pause()
        session.drop_slot()
        return None

    def _facts(
        self,
        process: Process,
        session: Session,
        recovered: Watermark | None = None,
        *,
        fenced: bool = False,
    ) -> Facts:
        """Gather facts in the order of `SlotStart.facts`."""
        kafka = self._world.kafka
        slot = session.slot_status()
        if fenced:
            return Facts(SLOT, slot, recovered, session.position(), _PLAN, _DEFINITIONS)
        if not fenced:
            process.pause()
            kafka.ask()
            recovered = kafka.watermark
            if slot is None and recovered is not None:
                process.pause()
                slot = session.slot_status()
        process.pause()
        return Facts(SLOT, slot, recovered, session.position(), _PLAN, _DEFINITIONS)

    def _first_start(self, process: Process, seen: Watermark | None) -> Lsn:
        server = self._world.server
        sink = SimulatedSink(self._world.kafka, process.check)
        if sink.open() != seen:
            raise SlotBusyError("another gateway has written")
        process.pause()
        claim = Watermark(ZERO_LSN, server.position().timeline, _DEFINITIONS, ())
        self._commit(process, sink, claim)
        return server.create_slot()

    def _commit(self, process: Process, sink: SimulatedSink, watermark: Watermark) -> None:
        sink.commit(watermark)
        process.pause()

    def _loop(
        self, process: Process, stream: Stream, sink: SimulatedSink, going_on: GoOn
    ) -> Outcome:
        world = self._world
        receiver = Receiver(_Turns(stream, process, world.idle), clock=world.clock)
        pipeline = Pipeline(
            receiver,
            sink,
            Assembler(
                version=4,
                max_buffer_bytes=_LIMITS.max_buffer_bytes,
                series=world.series,
            ),
            PlainRouter(),
            going_on.watermark,
            [SUBSCRIPTION],
            _LIMITS,
            Counters(),
            ends=Ends(self._endpos, lambda: self.stopping),
            confirmed_lsn=going_on.confirmed_lsn,
            clock=world.clock,
        )
        outcome = pipeline.run()
        receiver.finish(1.0)
        return outcome


class _Turns:
    """A stream whose reader may lose its turn at each call.

    Args:
        idle: Called when there is nothing to read: time passes.
    """

    silent_for_s = 0.0

    def __init__(self, stream: Stream, process: Process, idle: Callable[[], bool]) -> None:
        self._stream = stream
        self._process = process
        self._idle = idle

    def fileno(self) -> int:
        return self._stream.fileno()

    def receive(self, limit: int) -> Sequence[bytes]:
        self._process.check()
        frames = self._stream.receive(limit)
        if self._idle() or not frames:
            self._process.pause()
        return frames

    def send_feedback(
        self, flush_lsn: Lsn, *, write_lsn: Lsn | None = None, reply_requested: bool = False
    ) -> None:
        self._process.check()
        self._stream.send_feedback(flush_lsn, reply_requested=reply_requested)

    def finish(self, timeout_s: float) -> bool:
        self._process.check()
        return self._stream.finish(timeout_s)

    def close(self) -> None:
        self._process.check()
        self._stream.close()
