"""Pauses between reads of one table, which its owner can make necessary in a loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable
from typing import Final

__all__ = ["Pauses"]

LONGEST_S: Final = 60.0


class Pauses:
    """Pause of each table until it is read once more; nobody waits for that of another table.

    It doubles each time that a read follows the last one soon, for as long as that goes on.

    Args:
        first_s: Shortest pause, in seconds.
        clock: Seconds, monotonic.
    """

    def __init__(self, first_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._first_s = first_s
        self._clock = clock
        self._last: dict[Hashable, tuple[float, float]] = {}  # when, and the pause since then

    def is_over(self, table: Hashable) -> bool:
        """Whether a table may be read."""
        last_s, pause_s = self._last.get(table, (-math.inf, 0.0))
        return self._clock() >= last_s + pause_s

    def begin(self, table: Hashable) -> None:
        """Note that a read of a table begins, and how long the pause after it is."""
        now = self._clock()
        last_s, pause_s = self._last.get(table, (-math.inf, 0.0))
        again = now < last_s + 2 * pause_s
        self._last[table] = (now, min(2 * pause_s, LONGEST_S) if again else self._first_s)

    def end(self, table: Hashable) -> None:
        """Let the pause of a table begin now, when what was read is placed or given up."""
        self._last[table] = (self._clock(), self._last[table][1])
