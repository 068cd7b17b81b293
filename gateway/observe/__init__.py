"""Observability of the daemon: log events with fields, and counters that other threads may read."""

from gateway.observe.batch_times import BatchTimes, OnBatch
from gateway.observe.counters import Counters, Figures, Histogram, LoopState, Phase
from gateway.observe.logs import (
    LogFormat,
    event,
    report_ignored,
    report_quarantined,
    set_up_logging,
)
from gateway.observe.recent_errors import RecentError, RecentErrors

__all__ = [
    "BatchTimes",
    "Counters",
    "Figures",
    "Histogram",
    "LogFormat",
    "LoopState",
    "OnBatch",
    "Phase",
    "RecentError",
    "RecentErrors",
    "event",
    "report_ignored",
    "report_quarantined",
    "set_up_logging",
]
