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
from gateway.subselects.moves.state import Slice
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

    @property
    def columns(self) -> list[tuple[str, ...]]:
        """Columns by whose values candidates are found."""
        return list(self._selective)

    def found_by(self, columns: tuple[str, ...]) -> list[str]:
        """Return the subscriptions that are found by the value of some columns."""
        return list(dict.fromkeys(n for names in self._selective[columns].values() for n in names))

    def is_decided(self, subscription: str) -> bool:
        """Whether the filter of a subscription is true of every row that it is found for."""
        return _is_exact(self._moves.formulas[subscription])

    def calm(self, columns: tuple[str, ...], value: Value) -> list[str] | None:
        """Return the subscriptions that are found by a value; None if its slice is unsettled."""
        if self._moves.is_unsettled_for_any(Slice(columns, value)):
            return None
        by_set = self._selective[columns]
        found = [name for each in self._index.having(value) for name in by_set.get(each, ())]
        return sorted(set(found))

    @property
    def revision(self) -> tuple[int, int]:
        """Numbers that change whenever `calm` may have another result."""
        return self._moves.revision, self._index.revision

    def are_looked_up(self) -> bool:
        """Whether every unsettled slice is one that `calm` knows."""
        return self._moves.unsettled_columns() <= self._selective.keys()


def _is_exact(formula: Formula) -> bool:
    match formula:
        case SetTest(kind=SetTestKind.IN):
            return True
        case AnyOf(parts):
            return all(map(_is_exact, parts))
        case _:
            return False


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
