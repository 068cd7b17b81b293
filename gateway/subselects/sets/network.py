"""All sets of a gateway: each once, nested ones before those that test against them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gateway.subselects.formula import Formula, Subselect, subselects_of
from gateway.subselects.sets.changes import SetChange, SetDelta
from gateway.subselects.sets.value_set import MakeEntries, ValueSet, in_memory

__all__ = ["SetNetwork"]


class SetNetwork:
    """Sets of all sub-selects of some filters.

    Args:
        formulas: The filters; equal sub-selects of them share a set.
        make: Makes stores.
    """

    def __init__(self, formulas: Iterable[Formula], make: MakeEntries = in_memory) -> None:
        self._sets: dict[Subselect, ValueSet] = {}
        for formula in formulas:
            for subselect in subselects_of(formula):
                if subselect not in self._sets:
                    self._sets[subselect] = ValueSet(subselect, self._sets, make)

    def __getitem__(self, subselect: Subselect) -> ValueSet:
        return self._sets[subselect]

    def __iter__(self) -> Iterator[ValueSet]:
        """Return the sets, nested ones first."""
        return iter(self._sets.values())

    def apply(self, deltas: Mapping[Subselect, SetDelta]) -> dict[Subselect, SetChange]:
        """Apply a transaction; return what it did to each set that has changed.

        Raises:
            SetBrokenError: a set does not agree with its table.
        """
        changes: dict[Subselect, SetChange] = {}
        for subselect, found in self._sets.items():
            change = found.apply(deltas.get(subselect), changes)
            if change is not None:
                changes[subselect] = change
        return changes

    def recount(self) -> None:
        """Find all members again, once the entries of all sets are there."""
        for found in self._sets.values():
            found.recount()

    def close(self) -> None:
        """Give the files back."""
        for found in self._sets.values():
            found.close()
