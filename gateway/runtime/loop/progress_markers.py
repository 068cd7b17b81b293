"""Schedule of PROGRESS markers for subscriptions without new rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from gateway.core.lsn import ZERO_LSN, Lsn

__all__ = ["ProgressMarkers"]

_NEVER: Final = ZERO_LSN
_IN_ONE_TURN: Final = 10
_MOST_TURNS: Final = 20


class ProgressMarkers:
    """Position until which each subscription is marked, and whose turn it is.

    A marker is a record in a partition of its own, which Kafka then has to mark as committed, too:
    those of a hundred subscriptions in one Kafka transaction keep everybody's rows waiting for 100
    ms. They therefore take turns within the interval, some ten at a time.

    Args:
        subscriptions: Their names.
        interval_s: A subscription that gets no records gets at most one marker in this time.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, subscriptions: Sequence[str], interval_s: float, clock: Callable[[], float]
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock
        # The markers of earlier runs are not known: mark once at the start.
        self._marked: dict[str, Lsn] = dict.fromkeys(subscriptions, _NEVER)
        number = max(1, min(_MOST_TURNS, -(-len(subscriptions) // _IN_ONE_TURN)))
        self._turns = [subscriptions[turn::number] for turn in range(number)]
        start = clock()
        self._due_at = [start + interval_s * turn / number for turn in range(number)]

    def is_time(self) -> bool:
        """Whether it is anybody's turn."""
        return self._clock() >= min(self._due_at)

    def due_at(self, published: Lsn, *, moved: bool) -> float | None:
        """Return when somebody's next turn is, by the clock.

        Only of those whose last marker is before `published`, unless the position has `moved` since
        it was committed; None: there is nobody.
        """
        return min(
            (
                due_at
                for turn, due_at in zip(self._turns, self._due_at, strict=True)
                if moved or any(self._marked[name] < published for name in turn)
            ),
            default=None,
        )

    def lagging(self, published: Lsn, *, everyone: bool = False) -> list[str]:
        """Return the subscriptions whose last marker is before `published` and whose turn it is."""
        now = self._clock()
        return [
            name
            for turn, due_at in zip(self._turns, self._due_at, strict=True)
            if everyone or due_at <= now
            for name in turn
            if self._marked[name] < published
        ]

    def end_turns(self) -> None:
        """Begin the interval of those whose turn it was."""
        now = self._clock()
        number = len(self._turns)
        late = 0
        for turn, due_at in enumerate(self._due_at):
            if due_at <= now:  # those that fell due together are drawn apart again
                self._due_at[turn] = now + self._interval_s * (1 + late / number)
                late += 1

    def mark(self, idle: Collection[str], ended: Mapping[str, Lsn], published: Lsn) -> None:
        """Note who gets a marker now: `idle`, and who has an END since the last one."""
        for name, marked in self._marked.items():
            if name in idle or ended.get(name, _NEVER) > marked:
                self._marked[name] = published
