"""Counters of the daemon, maintained by the loop's thread and read by any other.

`Counters` belongs to the loop's thread alone. That thread periodically posts a copy, plain
`Figures`; all other threads read nothing else. Counting is per batch or per table, so that a row
costs nothing here.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, TypeAlias

from gateway.core.errors import AccessError, GatewayError
from gateway.core.watermark import CopyState, Refusal
from gateway.observe.moving import MovingTable

__all__ = ["Counters", "Figures", "Histogram", "LoopState", "Phase"]

Phase: TypeAlias = Literal["starting", "standby", "streaming", "retrying", "stopped"]

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_RECORDS: Final = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000)


class Histogram:
    """Distribution of values over ranges.

    Attributes:
        bounds: Upper bounds of the ranges, ascending; one more range has none.
        counts: Number of values, by range.
        total: Sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(
        self, bounds: Sequence[float], counts: Sequence[int] = (), total: float = 0.0
    ) -> None:
        self.bounds = tuple(bounds)
        self.counts = list(counts) or [0] * (len(self.bounds) + 1)
        self.total = total

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def __copy__(self) -> Histogram:
        """Return an independent copy."""
        return Histogram(self.bounds, self.counts, self.total)


@dataclass(frozen=True, slots=True)
class LoopState:
    """State of the loop.

    Attributes:
        at: Time of this state, in seconds since 1970.
        waiting_since: Commit time at the source of the oldest received transaction that is not in
            Kafka yet, in seconds since 1970; None if there is none.
        heard_at: Time of the last message from the server, in seconds of the monotonic clock.
        last_change: Commit time at the source of the last transaction in Kafka that changed rows,
            in seconds since 1970; None if unknown.
        silent_for_s: Maximum silence before the connection is given up, in seconds; 0 for no limit.
        buffers: Bytes in memory, by purpose.
        spools: Bytes on disk, by purpose.
        copies: Copy states of all tables, as committed with the next watermark.
    """

    at: float
    durable_lsn: int
    waiting_since: float | None
    waiting_transactions: int
    heard_at: float
    silent_for_s: float
    buffers: Mapping[str, int]
    spools: Mapping[str, int]
    copies: Sequence[CopyState]
    last_change: float | None = None


@dataclass(slots=True)
class Figures:
    """Everything that is counted; a posted copy is never changed.

    Attributes:
        at: Time of posting, in seconds of the monotonic clock.
        phase_since: Start of the phase, likewise.
        loop: State of the loop; None before the first loop has started.
        moved_rows: Number of rows that were read because they enter or leave a subscription, by
            subscription and table.
        moving: Tables whose rows do so now; the sequence is replaced, never changed.
        evaluated_rows: Number of rows whose row filter a server evaluated.
        lost_values: Number of rows sent with NULL for a value that was not in the stream.
        passed_over: Number of records of the progress topic that were skipped, because no gateway
            had written them.
        quarantined: Number of records for the error topic, by table and kind.
        ignored: Number of DDL messages that were rejected, by reason.
        errors: Number of attempts that ended with an error, by its class.
        rows: Number of rows in Kafka, by subscription, table and operation.
        filtered: Number of changes that were not published to a subscription, by subscription and
            table.
        changed_at: Time when changes of a table were last counted, in seconds since 1970, by
            subscription and table.
        committed_at: Time of the last commit in Kafka, in seconds since 1970; 0 before the first.
        owner: System identifier, database and slot as which this gateway has streamed; None before.
        estimates: Estimated number of rows of a copy, by subscription and table.
        filters: Evaluator of the filters, by subscription and table; the mapping is replaced, never
            changed.
        refusal: Refusal of changed definitions; another thread may set it.
        away: Unreachable servers, with reasons; empty if there are none.
        away_since: Start of the outage, in seconds since 1970; 0 if there is none.
        denied: Message and hint of a refused access; None if none is refused.
        takeover_refused: Reason why this standby does not take over; empty if it does.
        muted: Reasons for which nothing is published, by subscription; the mapping is replaced,
            never changed.
        commit_seconds: Seconds from handing a batch to the sink until its commit.
        commit_records: Number of records in a Kafka transaction.
    """

    at: float = 0.0
    phase: Phase = "starting"
    phase_since: float = field(default_factory=time.monotonic)
    loop: LoopState | None = None
    frames: int = 0
    transactions: int = 0
    records: int = 0
    copied_rows: int = 0
    moved_rows: dict[tuple[str, str], int] = field(default_factory=dict)
    moving: Sequence[MovingTable] = ()
    evaluated_rows: int = 0
    lost_values: int = 0
    passed_over: int = 0
    quarantined: dict[tuple[str, str], int] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)
    rows: dict[tuple[str, str, str], int] = field(default_factory=dict)
    filtered: dict[tuple[str, str], int] = field(default_factory=dict)
    changed_at: dict[tuple[str, str], float] = field(default_factory=dict)
    committed_at: float = 0.0
    owner: tuple[str, str, str] | None = None
    estimates: dict[tuple[str, str], int] = field(default_factory=dict)
    filters: Mapping[tuple[str, str], str] = field(default_factory=dict)
    refusal: Refusal | None = None
    away: str = ""
    away_since: float = 0.0
    denied: tuple[str, str] | None = None
    takeover_refused: str = ""
    muted: Mapping[str, str] = field(default_factory=dict)
    commit_seconds: Histogram = field(default_factory=lambda: Histogram(_SECONDS))
    commit_records: Histogram = field(default_factory=lambda: Histogram(_RECORDS))


@dataclass(slots=True)
class Counters(Figures):
    """Figures since the start of the process, as the loop's thread counts them.

    Attributes:
        durable_lsn: Watermark committed in Kafka.
        posted: Latest copy; the only attribute that other threads may read.
    """

    durable_lsn: int = 0
    posted: Figures | None = None
    _outage: tuple[str, float] = ("", 0.0)

    def enter(self, phase: Phase) -> None:
        """Enter a phase and post the change."""
        if phase != self.phase:
            self.phase, self.phase_since = phase, time.monotonic()
        self.post()

    def count_evaluated(self, rows: int) -> None:
        """Count rows whose filter a server evaluates."""
        self.evaluated_rows += rows

    def set_away(self, why: str) -> None:
        """Record an outage and its reason, or its end if `why` is empty. Thread-safe."""
        self._outage = (why, self._outage[1] or time.time()) if why else ("", 0.0)

    def set_denied(self, error: GatewayError | None) -> None:
        """Record a refused access; any other error, or None, clears it."""
        denied = error if isinstance(error, AccessError) else None
        self.denied = None if denied is None else (denied.message, denied.hint or "")

    def count_error(self, error: Exception) -> None:
        """Count the error that ended an attempt."""
        kind = type(error).__name__
        self.errors[kind] = self.errors.get(kind, 0) + 1

    def post(self, loop: LoopState | None = None) -> None:
        """Publish the current values to other threads; `loop` is None if it has not changed."""
        self.at = time.monotonic()
        self.loop = loop or self.loop
        self.away, self.away_since = self._outage  # read once: another thread may set it
        self.posted = Figures(**{each: _copied(getattr(self, each)) for each in _FIGURES})


_FIGURES: Final = tuple(each.name for each in fields(Figures))


def _copied(value: Any) -> Any:
    """Copy what the loop's thread changes in place."""
    return copy(value) if isinstance(value, dict | Histogram) else value
