"""Progress of what has been read of a subscription and is not applied yet, for log and metrics."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

__all__ = ["Progress"]

_FIRST_S: Final = 5.0
"""Seconds after which a cut that is not applied is first mentioned."""
_EVERY_S: Final = 10.0
"""Seconds between two lines about one cut."""
_MOST_NAMED: Final = 3
"""Most tables that a line names, those that have been written to longest."""


class Progress:
    """Progress through the cuts that have been read. Thread-safe.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._cuts: Sequence[int] = ()
        self._number = 0
        self._tables = 0
        self._begun_at, self._next_report = 0.0, math.inf
        self._applied: dict[str, int] = {}
        self._running: dict[str, float] = {}

    @property
    def waiting_records(self) -> int:
        """Number of records that are named by markers read, and not in their tables yet."""
        with self._guard:
            return sum(self._cuts[self._number :]) - self._applied_records()

    @property
    def running_tables(self) -> int:
        """Number of tables that are written now."""
        with self._guard:
            return len(self._running)

    def read(self, cuts: Sequence[int]) -> None:
        """Note how many records each of the cuts has that are to be applied."""
        with self._guard:
            self._cuts, self._number, self._tables, self._applied = tuple(cuts), 0, 0, {}
            self._next_report = math.inf

    def begin(self, number: int, tables: int) -> None:
        """Note that a cut begins.

        Args:
            number: Index of the cut among those of `read`.
            tables: Number of tables that have records in it.
        """
        with self._guard:
            self._number, self._tables, self._applied = number, tables, {}
            self._begun_at = self._clock()
            self._next_report = self._begun_at + _FIRST_S

    def interrupt(self) -> None:
        """Note that nothing is applied until the next cut begins; its records still wait."""
        with self._guard:
            self._next_report = math.inf

    @contextmanager
    def table(self, name: str) -> Iterator[None]:
        """Note that a table is written inside."""
        with self._guard:
            self._running[name] = self._clock()
        try:
            yield
        finally:
            with self._guard:
                del self._running[name]

    def applied(self, name: str, records: int) -> None:
        """Note that a table has records of the cut."""
        with self._guard:
            self._applied[name] = self._applied.get(name, 0) + records

    def report(self) -> str | None:
        """Return a line for the log when one is due, after a few seconds without a cut."""
        with self._guard:
            now = self._clock()
            if now < self._next_report:
                return None
            self._next_report = now + _EVERY_S
            oldest = sorted(self._running.items(), key=lambda one: one[1])[:_MOST_NAMED]
            at_work = ",".join(f"{name} ({now - at:.0f} s)" for name, at in oldest)
            left = len(self._running) - len(oldest)
            return (
                f"cut={self._number + 1}/{len(self._cuts)}"
                f" tables={len(self._applied)}/{self._tables}"
                f" records={self._applied_records()}/{self._cuts[self._number]}"
                f" seconds={now - self._begun_at:.0f}"
                f" now={at_work or 'reading'}{f' and {left} more' if left else ''}"
            )

    def _applied_records(self) -> int:
        # A table that was behind reads records of earlier cuts, too.
        most = self._cuts[self._number] if self._number < len(self._cuts) else 0
        return min(most, sum(self._applied.values()))
