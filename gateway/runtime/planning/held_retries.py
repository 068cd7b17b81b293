"""Times at which held tables are looked at again: ever more rarely, from one attempt to the next.

What is held for a reason that only a copy has shown is copied again for that, which ends an attempt
when it fails once more. Times that began again with each attempt would copy it for ever.
"""

from __future__ import annotations

from typing import Final

__all__ = ["HeldLooks"]

_FIRST: Final = 4
"""Looks at the catalog before the first look at what is held."""
_ALIVE_S: Final = 30.0
_MOST_S: Final = 600.0


class HeldLooks:
    """Lasts as long as the daemon.

    Args:
        interval_s: ``definitions.watch_interval_s``.
    """

    def __init__(self, interval_s: float) -> None:
        self._first_s = _FIRST * (interval_s or _ALIVE_S)
        self._pause_s = self._first_s
        self._next: float | None = None

    def due(self, now: float, *, held: bool, settled: bool) -> bool:
        """Whether what is held is to be looked at now, in seconds of the monotonic clock.

        Args:
            now: Seconds.
            held: Something is held, or refused.
            settled: All tables are copied, so that nothing is held as far as that is known.
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
