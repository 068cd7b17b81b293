"""Tables and subscriptions whose filters have sub-selects, and the routes of their rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gateway.core.formula import Formula, SetTest, Subselect
from gateway.definitions.model import Plan, TableId
from gateway.definitions.moving import formulas_of
from gateway.definitions.sql.formulas import own_tests
from gateway.definitions.tables.keys import key_of
from gateway.routing.row.copied_rows import picker
from gateway.routing.row.moving_route import MovingRoute
from gateway.routing.row.projection_route import ProjectionRoute
from gateway.routing.row.targets import LookupIndex, MovingTargets, NamesOf, Passes, Row, Target
from gateway.subselects.following import Following
from gateway.subselects.formula import columns_of

__all__ = ["HiddenParts", "MovingTables", "hidden_parts"]


class MovingTables:
    """Outer tables of a plan.

    Args:
        following: Sets and moves.
        columns: Names of the columns of the rows of each table's moves, by its OID.

    Attributes:
        note_rewritten: Called with the OIDs of tables of which all rows were written again.
        note_plan: Called with a new plan.
        note_trees: Called with the OIDs of trees of which a DDL message says that a partition came
            or went; nobody may know it by now.
    """

    def __init__(self, following: Following, columns: Mapping[int, Sequence[str]]) -> None:
        self._following = following
        self._columns = columns
        self.note_rewritten: Callable[[Iterable[int]], None] = lambda oids: None
        self.note_trees: Callable[[Iterable[int]], None] = lambda oids: None
        self.note_plan: Callable[[Plan], None] = lambda plan: None

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
            MovingRoute(
                self._following,
                oid,
                targets,
                self._picker(oid, names),
                self._looked_up(oid, names, targets),
            )
            for oid, targets in found.items()
        ]

    def _looked_up(
        self, oid: int, names: Sequence[str], targets: Mapping[str, tuple[ProjectionRoute, Target]]
    ) -> dict[int, MovingTargets] | None:
        """Return the targets of each projection as the compiled path finds them, if it can."""
        candidates = self._following.candidates_of(oid)
        if any(len(columns) != 1 or columns[0] not in names for columns in candidates.columns):
            return None
        if any(target.refused is not None for _, target in targets.values()):
            return None
        of_route: dict[int, list[str]] = {}
        for name, (route, _) in sorted(targets.items()):
            of_route.setdefault(id(route), []).append(name)
        formulas = self._following.moves[oid].formulas
        looked_up: dict[int, MovingTargets] = {}
        for route_id, own in of_route.items():
            passes = {
                name: None if candidates.is_decided(name) else self.passes((name, oid), names)
                for name in own
            }
            # All columns, whoever tests them here: a row with an unsettled value is not calm.
            indexes = []
            for columns in candidates.columns:
                found = {*candidates.found_by(columns)}.intersection(own)
                indexes.append(
                    LookupIndex(
                        names.index(columns[0]),
                        self._names_of(oid, columns[0]),
                        [(name, passes.pop(name)) for name in sorted(found)],
                    )
                )
            read = frozenset[str]().union(*(columns_of(formulas[name]) for name in own))
            others = [(name, decision) for name, decision in passes.items() if decision is not None]
            looked_up[route_id] = MovingTargets(others, indexes, read)
        return looked_up

    def _names_of(self, oid: int, column: str) -> NamesOf:
        candidates, moves = self._following.candidates_of(oid), self._following.moves[oid]
        width, place = len(self._columns[oid]), self._columns[oid].index(column)

        def names_of(text: bytes | None) -> list[str] | None:
            row: list[bytes | None] = [None] * width
            row[place] = text
            return candidates.calm((column,), moves.view(row).value((column,)))

        return names_of

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


class HiddenParts(NamedTuple):
    """Parts of the state that are not stored in Kafka, where masked values would be seen.

    A test compares columns of two tables; if one of them is masked, the values of both are hidden.

    Attributes:
        sets: Sub-selects whose sets have values of masked columns.
        outer: OIDs of tables whose slices or keys have some.
    """

    sets: frozenset[Subselect]
    outer: frozenset[int]


def hidden_parts(plan: Plan) -> HiddenParts:
    """Return the parts of a plan's state that are not stored."""
    masked = plan.masked_columns
    if not masked:
        return HiddenParts(frozenset(), frozenset())

    def is_hidden(oid: int, test: SetTest) -> bool:
        inner = test.subselect
        return any((oid, name) in masked for name in test.columns) or any(
            (inner.table_oid, name) in masked for name in inner.columns
        )

    def sets(oid: int, formula: Formula | None) -> Iterator[Subselect]:
        for test in own_tests(formula):
            inner = test.subselect
            yield from sets(inner.table_oid, inner.filter)
            nested = own_tests(inner.filter)
            if is_hidden(oid, test) or any(is_hidden(inner.table_oid, one) for one in nested):
                yield inner

    found: set[Subselect] = set()
    outer: set[int] = set()
    formulas = formulas_of(plan)
    for (_, oid), formula in formulas.items():
        found.update(sets(oid, formula))
        if any(is_hidden(oid, test) for test in own_tests(formula)):
            outer.add(oid)
    for copy in plan.copies:
        if (copy.subscription, copy.target_oid) in formulas:
            key = key_of(plan.tables[copy.target_oid], copy.columns) or ()
            if any((copy.target_oid, name) in masked for name in key):
                outer.add(copy.target_oid)
    return HiddenParts(frozenset(found), frozenset(outer))
