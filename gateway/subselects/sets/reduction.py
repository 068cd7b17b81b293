"""Reduction of an inner row to an entry: all that its table's sub-select has to remember of it.

    entry    value of the sub-select, then results of the plain filters, then what each nested
             sub-select tests; the results are empty if the row is wanted whatever those contain

A row that is not wanted whatever nested sets contain has no entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.subselects.formula import (
    Members,
    Plain,
    RowView,
    SetTest,
    Subselect,
    Truth,
    Value,
    evaluate,
    holds,
    plains_of,
    set_tests_of,
)
from gateway.subselects.sets.entries import pack, unpack

__all__ = ["Entry", "Reduction"]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry, unpacked.

    Attributes:
        value: Value that the row contributes to the set.
        results: For each plain filter b"1" if it is true; empty if nothing is left to decide.
        tested: For each test of the filter what it tests; empty likewise.
    """

    value: Value
    results: bytes
    tested: tuple[Value, ...]


class Reduction:
    """Reduction of the rows of one sub-select's table.

    Attributes:
        tests: Tests of the filter, in the order of `Entry.tested`.
    """

    def __init__(self, subselect: Subselect) -> None:
        self._subselect = subselect
        self._plains = tuple(dict.fromkeys(plains_of(subselect.filter)))
        self.tests: tuple[SetTest, ...] = tuple(dict.fromkeys(set_tests_of(subselect.filter)))

    @property
    def width(self) -> int:
        """Number of columns of the sub-select."""
        return len(self._subselect.columns)

    def entry(self, row: RowView) -> bytes | None:
        """Return a row's entry, packed; None if it has none.

        Raises:
            FilterEvaluationError: PostgreSQL would fail on the row.
        """
        value = row.value(self._subselect.columns)
        if self._subselect.filter is None:
            return pack((*value, b""))
        results: dict[Plain, bool] = {}

        def plain(each: Plain) -> bool:
            if each not in results:
                results[each] = row.plain(each)
            return results[each]

        truth = evaluate(self._subselect.filter, plain, lambda _: Truth.MAYBE)
        if truth is Truth.NO:
            return None
        if truth is Truth.YES:
            return pack((*value, b""))
        # A filter that was not reached comes after one that decides the same with any sets.
        bits = b"".join(b"1" if results.get(each, False) else b"0" for each in self._plains)
        tested = [part for test in self.tests for part in row.value(test.columns)]
        return pack((*value, b"." + bits, *tested))

    def unpack(self, entry: bytes) -> Entry:
        """Return the parts of an entry."""
        parts = unpack(entry)
        value, results, rest = parts[: self.width], parts[self.width], parts[self.width + 1 :]
        assert results is not None
        tested: list[Value] = []
        if results:
            for test in self.tests:
                tested.append(tuple(rest[: len(test.columns)]))
                del rest[: len(test.columns)]
        return Entry(tuple(value), results[1:] if results else b"", tuple(tested))

    def fits(self, parts: Sequence[bytes | None]) -> bool:
        """Whether `parts`, from outside, are those of an entry."""
        if len(parts) <= self.width or (results := parts[self.width]) is None:
            return False
        if not results:
            return len(parts) == self.width + 1
        tested = sum(len(test.columns) for test in self.tests)
        return (
            bool(tested)
            and len(parts) == self.width + 1 + tested
            and len(results) == 1 + len(self._plains)
        )

    def key_of(self, value: Value) -> bytes:
        """Return the entry of a row with a value that is wanted whatever nested sets contain."""
        return pack((*value, b""))

    def passes(self, entry: Entry, members: Sequence[Members]) -> bool:
        """Whether rows of an entry are wanted; `members` has the set of each test."""
        formula = self._subselect.filter
        if formula is None or not entry.tested:
            return True
        results = dict(zip(self._plains, entry.results, strict=True))
        truths = {
            test: holds(test.kind, value, found)
            for test, value, found in zip(self.tests, entry.tested, members, strict=True)
        }
        truth = evaluate(
            formula,
            lambda plain: results[plain] == ord("1"),
            lambda test: Truth.YES if truths[test] else Truth.NO,
        )
        return truth is Truth.YES
