"""Health and readiness of the job, by its latest signs of life."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from spark_consumer.observe.figures import Figures

__all__ = ["Pulse", "health", "readiness"]

_STALE_S: Final = 300.0
"""Seconds without activity after which a job is considered hung: a step takes less."""


class Pulse:
    """Heartbeat of the job's loop, which any thread may read.

    Attributes:
        at: Time of the loop's last round, in seconds of the monotonic clock.
    """

    def __init__(self) -> None:
        self.at = time.monotonic()

    def beat(self) -> None:
        """Record a round of the loop."""
        self.at = time.monotonic()

    @property
    def age(self) -> float:
        """Seconds since the loop's last round."""
        return time.monotonic() - self.at


def health(pulse: Pulse, subscriptions: Mapping[str, Figures]) -> str | None:
    """Return the reason for which the job must be restarted, or None while it is active."""
    seen = (figures.silence for figures in subscriptions.values())
    age = min([pulse.age, *(silence for silence in seen if silence is not None)])
    return f"nothing has been seen of the job for {age:.0f} s" if age > _STALE_S else None


def readiness(pulse: Pulse, subscriptions: Mapping[str, Figures]) -> str | None:
    """Return what keeps the job from being ready, or None while all subscriptions are read."""
    if (why := health(pulse, subscriptions)) is not None:
        return why
    for name, figures in subscriptions.items():
        if figures.held is not None:
            return f"subscription {name} is held: {figures.held}"
        if figures.silence is None:
            return f"subscription {name} is not read yet"
        if figures.silence > _STALE_S:
            return f"nothing has been seen of subscription {name} for {figures.silence:.0f} s"
    return None
