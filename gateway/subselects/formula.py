"""Row filters with sub-selects as one plain tree, and its evaluation. Pure.

A row passes where its filter is true. TRUE(NOT x) is FALSE(x), TRUE(a AND b) is TRUE(a) and
TRUE(b), and FALSE(a AND b) is FALSE(a) or FALSE(b): hence the tree has neither NOT nor unknown. Its
leaves are plain filters and tests of a row's value against the set of a sub-select:

    leaf         stands for                true for a value without NULL        for one with NULL
    IN           x IN, EXISTS              a member                             never
    NOT_EXISTS   NOT EXISTS                no member                            always
    NOT_IN       x NOT IN, one column      no member, and the set has no NULL   the set is empty

`x IN` is false, rather than unknown, exactly where NOT_IN says so.

Source: ExecScanSubPlan() in nodeSubplan.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from hashlib import blake2b
from typing import Final, Protocol, TypeAlias, assert_never

from gateway.core.formula import AllOf, AnyOf, Formula, Plain, SetTest, SetTestKind, Subselect
from gateway.definitions.sql.formulas import own_columns as columns_of
from gateway.definitions.sql.formulas import own_tests as set_tests_of

__all__ = [
    "LONGEST",
    "AllOf",
    "AnyOf",
    "Formula",
    "Members",
    "Plain",
    "RowView",
    "SetTest",
    "SetTestKind",
    "Subselect",
    "Truth",
    "Value",
    "columns_of",
    "evaluate",
    "holds",
    "is_shortened",
    "plains_of",
    "resolved",
    "set_tests_of",
    "shortened",
    "subselects_of",
]

Value: TypeAlias = tuple[bytes | None, ...]
"""Canonical text of each column of a test or a sub-select, in its order; None is NULL."""


LONGEST: Final = 1024
"""Length of a text, in bytes, beyond which a digest is in its place: any role that writes to an
inner table could otherwise make a record that Kafka refuses."""


def shortened(text: bytes) -> bytes:
    """Return a digest, which no text of PostgreSQL is: it has a zero byte."""
    return b"\0" + blake2b(text, digest_size=32).digest()


def is_shortened(value: Value) -> bool:
    """Whether a value has a digest, by which no row can be asked for."""
    return any(text is not None and text[:1] == b"\0" for text in value)


class Truth(Enum):
    """Result of an evaluation in which parts may be unknown to the gateway."""

    YES = "yes"
    NO = "no"
    MAYBE = "maybe"


class RowView(Protocol):
    """One version of a row, as filters see it."""

    def plain(self, plain: Plain) -> bool:
        """Whether the row passes a plain filter.

        Raises:
            FilterEvaluationError: PostgreSQL would fail on the row.
        """
        ...

    def value(self, columns: tuple[str, ...]) -> Value:
        """Return the canonical texts of some columns."""
        ...

    def text(self, column: str) -> bytes | None:
        """Return the text of a column as it was sent."""
        ...


class Members(Protocol):
    """Values of a sub-select at one position of the stream."""

    def __contains__(self, value: Value) -> bool: ...

    @property
    def is_empty(self) -> bool:
        """Whether the sub-select has no row."""
        ...


def evaluate(
    formula: Formula, plain: Callable[[Plain], bool], test: Callable[[SetTest], Truth]
) -> Truth:
    """Evaluate `formula`; parts that cannot change the result any more are not evaluated."""
    match formula:
        case Plain():
            return Truth.YES if plain(formula) else Truth.NO
        case SetTest():
            return test(formula)
        case AllOf(parts):
            return _junction(parts, plain, test, decides=Truth.NO, otherwise=Truth.YES)
        case AnyOf(parts):
            return _junction(parts, plain, test, decides=Truth.YES, otherwise=Truth.NO)
    assert_never(formula)


def _junction(
    parts: tuple[Formula, ...],
    plain: Callable[[Plain], bool],
    test: Callable[[SetTest], Truth],
    *,
    decides: Truth,
    otherwise: Truth,
) -> Truth:
    result = otherwise
    for part in parts:
        truth = evaluate(part, plain, test)
        if truth is decides:
            return decides
        if truth is Truth.MAYBE:
            result = truth
    return result


def holds(kind: SetTestKind, value: Value, members: Members) -> bool:
    """Whether a test of `value` is true."""
    match kind:
        case SetTestKind.IN:
            return None not in value and value in members
        case SetTestKind.NOT_EXISTS:
            return None in value or value not in members
        case SetTestKind.NOT_IN:
            if members.is_empty:
                return True
            return None not in value and value not in members and (None,) not in members
    assert_never(kind)


def plains_of(formula: Formula | None) -> Iterator[Plain]:
    """Return the plain filters on the formula's own table, from left to right."""
    match formula:
        case Plain():
            yield formula
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from plains_of(part)


def subselects_of(formula: Formula | None) -> Iterator[Subselect]:
    """Return all sub-selects, nested ones before those that test against them; some repeatedly."""
    for test in set_tests_of(formula):
        yield from subselects_of(test.subselect.filter)
        yield test.subselect


def resolved(formula: Formula, table_oid: int, resolve: Callable[[int, Plain], str]) -> Formula:
    """Replace each plain filter, inside sub-selects as well, by what `resolve` returns for it.

    Args:
        formula: A filter on the table `table_oid`.
        table_oid: OID of that table.
        resolve: Returns the server's rendering of a plain filter on the table with an OID.
    """
    match formula:
        case Plain():
            return replace(formula, text=resolve(table_oid, formula))
        case SetTest(subselect=inner):
            if inner.filter is None:
                return formula
            found = resolved(inner.filter, inner.table_oid, resolve)
            return replace(formula, subselect=replace(inner, filter=found))
        case AllOf(parts):
            return AllOf(tuple(resolved(part, table_oid, resolve) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(resolved(part, table_oid, resolve) for part in parts))
    assert_never(formula)
