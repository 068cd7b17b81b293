"""Columns and tables that a filter over other tables reads. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.core.formula import AllOf, AnyOf, Formula, Plain, SetTest
from gateway.definitions.sql.expression import column_names

__all__ = ["inner_columns", "own_columns", "own_tests"]


def own_columns(formula: Formula | None) -> frozenset[str]:
    """Return the columns of the formula's own table that decide about a row."""
    match formula:
        case Plain(text):
            return column_names(text)
        case SetTest(columns=columns):
            return frozenset(columns)
        case AllOf(parts) | AnyOf(parts):
            return frozenset[str]().union(*map(own_columns, parts))
        case None:
            return frozenset()


def own_tests(formula: Formula | None) -> Iterator[SetTest]:
    """Return the tests of the formula's own table, from left to right."""
    match formula:
        case SetTest():
            yield formula
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from own_tests(part)


def inner_columns(formula: Formula | None) -> dict[int, frozenset[str]]:
    """Return the columns that decide inside sub-selects, by the OID of their table."""
    found: dict[int, frozenset[str]] = {}
    for test in own_tests(formula):
        inner = test.subselect
        names = own_columns(inner.filter).union(inner.columns)
        for oid, columns in ((inner.table_oid, names), *inner_columns(inner.filter).items()):
            found[oid] = found.get(oid, frozenset()) | columns
    return found
