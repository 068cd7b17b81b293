"""State of a process: shared by its attempts, and carried from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.config import Settings
from gateway.core.errors import TransientError
from gateway.core.lsn import Lsn
from gateway.definitions.combine import TableId
from gateway.definitions.model import Definitions, Fault
from gateway.observe import Counters
from gateway.runtime.copy.jobs import CopyReport
from gateway.runtime.lifecycle.standby import Standby
from gateway.runtime.planning.held_retries import HeldLooks
from gateway.runtime.planning.setup import make_evaluator
from gateway.source.filters.evaluator import ServerEvaluator

__all__ = ["Carried", "Process"]


@dataclass(frozen=True, slots=True)
class Process:
    """Shared by all attempts.

    Attributes:
        endpos: As in `gateway.runtime.loop.pipeline.Pipeline`.
        stopping: Asked often; True ends the attempt in good order.
        pause: Waits for so many seconds, or until `stopping` may have changed.
        reload: True once after a person asked for the definitions to be read again.
        report_copy: Called with the progress of each copy.
        close_timeout_s: How long an open Kafka transaction may take at the end.
        time_is_up: Whether stopping has taken as long as it may.
        standby: Says whether a failover would change what is published.
        held_looks: Says when to look at held tables.
    """

    settings: Settings
    counters: Counters
    endpos: Lsn | None
    stopping: Callable[[], bool]
    pause: Callable[[float], None]
    reload: Callable[[], bool]
    report_copy: CopyReport
    close_timeout_s: Callable[[], float]
    time_is_up: Callable[[], bool]
    standby: Standby
    held_looks: HeldLooks

    def give_up_waiting(self, *, streaming: bool) -> None:
        """Give up waiting for a server: at once when nothing streams yet, else when time is up.

        Raises:
            TransientError: the gateway is to stop.
        """
        if self.stopping() and (not streaming or self.time_is_up()):
            raise TransientError("interrupted, because the gateway is stopping")

    def evaluator(self, on_wait: Callable[[], None]) -> ServerEvaluator:
        """Return an evaluator of row filters whose questions are counted; not open."""
        asked = self.counters.count_evaluated
        return make_evaluator(self.settings, on_wait=on_wait, asked=asked)


@dataclass(slots=True)
class Carried:
    """Left by an attempt to the next one.

    Attributes:
        was_down: No attempt has streamed up to the next one, or it failed: any time may have
            passed since.
        ask_server: Filters that the server evaluates may appear.
        lost: Topics that were found to lack records, and whose tables are not being copied yet.
        warned: Risks of topics that the log has named.
        definitions: Those in force, where a gateway has streamed; None: as the file has them.
        faults: Of tables that a copy could not read; they are held until definitions take over.
    """

    was_down: bool = True
    ask_server: bool = False
    lost: frozenset[str] = frozenset()
    warned: frozenset[str] = frozenset()
    definitions: Definitions | None = None
    faults: Mapping[TableId, Fault] = field(default_factory=dict)
