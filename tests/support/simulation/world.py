"""A schedule: one seed decides the workload, the faults, and whose turn it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from gateway.core.errors import SlotError
from gateway.runtime.loop.pipeline import Outcome
from tests.support.simulation.checker import Checker, ContractViolation
from tests.support.simulation.gateway import Gateway
from tests.support.simulation.kafka import Kafka
from tests.support.simulation.server import Backup, Server

__all__ = ["FAULTS", "Schedule", "World", "shrunk"]

FAULTS: Final = (
    "kill",
    "freeze",
    "stop",
    "disconnect",
    "server crash",
    "server away",
    "kafka away",
    "kafka in doubt",
    "restore",
    "promote",
)
_GATEWAYS: Final = 2
_SETTLE: Final = 200
_SETTLE_STEPS: Final = 20


@dataclass(frozen=True, slots=True)
class Schedule:
    """Workload and faults of one run; the same schedule happens in the same way again.

    Attributes:
        steps: Number of steps until the faults end.
        faults: Kinds of faults that may happen, of `FAULTS`.
        series: Whether short transactions come in series, where the scanner is compiled.
    """

    seed: int
    steps: int = 120
    faults: tuple[str, ...] = FAULTS
    series: bool = True

    def run(self) -> World:
        """Run it; return the world at its end.

        Raises:
            ContractViolation: the gateway has broken its contract, or does not catch up.
        """
        world = World(self)
        try:
            world.run()
        except ContractViolation as violation:
            trace = "\n".join(world.trace[-40:])
            raise ContractViolation(f"{violation}\n{self}\n{trace}") from None
        finally:
            world.end()
        return world


class World:
    """Server, Kafka, gateways and time of one schedule.

    Attributes:
        trace: Events, a line for each step that is no gateway's turn.
        outcome: How it ended.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.series = schedule.series
        self._random = Random(f"{schedule.seed} schedule")
        self._workload = Random(f"{schedule.seed} workload")
        self._now = 1_000.0
        self.trace: list[str] = []
        self.outcome = ""
        self.checker = Checker()
        self.server = Server(Random(f"{schedule.seed} server"), self.checker.confirmed)
        self.kafka = Kafka(Random(f"{schedule.seed} kafka"), self.checker.committed)
        self.checker.server = self.server
        self._gateways: list[Gateway] = []
        self._frozen: dict[Gateway, int] = {}
        self._backup: Backup | None = None
        self._restored_before = False
        self._faults: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "stop": self._stop,
            "disconnect": self.server.disconnect,
            "server crash": self._crash,
            "server away": self._server_away,
            "kafka away": self._kafka_away,
            "kafka in doubt": self._kafka_in_doubt,
            "restore": lambda: self._restore(promote=False),
            "promote": lambda: self._restore(promote=True),
        }
        self._actions = [self._faults[name] for name in schedule.faults]
        self._names = {self._faults[name]: name for name in schedule.faults}

    def clock(self) -> float:
        """Return the time, which passes a little with each look at it."""
        self._now += 0.0005
        return self._now

    def idle(self) -> bool:
        """Let time pass for a gateway; return whether another one may have its turn."""
        self._now += 0.01
        return self._random.random() < 0.1

    def run(self) -> None:
        """Run the faults, then check that a gateway catches up."""
        for _ in range(self._schedule.steps):
            self._step()
            if self._refused():
                return
        self._catch_up()

    def end(self) -> None:
        """End all processes."""
        for gateway in self._gateways:
            gateway.kill()

    def _step(self) -> None:
        choice = self._random.random()
        if choice < 0.35:
            for _ in range(self._random.randrange(1, 6)):
                self.server.wal.write(self._workload, int(self._now * 1e6))
        elif choice < 0.4:
            for _ in range(self._random.randrange(1, 20)):
                self.server.wal.short_transaction(self._workload, int(self._now * 1e6))
        elif choice < 0.9 or not self._actions:
            self._turn()
        elif choice < 0.92:
            self.server.checkpoint()
        else:
            action = self._random.choice(self._actions)
            self._note(self._names[action])
            action()

    def _turn(self) -> None:
        """Give the turn to a gateway, of which there are two as far as they are not stopped."""
        self._gateways = [g for g in self._gateways if g.process.alive or g.refused]
        if len(self._gateways) < _GATEWAYS:
            self._gateways.append(Gateway(self))
            self._note("a gateway starts")
        for gateway in list(self._frozen):
            self._frozen[gateway] -= 1
            if self._frozen[gateway] <= 0:
                del self._frozen[gateway]
                self._note("a gateway goes on")
        free = [g for g in self._gateways if g not in self._frozen and g.process.alive]
        if free:
            self._random.choice(free).process.resume(self._random.randrange(1, 12))

    def _refused(self) -> bool:
        """Look at gateways that gave up; return whether a person must act now."""
        for gateway in list(self._gateways):
            if gateway.refused is None:
                continue
            error = gateway.refused
            self._gateways.remove(gateway)
            if not isinstance(error, SlotError) or not self._may_refuse():
                raise ContractViolation(f"a gateway gave up without need: {error}")
            self.outcome = "refused"
            return True
        return False

    def _may_refuse(self) -> bool:
        """Whether the server may lack what Kafka has, or the slot."""
        return self.checker.diverged or self._restored_before

    def _catch_up(self) -> None:
        """End the faults and the workload; a gateway must publish all there is, and end."""
        self._note("the faults end")
        self.server.down = self.kafka.down = False
        self.kafka.failing = 0.0
        self._frozen.clear()
        wal = self.server.wal
        while wal.running or wal.prepared:
            wal.write(self._workload, int(self._now * 1e6), finish=True)
        for gateway in self._gateways:
            gateway.stopping = True
        for _ in range(_SETTLE):
            living = [g for g in self._gateways if g.process.alive]
            if not living:
                break
            for gateway in living:
                gateway.process.resume(_SETTLE_STEPS)
        else:
            raise ContractViolation("a gateway that was asked to stop does not end")
        if self._refused():
            return
        last = Gateway(self, endpos=wal.end)
        self._gateways = [last]
        for _ in range(_SETTLE):
            last.process.resume(_SETTLE_STEPS)
            if not last.process.alive:
                break
        else:
            raise ContractViolation("the last gateway does not come to the end of the WAL")
        if self._refused():
            return
        if last.ended is not Outcome.REACHED_ENDPOS or not self.checker.is_complete():
            raise ContractViolation(f"not everything is in Kafka: {last.ended}")
        if self.checker.diverged:
            raise ContractViolation("a server with another history was not refused")
        self.outcome = "complete"

    def _someone(self) -> Gateway | None:
        living = [g for g in self._gateways if g.process.alive]
        return self._random.choice(living) if living else None

    def _kill(self) -> None:
        if (gateway := self._someone()) is not None:
            self._frozen.pop(gateway, None)
            gateway.kill()

    def _freeze(self) -> None:
        if (gateway := self._someone()) is not None:
            self._frozen[gateway] = self._random.randrange(2, 20)
            if self._random.random() < 0.7:
                gateway.cut_off()  # wal_sender_timeout, tcp_user_timeout

    def _stop(self) -> None:
        if (gateway := self._someone()) is not None:
            gateway.stopping = True

    def _crash(self) -> None:
        if self._random.random() < 0.5:
            self.server.checkpoint()
        self.server.crash()

    def _server_away(self) -> None:
        self.server.down = not self.server.down
        if self.server.down:
            self.server.crash()

    def _kafka_away(self) -> None:
        self.kafka.down = not self.kafka.down

    def _kafka_in_doubt(self) -> None:
        self.kafka.failing = 0.0 if self.kafka.failing else 0.3

    def _restore(self, *, promote: bool) -> None:
        if self._backup is None or self._random.random() < 0.5:
            self._backup = self.server.back_up()
            self._note("  (a backup is made)")
            return
        for gateway in self._gateways:
            gateway.kill()
        self._gateways, self._frozen = [], {}
        slot, since = self._backup.slot, self.checker.since
        self._restored_before |= (
            self._backup.wal.end < self.checker.watermark
            or self._backup.timeline < self.server.timeline
            or slot is None
            # A slot of before the one that Kafka knows sends what is not in Kafka.
            or (since is not None and slot.created_at < since)
        )
        self.server.restore(self._backup, promote=promote)
        self.checker.restored()

    def _note(self, what: str) -> None:
        self.trace.append(f"{self._now:10.3f} {what}; watermark {self.checker.watermark}")


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """Return a smaller schedule that fails, too: fewer kinds of faults, fewer steps."""
    for fault in schedule.faults:
        fewer = replace(schedule, faults=tuple(f for f in schedule.faults if f != fault))
        if fails(fewer):
            schedule = fewer
    shortest, longest = 1, schedule.steps
    while shortest < longest:
        middle = (shortest + longest) // 2
        if fails(replace(schedule, steps=middle)):
            longest = middle
        else:
            shortest = middle + 1
    return replace(schedule, steps=longest)
