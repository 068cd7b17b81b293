"""One map from a value to the sets that have it, so that a row asks once for all of them.

A thousand subscriptions, each `IN (SELECT id FROM customers WHERE tenant = n)`, are one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gateway.subselects.formula import Subselect, Value
from gateway.subselects.sets.changes import SetChange
from gateway.subselects.sets.entries import Entries, all_of, pack, place_of_first, unpack
from gateway.subselects.sets.value_set import MakeEntries, ValueSet, in_memory

__all__ = ["MemberIndex"]

_BITS: Final = 32
_MOST_LATEST: Final = 20_000
"""Number of values whose sets are remembered, whatever the number of all values."""


class MemberIndex:
    """Sets by value; NULL is no value here. `recount` has to follow once the sets are filled.

    Args:
        sets: The sets.
        make: Makes the store.

    Attributes:
        revision: Number that changes whenever a value may be a member of other sets than before.
    """

    def __init__(self, sets: Iterable[ValueSet], make: MakeEntries = in_memory) -> None:
        self._sets = list(sets)
        self._numbers = {each.subselect: number for number, each in enumerate(self._sets)}
        self._entries: Entries = make(place_of_first, _BITS)
        self._latest: dict[Value, list[Subselect]] = {}
        self._found: set[int] = set()  # sets that may have entries
        self.revision = 0

    def having(self, value: Value) -> list[Subselect]:
        """Return the sub-selects that a value is a member of; the list must not be changed."""
        found = self._latest.get(value)
        if found is None:
            if len(self._latest) >= _MOST_LATEST:
                self._latest.clear()
            found = self._latest[value] = self._find(value)
        return found

    def _find(self, value: Value) -> list[Subselect]:
        if None in value:
            return []
        packed = pack(value)
        first = pack((packed,))
        place = place_of_first(first)
        return [
            self._sets[int(key[len(first) + 1 :])].subselect
            for key, _ in self._entries.within(place, place + 1)
            if key.startswith(first)
        ]

    def apply(self, changes: Mapping[Subselect, SetChange]) -> None:
        """Apply what a transaction has done to the sets."""
        self.revision += bool(changes)
        whole = [each for each in changes if changes[each].is_whole and each in self._numbers]
        if whole:
            self._find_again({self._numbers[each] for each in whole})
        for subselect, change in changes.items():
            if (number := self._numbers.get(subselect)) is None:
                continue
            for value, is_member in change.toggled.items():
                if None not in value:
                    self._latest.pop(value, None)
                    self._entries.put(_key(value, number), int(is_member))
                    self._found.add(number)

    def recount_sets(self, sets: Iterable[ValueSet]) -> None:
        """Find the members of some sets again."""
        self.revision += 1
        self._find_again({self._numbers[each.subselect] for each in sets})

    def recount(self) -> None:
        """Find the members of all sets again."""
        self.revision += 1
        self._latest.clear()
        self._entries.clear()
        self._found.clear()
        for number in range(len(self._sets)):
            self._add(number)

    def close(self) -> None:
        """Give the file back."""
        self._entries.close()

    def _add(self, number: int) -> None:
        for value in self._sets[number].values():
            if None not in value:
                self._found.add(number)
                self._entries.put(_key(value, number), 1)

    def _find_again(self, numbers: set[int]) -> None:
        self._latest.clear()
        # All entries are looked at, which takes long: once for all sets, and not for new ones.
        if not self._found - numbers:
            self._entries.clear()
        elif gone := {b"%d" % number for number in numbers & self._found}:
            for key, _ in all_of(self._entries):
                if unpack(key)[1] in gone:
                    self._entries.put(key, 0)
        self._found -= numbers
        for number in sorted(numbers):
            self._add(number)


def _key(value: Value, number: int) -> bytes:
    return pack((pack(value), b"%d" % number))
