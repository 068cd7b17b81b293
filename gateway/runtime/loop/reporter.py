"""Counters and figures of the loop; the loop only decides when they are posted.

Totals per table are taken when a Kafka transaction is handed over, and count when it is committed:
what is shown is in Kafka. All of it is done ten times a second at most, whatever the load, and
twice a second where it takes long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from gateway.observe import Counters, LoopState
from gateway.routing.row.counters import Tally
from gateway.runtime.ports import TransactionRouter

__all__ = ["Reporter"]

_EVERY_S: Final = 0.5
_HURRY_S: Final = 0.1
"""Least time between two posts."""
_REST: Final = 9
"""The same as a multiple of what the last post has taken, which grows with the number of tables."""
_ROW_OPERATIONS: Final = frozenset({"insert", "update", "delete"})


class Reporter:
    """Counts for one loop.

    Args:
        router: Router of the loop; its totals begin at 0.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, counters: Counters, router: TransactionRouter, clock: Callable[[], float]
    ) -> None:
        self._counters = counters
        self._router = router
        self._clock = clock
        self._known = Tally()
        self._committing: Tally | None = None
        self._records = 0
        self._began = 0.0
        self._next_tally = self._next_post = self._soonest = 0.0

    def is_due(self) -> bool:
        """Whether it is time to `post`."""
        return self._clock() >= self._next_post

    def hand_over(self, records: int, *, commits: bool) -> None:
        """Note that a piece of a Kafka transaction goes to the sink, which `commits` all of it."""
        if not self._records:
            self._began = self._clock()
        self._records += records
        self._counters.records += records
        if commits and self._clock() >= self._next_tally:
            self._committing = self._router.tally()
            self._next_tally = self._clock() + _EVERY_S

    def hurry(self) -> None:
        """Let the figures be due soon: the state of a copy has changed."""
        self._next_post = min(self._next_post, self._soonest)

    def committed(self) -> None:
        """Count the records that were handed over."""
        counters = self._counters
        if self._records:
            counters.commit_seconds.add(self._clock() - self._began)
            counters.commit_records.add(self._records)
            counters.committed_at = time.time()
            self._records = 0
        if self._committing is not None:
            self._count(self._committing)
            self._committing = None

    def post(self, state: LoopState, *, settled: bool) -> None:
        """Post the figures; `settled` if everything routed is committed."""
        began = self._clock()
        if settled:
            self._count(self._router.tally())
        self._counters.post(state)
        ended = self._clock()
        self._next_post = ended + _EVERY_S
        self._soonest = ended + max(_HURRY_S, _REST * (ended - began))

    def _count(self, tally: Tally) -> None:
        rows, filtered, now = self._counters.rows, self._counters.filtered, time.time()
        passed: dict[tuple[str, str], int] = {}
        for key, total in tally.rows.items():
            new = total - self._known.rows.get(key, 0)
            rows[key] = rows.get(key, 0) + new
            if key[2] in _ROW_OPERATIONS:
                passed[key[:2]] = passed.get(key[:2], 0) + new
            if new and key[2] != "copy":
                self._counters.changed_at[key[:2]] = now
        for of_table, total in tally.changes.items():
            new = total - self._known.changes.get(of_table, 0)
            filtered[of_table] = filtered.get(of_table, 0) + new - passed.get(of_table, 0)
        self._known = tally
