"""The set of one sub-select at one position of the stream: entries, members, and what changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from gateway.core.errors import FatalError
from gateway.subselects.formula import Members, Subselect, Value
from gateway.subselects.sets.changes import Before, SetChange, SetDelta, affected_values
from gateway.subselects.sets.entries import (
    Entries,
    MemoryEntries,
    all_of,
    pack,
    place_of,
    place_of_first,
    unpack,
)
from gateway.subselects.sets.reduction import Entry, Reduction

__all__ = ["MOST_TOGGLED", "MakeEntries", "SetBrokenError", "ValueSet", "in_memory"]

MOST_TOGGLED: Final = 100_000
"""Number of values of one transaction beyond which a change is whole: the outer table is cheaper to
copy than to be searched for all these values."""
_INDEX_BITS: Final = 32

MakeEntries: TypeAlias = Callable[[Callable[[bytes], int], int | None], Entries]
"""Makes a store, given the function from a key to its place, and the bits that are together."""


def in_memory(place: Callable[[bytes], int] = place_of, bits: int | None = None) -> Entries:
    """Make a store that is in memory only."""
    return MemoryEntries(place) if bits is None else MemoryEntries(place, bits=bits)


class SetBrokenError(FatalError):
    """A set counts less than no row: changes of its table are missing, or were counted twice."""

    def __init__(self, subselect: Subselect) -> None:
        self.table_oid = subselect.table_oid
        super().__init__(
            f"the set of the sub-select on the table with OID {subselect.table_oid} does not agree "
            "with the changes of its table",
            hint="was the table's replica identity altered? The set is read again",
        )


class ValueSet:
    """Values of a sub-select, with counts. Not thread-safe.

    Args:
        subselect: The sub-select.
        nested: Set of each of its sub-selects.
        make: Makes stores.
    """

    def __init__(
        self,
        subselect: Subselect,
        nested: Mapping[Subselect, ValueSet],
        make: MakeEntries = in_memory,
    ) -> None:
        self.subselect = subselect
        self.reduction = Reduction(subselect)
        self._nested = tuple(nested[test.subselect] for test in self.reduction.tests)
        self.entries = make(place_of, None)
        # Without nested sets, entries are members; with them, there is an index by what is tested.
        self._members = make(place_of, None) if self._nested else None
        self._index = make(place_of_first, _INDEX_BITS) if self._nested else None
        self._rows = 0

    # Members

    def __contains__(self, value: Value) -> bool:
        if self._members is None:
            return self.entries.get(self.reduction.key_of(value)) > 0
        return self._members.get(pack(value)) > 0

    @property
    def is_empty(self) -> bool:
        """Whether the sub-select has no row."""
        return not self._rows

    @property
    def has_null(self) -> bool:
        """Whether NULL is a member of a set with one column."""
        return self.reduction.width == 1 and (None,) in self

    def values(self) -> Iterator[Value]:
        """Return the values, each once; the set must not be changed meanwhile."""
        if self._members is None:
            for entry, _ in all_of(self.entries):
                yield self.reduction.unpack(entry).value
        else:
            for key, _ in all_of(self._members):
                yield tuple(unpack(key))

    # Changes

    def fill(self, counts: Iterable[tuple[bytes, int]]) -> None:
        """Add entries with their counts; `recount` has to follow.

        Raises:
            SetBrokenError: there are fewer of an entry than are to be subtracted.
        """
        for entry, count in counts:
            self._add(entry, self.entries.get(entry) + count)

    def clear(self) -> None:
        """Remove everything."""
        self._clear()

    def agrees(self, delta: SetDelta) -> bool:
        """Whether all entries are there that a transaction removes."""
        there = (lambda entry: 0) if delta.is_truncated else self.entries.get
        return all(by > 0 or there(entry) + by >= 0 for entry, by in delta.counts.items())

    def recount(self) -> None:
        """Find the members again, with what nested sets have now."""
        if self._members is not None:
            self._members.clear()
        self._rows = 0
        for entry, count in all_of(self.entries):
            found = self.reduction.unpack(entry)
            if self.reduction.passes(found, self._nested):
                self._count(found.value, count)

    def apply(
        self, delta: SetDelta | None, changes: Mapping[Subselect, SetChange]
    ) -> SetChange | None:
        """Apply a transaction.

        Args:
            delta: Its changes of the sub-select's table, as entries.
            changes: Its changes of other sets; those of nested sub-selects have been changed.

        Returns:
            The change of this set; None for nothing.

        Raises:
            SetBrokenError: the set does not agree with the table.
        """
        nested = [changes.get(each.subselect) for each in self._nested]
        if delta is None and not any(nested):
            return None
        was_empty, had_null = self.is_empty, self.has_null
        touched = self._apply_nested(nested)
        is_counted = touched is not None
        if delta is not None:
            if delta.is_truncated:
                self._clear()
                touched = None
            touched = self._apply_delta(delta, touched, count=is_counted)
        if not is_counted:
            self.recount()
        toggled = {
            value: now
            for value, before in (touched or {}).items()
            if (now := value in self) is not before
        }
        change = SetChange(
            toggled, was_empty, self.is_empty, had_null, self.has_null, is_whole=touched is None
        )
        return None if change.is_nothing else change

    def _apply_nested(self, changes: Sequence[SetChange | None]) -> dict[Value, bool] | None:
        """Count entries again whose tests have other results; None if that may be any."""
        touched: dict[Value, bool] = {}
        concerned: dict[bytes, None] = {}
        for number, (test, change) in enumerate(zip(self.reduction.tests, changes, strict=True)):
            if change is None:
                continue
            values = affected_values(test.kind, change)
            if values is None:
                return None
            for value in values:
                concerned.update(dict.fromkeys(self._tested(number, value)))
                if len(concerned) > MOST_TOGGLED:
                    return None
        before: list[Members] = [
            members if change is None else Before(members, change)
            for members, change in zip(self._nested, changes, strict=True)
        ]
        for entry in concerned:
            found = self.reduction.unpack(entry)
            was = self.reduction.passes(found, before)
            now = self.reduction.passes(found, self._nested)
            if was is not now:
                touched.setdefault(found.value, found.value in self)
                count = self.entries.get(entry)
                self._count(found.value, count if now else -count)
        return touched

    def _apply_delta(
        self, delta: SetDelta, touched: dict[Value, bool] | None, *, count: bool
    ) -> dict[Value, bool] | None:
        if touched is not None and len(touched) + len(delta.counts) > MOST_TOGGLED:
            touched = None
        for entry, by in delta.counts.items():
            found = self.reduction.unpack(entry)
            if touched is not None:
                touched.setdefault(found.value, found.value in self)
            self._add(entry, self.entries.get(entry) + by, found)
            if count and self.reduction.passes(found, self._nested):
                self._count(found.value, by)
        return touched

    # Stores

    def _add(self, entry: bytes, count: int, found: Entry | None = None) -> None:
        if count < 0:
            raise SetBrokenError(self.subselect)
        if self._index is not None:
            tested = (found or self.reduction.unpack(entry)).tested
            for number, value in enumerate(tested):
                self._index.put(_index_key(number, value, entry), min(count, 1))
        self.entries.put(entry, count)

    def _count(self, value: Value, by: int) -> None:
        self._rows += by
        if self._members is not None:
            key = pack(value)
            count = self._members.get(key) + by
            if count < 0:
                raise SetBrokenError(self.subselect)
            self._members.put(key, count)

    def _tested(self, number: int, value: Value) -> list[bytes]:
        """Return the entries that test `value` by the test with a number."""
        assert self._index is not None
        first = _index_key(number, value, b"")
        place = place_of_first(first)
        keys = [key for key, _ in self._index.within(place, place + 1)]
        found = [unpack(key) for key in keys]
        wanted = unpack(first)[0]
        return [entry for same, entry in found if same == wanted and entry is not None]

    def _clear(self) -> None:
        self.entries.clear()
        for store in (self._members, self._index):
            if store is not None:
                store.clear()
        self._rows = 0

    def close(self) -> None:
        """Give the files back."""
        for store in (self.entries, self._members, self._index):
            if store is not None:
                store.close()


def _index_key(number: int, value: Value, entry: bytes) -> bytes:
    return pack((pack((b"%d" % number, *value)), entry))
