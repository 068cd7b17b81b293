"""Figures and statuses for the tests of what is shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.copy import Progress
from gateway.core.lsn import Lsn
from gateway.core.watermark import CopyState
from gateway.monitor.status import Status, tables_of
from gateway.observe import Counters, Figures, LoopState, Phase
from gateway.source.stream.slot import SlotStatus

SLOT = SlotStatus(
    name="s",
    plugin="pgoutput",
    database="shop",
    temporary=False,
    active_pid=7,
    confirmed_flush_lsn=Lsn(900),
    restart_lsn=Lsn(800),
    wal_status="reserved",
    safe_wal_bytes=None,
    invalidation_reason=None,
    two_phase=False,
)
COPIES = (
    CopyState(
        "nsw", "public", "t", "ready", Lsn(1), progress=Progress((), True, rows=10), published=7
    ),
    CopyState(
        "nsw", "public", "u", "copying", progress=Progress((b"1",), False, rows=4), published=2
    ),
)


def loop_state(**changes: Any) -> LoopState:
    state = LoopState(
        at=1_000.0,
        durable_lsn=900,
        waiting_since=None,
        waiting_transactions=0,
        heard_at=50.0,
        silent_for_s=60.0,
        buffers={"open": 1, "waiting": 2, "batch": 3},
        spools={"open": 4, "intake": 5},
        copies=COPIES,
    )
    return replace(state, **changes)


def figures(*, phase: Phase = "streaming", at: float = 50.0, **changes: Any) -> Figures:
    """As posted by a loop in `phase` at second `at` of the monotonic clock."""
    counters = Counters()
    counters.rows["nsw", "public.t", "insert"] = 3
    counters.filtered["nsw", "public.t"] = 2
    counters.estimates["nsw", "public.u"] = 9
    counters.commit_seconds.add(0.004)
    counters.commit_records.add(40)
    counters.enter(phase)
    counters.post(loop_state())
    assert counters.posted is not None
    return replace(counters.posted, **{"at": at, "phase_since": at, **changes})


def status(**changes: Any) -> Status:
    """Of slot `SLOT`, changed by `changes`."""
    tables = tables_of(COPIES[:1], lambda _: None)
    return Status("s", replace(SLOT, **changes), Lsn(1000), Lsn(900), tables)
