"""All sets of a gateway: each once, nested ones before those that test against them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

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
        self._around: dict[Subselect, list[Subselect]] = {}  # those that test against it
        for formula in formulas:
            for subselect in subselects_of(formula):
                if subselect in self._sets:
                    continue
                found = self._sets[subselect] = ValueSet(subselect, self._sets, make)
                for test in found.reduction.tests:
                    self._around.setdefault(test.subselect, []).append(subselect)
        self._order = {subselect: number for number, subselect in enumerate(self._sets)}
        self._in_order = tuple(self._sets)

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
        # Not all of them: there may be thousands, of which a transaction concerns one.
        waiting = [self._order[subselect] for subselect in deltas if subselect in self._order]
        heapify(waiting)
        last = -1
        while waiting:
            number = heappop(waiting)
            if number == last:
                continue
            last, subselect = number, self._in_order[number]
            change = self._sets[subselect].apply(deltas.get(subselect), changes)
            if change is not None:
                changes[subselect] = change
                for around in self._around.get(subselect, ()):
                    heappush(waiting, self._order[around])
        return changes

    def recount(self) -> None:
        """Find all members again, once the entries of all sets are there."""
        for found in self._sets.values():
            found.recount()

    def recount_from(self, subselect: Subselect) -> list[ValueSet]:
        """Find the members of a set again, and of those around it; return these sets."""
        waiting = [self._order[subselect]]
        found: list[ValueSet] = []
        while waiting:
            number = heappop(waiting)
            if found and found[-1].subselect == self._in_order[number]:
                continue
            found.append(self._sets[self._in_order[number]])
            found[-1].recount()
            for around in self._around.get(found[-1].subselect, ()):
                heappush(waiting, self._order[around])
        return found

    def close(self) -> None:
        """Give the files back."""
        for found in self._sets.values():
            found.close()
