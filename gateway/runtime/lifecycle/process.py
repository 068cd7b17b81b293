"""State of a process that its attempts share, and state carried from one to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gateway.config import Settings
from gateway.core.errors import GatewayError, HiddenMarkersError
from gateway.core.lsn import Lsn
from gateway.definitions.model import Definitions, Fault, TableId
from gateway.observe import Counters, OnBatch
from gateway.runtime.copy.jobs import CopyReport
from gateway.runtime.lifecycle.standby import Standby
from gateway.runtime.planning.hidden_markers import WhyHidden, reasons_of
from gateway.runtime.planning.setup import make_evaluator
from gateway.runtime.reload.held_retries import HeldLooks
from gateway.source.filters.evaluator import ServerEvaluator
from gateway.source.provisioning.lost_members import MembersWatch

__all__ = ["Carried", "Process"]


@dataclass(frozen=True, slots=True)
class Process:
    """Shared by all attempts.

    Attributes:
        endpos: As in `gateway.runtime.loop.stream_position.Ends`.
        stopping: Called often; True ends the attempt in good order.
        pause: Waits for a number of seconds, or until `stopping` may have changed.
        reload: Returns True once after a request to read the definitions again.
        report_copy: Called with the progress of each copy.
        close_timeout_s: Returns the seconds that an open Kafka transaction may take at the end.
        time_is_up: Returns whether the shutdown timeout has passed.
        standby: Comparison of what this gateway would publish with what is published.
        held_looks: Schedule of retries of held tables.
        members: Watch of the gateway's own publications.
        on_batch: As in `gateway.runtime.loop.pipeline.Pipeline`.
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
    members: MembersWatch
    on_batch: OnBatch | None

    def evaluator(self, on_wait: Callable[[], None]) -> ServerEvaluator:
        """Return an evaluator of row filters, not yet open, whose rows are counted."""
        asked = self.counters.count_evaluated
        return make_evaluator(self.settings, on_wait=on_wait, asked=asked)


@dataclass(slots=True)
class Carried:
    """State that an attempt leaves to the next one.

    Attributes:
        was_down: Whether time may have passed since the last stream: none has run yet, or it
            failed.
        has_streamed: Whether a stream has run in this process.
        ask_server: Whether filters that the server evaluates may appear.
        hidden: Subscriptions whose markers could not be read in time, and why. Attempts do without
            them until a reload has looked again, or another gateway has led.
        lost: Topics that lack records, whose tables are not being copied yet.
        warned: Risks of topics that have been logged.
        definitions: Definitions in force, once a gateway has streamed; None for those of the file,
            also when another gateway has put others into force.
        faults: Faults of tables that a copy could not read, or of which changes are missing; they
            are held until other definitions come into force.
        broken_sets: OIDs of tables of sub-selects whose sets are built again.
    """

    was_down: bool = True
    has_streamed: bool = False
    ask_server: bool = False
    hidden: Mapping[str, WhyHidden] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    warned: frozenset[str] = frozenset()
    definitions: Definitions | None = None
    faults: Mapping[TableId, Fault] = field(default_factory=dict)
    broken_sets: frozenset[int] = frozenset()

    def note_hidden(self, error: GatewayError) -> None:
        """Note which subscriptions the next attempt does without, after the error of this one.

        They add up, since two may be hidden in turns, until an attempt that had to read the markers
        of all fails for no other one: those that it has read are not hidden any more.
        """
        if isinstance(error, HiddenMarkersError):
            new = reasons_of(error)
            self.hidden = new if new.keys() <= self.hidden.keys() else {**self.hidden, **new}

    def pop_broken_sets(self) -> frozenset[int]:
        """Return the tables whose sets are built again, once."""
        found, self.broken_sets = self.broken_sets, frozenset()
        return found
