"""Progress of moves: since when rows of a table move for each subscription, and how many have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

__all__ = ["MoveProgress", "ProgressOfMoves"]

_EVERY_MS: Final = 1_000


class MoveProgress(NamedTuple):
    """Progress of one subscription's moves in one table.

    Attributes:
        since_ms: Time of the change that began them, in milliseconds since 1970.
        moved_rows: Number of rows that were read because of them.
    """

    since_ms: int
    moved_rows: int


class ProgressOfMoves:
    """Progress of one table's moves, for those who look at the gateway.

    It is committed, since `pgsluice status` reads nothing but what Kafka has.

    Args:
        known: Progress that was committed last, by subscription.

    Attributes:
        known: Progress by subscription, as of the last `note`; of one whose rows do not move, none.
    """

    def __init__(self, known: Mapping[str, MoveProgress]) -> None:
        self.known = dict(known)
        self._total: Counter[str] = Counter()
        self._new: Counter[str] = Counter()
        self._noted_ms = 0

    def count(self, subscription: str) -> None:
        """Count a row that was read for a subscription."""
        self._new[subscription] += 1
        self._total[subscription] += 1

    def pop_total(self) -> Counter[str]:
        """Return the number of rows that were read since the last call, by subscription."""
        total, self._total = self._total, Counter()
        return total

    def restart(self, subscription: str) -> None:
        """Note that a copy begins, which puts an end to the moves before it."""
        self.known.pop(subscription, None)
        self._new.pop(subscription, None)

    def note(self, moving: Collection[str], now_ms: int) -> None:
        """Note for which subscriptions rows move now.

        Rows of moves that go on are added once a second at the most, since each change is a record.
        """
        is_due = not 0 <= now_ms - self._noted_ms < _EVERY_MS
        if is_due:
            self._noted_ms = now_ms
        before, self.known = self.known, {}
        for name in moving:
            found = before.get(name)
            if found is None:
                self.known[name] = MoveProgress(now_ms, self._new[name])
            elif is_due:
                self.known[name] = found._replace(moved_rows=found.moved_rows + self._new[name])
            else:
                self.known[name] = found
                continue
            del self._new[name]
        for name in self._new.keys() - moving:
            del self._new[name]
