"""Subscriptions whose rows of a table are moving: for markers, and for who looks at the gateway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gateway.subselects.moves.progress import MoveProgress
from gateway.subselects.moves.state import MoveState
from gateway.subselects.moves.table_moves import TableMoves

__all__ = ["MoveChange", "MoveStanding", "MoveStandings", "committed_standings"]


class MoveChange(NamedTuple):
    """A table whose rows begin to move for a subscription, or are settled again."""

    subscription: str
    table_oid: int
    settled: bool


@dataclass(frozen=True, slots=True)
class MoveStanding:
    """A table whose rows move for a subscription.

    Attributes:
        since: Time of the change that began it, in seconds since 1970; None if it is not known yet.
        unsettled: Number of values and keys whose rows are still to be read; a table that has to
            be copied again counts as one.
        moved_rows: Number of rows that were read because of that so far.
    """

    subscription: str
    table_oid: int
    since: float | None
    unsettled: int
    moved_rows: int


class MoveStandings:
    """Standings of all tables, as of the last `pop_changes`.

    Those that were committed by another process are not marked again.

    Args:
        moves: Moves by the OID of the outer table.
    """

    def __init__(self, moves: Mapping[int, TableMoves]) -> None:
        self._moves = moves
        self.standings: tuple[MoveStanding, ...] = tuple(self._look())
        self._marked = {
            (each.subscription, each.table_oid)
            for each in self.standings
            if moves[each.table_oid].was_unsettled(each.subscription)
        }

    def pop_changes(self) -> list[MoveChange]:
        """Return what has changed since the last call.

        A copy that begins puts an end to the moves before it, which are not said to be settled.
        """
        if not self._marked and all(moves.is_settled for moves in self._moves.values()):
            self.standings = ()
            return []
        for oid, moves in self._moves.items():
            self._marked -= {(name, oid) for name in moves.pop_begun_copies()}
        self.standings = tuple(self._look())
        now = {(each.subscription, each.table_oid) for each in self.standings}
        before, self._marked = self._marked, now
        changes = [MoveChange(*found, settled=True) for found in sorted(before - now)]
        return changes + [MoveChange(*found, settled=False) for found in sorted(now - before)]

    def _look(self) -> Iterator[MoveStanding]:
        for oid, moves in self._moves.items():
            counts = Counter(moves.unsettled_subscriptions())
            for name, unsettled in sorted(counts.items()):
                yield _standing(name, oid, unsettled, moves.progress.known)


def committed_standings(table_oid: int, state: MoveState) -> Iterator[MoveStanding]:
    """Yield the standings of a table by its committed state, for who does not have the moves."""
    counts = Counter(name for of in (*state.slices.values(), *state.keys.values()) for name in of)
    counts.update(state.whole)
    counts.update(state.progress.keys() - counts.keys())  # those that wait for a set
    for name, unsettled in sorted(counts.items()):
        yield _standing(name, table_oid, unsettled, state.progress)


def _standing(
    name: str, oid: int, unsettled: int, progress: Mapping[str, MoveProgress]
) -> MoveStanding:
    if (found := progress.get(name)) is None:
        return MoveStanding(name, oid, None, unsettled, 0)
    return MoveStanding(name, oid, found.since_ms / 1000, unsettled, found.moved_rows)
