"""Tables and subscriptions whose filters have sub-selects, and the routes of their rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from gateway.definitions.model import TableId
from gateway.routing.row.copied_rows import picker
from gateway.routing.row.moving_route import MovingRoute
from gateway.routing.row.projection_route import ProjectionRoute
from gateway.routing.row.targets import Passes, Row, Target
from gateway.subselects.following import Following
from gateway.subselects.formula import columns_of

__all__ = ["MovingTables"]


class MovingTables:
    """Outer tables of a plan.

    Args:
        following: Sets and moves.
        columns: Names of the columns of the rows of each table's moves, by its OID.

    Attributes:
        note_rewritten: Called with the OIDs of tables of which all rows were written again.
    """

    def __init__(self, following: Following, columns: Mapping[int, Sequence[str]]) -> None:
        self._following = following
        self._columns = columns
        self.note_rewritten: Callable[[Iterable[int]], None] = lambda oids: None

    @property
    def tables(self) -> Collection[int]:
        """OIDs of the outer tables."""
        return self._columns.keys()

    def __contains__(self, table_id: TableId) -> bool:
        subscription, oid = table_id
        moves = self._following.moves.get(oid)
        return moves is not None and subscription in moves.formulas

    def deciding(self, subscription: str, oid: int) -> frozenset[str]:
        """Return the columns that decide about a row for a subscription."""
        if (subscription, oid) not in self:
            return frozenset()
        return columns_of(self._following.moves[oid].formulas[subscription])

    def routes(
        self, names: Sequence[str], projection_routes: Sequence[ProjectionRoute]
    ) -> list[MovingRoute]:
        """Return the routes of tuples with columns `names`, one for each outer table."""
        found: dict[int, dict[str, tuple[ProjectionRoute, Target]]] = {}
        for route in projection_routes:
            for target in route.targets:
                if target.moves:
                    of_table = found.setdefault(route.target_oid, {})
                    of_table[target.counter.subscription] = route, target
        return [
            MovingRoute(self._following, oid, targets, self._picker(oid, names))
            for oid, targets in found.items()
        ]

    def passes(self, table_id: TableId, names: Sequence[str]) -> Passes:
        """Return the decision on a copied row with columns `names`, by the sets as they are."""
        subscription, oid = table_id
        moves = self._following.moves[oid]
        pick = self._picker(oid, names)

        def wanted(row: Row) -> bool:
            return moves.wants(subscription, moves.view(pick(row)))

        return wanted

    def _picker(self, oid: int, names: Sequence[str]) -> Callable[[Row], Row]:
        return picker([names.index(name) if name in names else None for name in self._columns[oid]])
