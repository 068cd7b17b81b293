"""Subscriptions whose rows of a table are moving: for markers, and for who looks at the gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gateway.core.lsn import Lsn
from gateway.subselects.moves.table_moves import TableMoves

__all__ = ["MoveChange", "MoveStanding", "MoveStandings"]


class MoveChange(NamedTuple):
    """A table whose rows begin to move for a subscription, or are settled again."""

    subscription: str
    table_oid: int
    settled: bool


@dataclass(frozen=True, slots=True)
class MoveStanding:
    """A table whose rows move for a subscription.

    Attributes:
        since_lsn: Position of the change that began it; None if that was before this process began.
        since: The same as a time, in seconds since 1970: of this process's beginning then.
        unsettled: Number of values and keys whose rows are still to be read; a table that has to
            be copied again counts as one.
    """

    subscription: str
    table_oid: int
    since_lsn: Lsn | None
    since: float
    unsettled: int


class MoveStandings:
    """Standings of all tables, as of the last `pop_changes`.

    Those that were committed by another process are not marked again.

    Args:
        moves: Moves by the OID of the outer table.
        clock: Seconds since 1970.
    """

    def __init__(self, moves: Mapping[int, TableMoves], clock: Callable[[], float]) -> None:
        self._moves = moves
        self._clock = clock
        self.standings: tuple[MoveStanding, ...] = tuple(self._look(None))
        self._marked = {
            (each.subscription, each.table_oid)
            for each in self.standings
            if moves[each.table_oid].was_unsettled(each.subscription)
        }

    def pop_changes(self, lsn: Lsn) -> list[MoveChange]:
        """Return what has changed since the last call; committed with everything up to `lsn`.

        A copy that begins puts an end to the moves before it, which are not said to be settled.
        """
        if not self._marked and all(moves.is_settled for moves in self._moves.values()):
            return []
        for oid, moves in self._moves.items():
            self._marked -= {(name, oid) for name in moves.pop_begun_copies()}
        self.standings = tuple(self._look(lsn))
        now = {(each.subscription, each.table_oid) for each in self.standings}
        before, self._marked = self._marked, now
        changes = [MoveChange(*found, settled=True) for found in sorted(before - now)]
        return changes + [MoveChange(*found, settled=False) for found in sorted(now - before)]

    def _look(self, lsn: Lsn | None) -> Iterator[MoveStanding]:
        known = {} if lsn is None else {(s.subscription, s.table_oid): s for s in self.standings}
        for oid, moves in self._moves.items():
            counts = Counter(moves.unsettled_subscriptions())
            for name, unsettled in sorted(counts.items()):
                found = known.get((name, oid))
                since_lsn, since = (
                    (lsn, self._clock())
                    if found is None
                    else (
                        found.since_lsn,
                        found.since,
                    )
                )
                yield MoveStanding(name, oid, since_lsn, since, unsettled)
