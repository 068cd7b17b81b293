"""Subscriptions that may have a row or want it, so that a row's cost does not grow with them all.

A filter is *selective* if it is true only where one of some IN tests of the same columns is. These
subscriptions are found by the row's value in those columns: by the sets that have it, or had it
before the transaction, by what is unsettled, and by nothing else. All others are asked about every
row.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.subselects.formula import (
    AllOf,
    AnyOf,
    Formula,
    RowView,
    SetTest,
    SetTestKind,
    Subselect,
    Value,
)
from gateway.subselects.moves.table_moves import TableMoves
from gateway.subselects.sets.changes import SetChange
from gateway.subselects.sets.member_index import MemberIndex

__all__ = ["Candidates"]


class Candidates:
    """Candidates of one outer table.

    Args:
        moves: Its moves, with the filters of all subscriptions.
        index: Sets by value, as of the transaction's end.

    Attributes:
        others: Subscriptions that are candidates for every row.
    """

    def __init__(self, moves: TableMoves, index: MemberIndex) -> None:
        self._moves = moves
        self._index = index
        self.others: list[str] = []
        self._selective: dict[tuple[str, ...], dict[Subselect, list[str]]] = {}
        for name, formula in moves.formulas.items():
            tests = _needed(formula)
            if not tests:
                self.others.append(name)
                continue
            by_set = self._selective.setdefault(tests[0].columns, {})
            for subselect in dict.fromkeys(test.subselect for test in tests):
                by_set.setdefault(subselect, []).append(name)

    def of(self, view: RowView, changes: Mapping[Subselect, SetChange]) -> set[str]:
        """Return the candidates for a row.

        Args:
            view: The old or the new row.
            changes: Changes of the sets by its transaction.
        """
        found = {*self.others, *self._moves.whole, *self._moves.unsettled_for(view)}
        for columns, by_set in self._selective.items():
            value = view.value(columns)
            for subselect in self._index.having(value):
                found.update(by_set.get(subselect, ()))
            for subselect, change in changes.items():
                if subselect in by_set and _may_have_had(change, value):
                    found.update(by_set[subselect])
        return found


def _may_have_had(change: SetChange, value: Value) -> bool:
    return change.is_whole or change.toggled.get(value) is False


def _needed(formula: Formula) -> list[SetTest]:
    """Return IN tests of the same columns one of which is true where the filter is; or none."""
    match formula:
        case SetTest(kind=SetTestKind.IN):
            return [formula]
        case AllOf(parts):
            return next((tests for part in parts if (tests := _needed(part))), [])
        case AnyOf(parts):
            found = [_needed(part) for part in parts]
            same = len({tests[0].columns if tests else () for tests in found}) == 1
            return [test for tests in found for test in tests] if same and all(found) else []
        case _:
            return []
