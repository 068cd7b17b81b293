"""The simulated Kafka: a log that ``read_committed`` shows, one transactional id, and its sinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from gateway.core.errors import FencedError, TransientError
from gateway.core.records import Batch, Record
from gateway.core.watermark import Watermark
from tests.support.simulation.server import ALWAYS_READABLE

__all__ = ["Kafka", "SimulatedSink"]


@dataclass
class Kafka:
    """A cluster that answers late, not at all, or with a time-out after it has committed.

    Args:
        random: Decides when it answers, and how a failed commit ended.
        on_commit: Called with the batches of each Kafka transaction as they become visible.

    Attributes:
        epoch: Epoch of the transactional id; producers of earlier ones are fenced.
        watermark: The committed watermark.
    """

    random: Random
    on_commit: Callable[[Sequence[Batch]], None]
    epoch: int = 0
    watermark: Watermark | None = None
    down: bool = False
    failing: float = 0.0
    commits: int = 0
    open: list[Batch] = field(default_factory=list)

    def ask(self) -> None:
        """Answer a request.

        Raises:
            TransientError: the cluster is away.
        """
        if self.down:
            raise TransientError("the simulated Kafka is away")

    def commit(self, batches: Sequence[Batch]) -> None:
        """Make a Kafka transaction visible."""
        self.commits += 1
        self.watermark = batches[-1].watermark
        self.on_commit(batches)


class SimulatedSink:
    """`gateway.runtime.ports.Sink` on one simulated producer.

    Args:
        survives: Called before each effect; raises if the process is dead.
    """

    def __init__(self, kafka: Kafka, survives: Callable[[], None]) -> None:
        self._kafka = kafka
        self._survives = survives
        self._epoch = 0
        self._batches: list[Batch] = []
        self._current: Batch | None = None

    def open(self) -> Watermark | None:
        """Fence every predecessor; return the committed watermark."""
        self._survives()
        self._kafka.ask()
        self._kafka.epoch += 1
        self._epoch = self._kafka.epoch
        return self._kafka.watermark

    def commit(self, watermark: Watermark) -> None:
        """Commit a watermark without records."""
        self.submit(Batch([], watermark))
        while self.collect() is None:
            pass

    def fileno(self) -> int:
        return ALWAYS_READABLE

    @property
    def busy(self) -> bool:
        return self._current is not None

    def submit(self, batch: Batch) -> None:
        assert self._current is None
        self._survives()
        self._current = batch

    def collect(self) -> Batch | None:
        self._survives()
        batch, kafka = self._current, self._kafka
        if batch is None:
            return None
        if kafka.epoch != self._epoch:
            raise FencedError("the simulated producer is fenced")
        if kafka.random.random() < 0.4 and not kafka.down:
            return None
        fails = kafka.down or kafka.random.random() < kafka.failing
        self._batches.append(batch)
        if batch.watermark is not None and not (fails and kafka.random.random() < 0.5):
            kafka.commit(self._batches)
            self._batches = []
        if fails:
            raise TransientError("the simulated Kafka timed out")
        self._current = None
        return batch

    def records(self) -> list[Record]:
        """Return the records of the open Kafka transaction."""
        return [record for batch in self._batches for record in batch.records]
