"""Deadline of the sink's calls to Kafka, with timers for probes and log reminders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["Deadline"]

_PROBE_INTERVAL_S: Final = 3.0
_REMINDER_S: Final = 30.0


class Deadline:
    """Total timeout of the calls since `start`; not thread-safe.

    Args:
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = 0.0
        self._probe_at = 0.0
        self._remind_at = 0.0
        self._reminded = False

    def start(self, seconds: float) -> None:
        """Start a timeout of `seconds`, shared by the following calls."""
        now = self._clock()
        self._at, self._remind_at, self._reminded = now + seconds, now + _REMINDER_S, False
        self._probe_at = now + _PROBE_INTERVAL_S

    @property
    def remaining_s(self) -> float:
        """Seconds left; negative once the deadline has passed."""
        return self._at - self._clock()

    def pop_probe(self) -> bool:
        """Return whether a probe of Kafka is due; if so, the next time is set."""
        if self._clock() < self._probe_at:
            return False
        self._probe_at = self._clock() + _PROBE_INTERVAL_S
        return True

    def remind_now(self) -> None:
        """Make the first reminder due."""
        if not self._reminded:
            self._remind_at = self._clock()

    def pop_reminder(self) -> bool:
        """Return whether it is time to report the wait; if so, the next time is set."""
        if self._clock() < self._remind_at:
            return False
        self._remind_at, self._reminded = self._clock() + _REMINDER_S, True
        return True
