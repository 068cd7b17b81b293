"""Liveness and readiness of the daemon. Pure.

A supervisor restarts a daemon that is not alive, so liveness covers only faults that a restart can
repair. An unreachable server is not one of them: the daemon retries by itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from gateway.core.watermark import Refusal
from gateway.observe import Figures

__all__ = [
    "doing",
    "has_started",
    "lag_problem",
    "lag_seconds",
    "muted",
    "refused",
    "takeover_refused",
    "why_not_alive",
    "why_not_ready",
]

_TURN_S: Final = 120.0
"""Seconds for which the loop may be blocked: a statement on the server may last 65 seconds."""
_SILENT: Final = 2.0
"""Multiple of the receiver timeout after which the daemon should have closed the stream itself."""


def why_not_alive(figures: Figures | None, now: float, unix_now: float) -> list[str]:
    """Return the reasons why the daemon is not alive; times as for `why_not_ready`."""
    return [] if figures is None else list(_stuck(figures, now, unix_now))


def _stuck(figures: Figures, now: float, unix_now: float) -> Iterator[str]:
    loop = figures.loop
    if figures.phase != "streaming":
        return
    if now - figures.at > _TURN_S:
        yield f"the loop has made no progress for {now - figures.at:.0f} s"
    elif loop is not None and loop.silent_for_s:
        silent = now - max(loop.heard_at, figures.phase_since)
        if silent > _SILENT * loop.silent_for_s:
            yield f"no message from the server for {silent:.0f} s"


def why_not_ready(
    figures: Figures | None, now: float, unix_now: float, max_lag_s: float = 0.0
) -> list[str]:
    """Return the reasons why the daemon neither streams nor stands by to take over.

    Args:
        figures: Figures posted by the loop.
        now: Current time on the monotonic clock.
        unix_now: Current time in seconds since 1970.
        max_lag_s: Maximum lag of a ready gateway, and maximum time without an answer from Kafka, in
            seconds; 0 for no limit.
    """
    if figures is None:
        return ["starting"]
    found = why_not_alive(figures, now, unix_now)
    if figures.phase not in ("streaming", "standby"):
        found.append(f"{figures.phase}: {figures.away}" if figures.away else figures.phase)
    lag = lag_problem(figures, unix_now, max_lag_s)
    if lag is not None:
        found.append(lag)
    elif figures.phase == "streaming" and _is_away_for(figures, unix_now, max_lag_s):
        found.append(figures.away)
    if figures.refusal is not None:
        found.append(refused(figures.refusal))
    if figures.takeover_refused:
        found.append(takeover_refused(figures.takeover_refused))
    return found


def _is_away_for(figures: Figures, unix_now: float, max_lag_s: float) -> bool:
    return bool(figures.away and max_lag_s) and unix_now - figures.away_since > max_lag_s


def has_started(figures: Figures | None) -> bool:
    """Whether the daemon streams or stands by, for a supervisor with a start timeout."""
    return figures is not None and figures.phase in ("streaming", "standby")


def doing(figures: Figures | None) -> str:
    """Return the phase and, while streaming, the number of copied tables, in a few words."""
    if figures is None:
        return "starting"
    if figures.phase != "streaming" or figures.loop is None:
        return figures.phase
    copies = figures.loop.copies
    copied = sum(copy.is_settled for copy in copies)
    if copied == len(copies):
        return "streaming, all tables copied"
    states = Counter(copy.state for copy in copies)
    parts = [f"streaming, {copied} of {len(copies)} tables copied"]
    parts += [f"{states[state]} {state}" for state in ("held", "missing") if states[state]]
    return ", ".join(parts)


def lag_problem(figures: Figures, unix_now: float, max_lag_s: float) -> str | None:
    """Return a notice of a lag above the limit, with the unreachable servers, or None."""
    lag = lag_seconds(figures, unix_now)
    if not max_lag_s or lag is None or lag <= max_lag_s:
        return None
    because = f": {figures.away}" if figures.away else ""
    return (
        f"{lag:.0f} s behind the source, {max_lag_s:g} s are allowed (monitor.max_lag_s){because}"
    )


def refused(refusal: Refusal) -> str:
    """Return the notice that changed definitions are refused; the same words everywhere."""
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(refusal.since_ms / 1000))
    return f"changed definitions are refused since {since}: {refusal.message}"


def takeover_refused(why: str) -> str:
    """Return the notice that a standby does not take over; the same words everywhere."""
    return f"this standby does not take over: {why}"


def muted(subscription: str, why: str) -> str:
    """Return the notice that nothing is published for a subscription; the same words everywhere."""
    return f"subscription {subscription} is held: {why}"


def lag_seconds(figures: Figures, unix_now: float) -> float | None:
    """Return how long the oldest change may have waited, in seconds; None if unknown.

    The time counts from the source's commit of the oldest waiting transaction; 0 if none waits.
    While nothing is received, it counts from the last known state. It is unknown for a standby.
    """
    loop = figures.loop
    if loop is None or figures.phase == "standby":
        return None
    since = loop.waiting_since
    if since is None:
        if figures.phase == "streaming":
            return 0.0
        since = loop.at
    return max(0.0, unix_now - since)
