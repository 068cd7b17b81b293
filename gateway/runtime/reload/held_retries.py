"""Schedule of retries of held tables, at growing intervals that last over attempts.

A table held for a reason that only a copy has shown is copied again, which ends an attempt when it
fails once more. Intervals that began again with each attempt would copy it for ever.
"""

from __future__ import annotations

from typing import Final

__all__ = ["HeldLooks"]

_FIRST: Final = 4
"""Number of looks at the catalog before the first retry."""
_ALIVE_S: Final = 30.0
_MOST_S: Final = 600.0


class HeldLooks:
    """Schedule of retries; lasts as long as the daemon.

    Args:
        interval_s: ``definitions.watch_interval_s``.
    """

    def __init__(self, interval_s: float) -> None:
        self._first_s = _FIRST * (interval_s or _ALIVE_S)
        self._pause_s = self._first_s
        self._next: float | None = None

    def due(self, now: float, *, held: bool, settled: bool) -> bool:
        """Whether held tables are to be retried now.

        Args:
            now: Seconds of the monotonic clock.
            held: Whether a table or a subscription is held, or definitions are refused.
            settled: Whether all tables are copied, so that none is about to be held.
        """
        if not held:
            if settled:
                self._pause_s, self._next = self._first_s, None
            return False
        if self._next is None:
            self._next = now + self._pause_s
        if now < self._next:
            return False
        self._pause_s = min(2 * self._pause_s, _MOST_S)
        self._next = now + self._pause_s
        return True
