"""Sets that may count a row of their table, found by the text of one column.

Sub-selects like ``WHERE tenant = 5``, one for each of a thousand subscriptions, are one look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from gateway.rowfilter import Selection
from gateway.subselects.formula import AllOf, Formula, Plain, RowView
from gateway.subselects.sets.value_set import ValueSet

__all__ = ["SetSelection"]

Text: TypeAlias = bytes | None


class SetSelection:
    """Sets of one inner table.

    Args:
        sets: The sets.
        select: Returns the selection of a plain filter on the table; None for any row.
    """

    def __init__(
        self, sets: Iterable[ValueSet], select: Callable[[Plain], Selection | None]
    ) -> None:
        self._others: list[ValueSet] = []
        self._indexed: dict[str, dict[Text, list[ValueSet]]] = {}
        for each in sets:
            selection = _selection(each.subselect.filter, select)
            if selection is None:
                self._others.append(each)
                continue
            found = self._indexed.setdefault(selection.column, {})
            texts: set[Text] = {*selection.texts, *((None,) if selection.null_too else ())}
            for text in texts:
                found.setdefault(text, []).append(each)

    def of(self, row: RowView) -> list[ValueSet]:
        """Return the sets that may count a row, or whose filters may fail on it."""
        found = self._others
        for column, sets in self._indexed.items():
            if (hits := sets.get(row.text(column))) is not None:
                found = found + hits
        return found


def _selection(
    formula: Formula | None, select: Callable[[Plain], Selection | None]
) -> Selection | None:
    """Return the selection of a filter whose first operand, reached by every row, has one."""
    if isinstance(formula, AllOf):
        return _selection(formula.parts[0], select)
    return select(formula) if isinstance(formula, Plain) else None
