"""The comparison of rebuilt tables with native ones. Pure.

A table without a key is a multiset, so tables are compared as multisets of rows. A table that one
side lacks is a difference, also when the other side's is empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["Comparison", "Row", "TableKey", "TableRows", "compare", "summary"]

Row: TypeAlias = tuple[str | None, ...]
TableKey: TypeAlias = tuple[str, str, str]
"""Subscription, schema, table."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table's columns, and its rows as PostgreSQL's text; NULL is None."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One subscriber table on both sides; None where it does not exist.

    Attributes:
        missing: Rows that only the native table has.
        surplus: Rows that only the rebuilt table has.
    """

    key: TableKey
    native: TableRows | None
    rebuilt: TableRows | None
    missing: tuple[Row, ...] = ()
    surplus: tuple[Row, ...] = ()

    @property
    def name(self) -> str:
        """``subscription: schema.table``."""
        subscription, schema, table = self.key
        return f"{subscription}: {schema}.{table}"

    @property
    def equal(self) -> bool:
        """Whether both exist with the same columns and the same rows, each as often."""
        return (
            self.native is not None
            and self.rebuilt is not None
            and sorted(self.native.columns) == sorted(self.rebuilt.columns)
            and not self.missing
            and not self.surplus
        )

    def differences(self) -> list[str]:
        """Lines that say what differs; none when `equal`."""
        if self.native is None:
            return [f"{self.name}: there is no native table"]
        if self.rebuilt is None:
            return [f"{self.name}: there is no rebuilt table"]
        lines = []
        if sorted(self.native.columns) != sorted(self.rebuilt.columns):
            lines.append(
                f"{self.name}: columns ({', '.join(self.rebuilt.columns)})"
                f" instead of ({', '.join(self.native.columns)})"
            )
        lines += [f"{self.name}: row missing: {_shown(row)}" for row in self.missing]
        lines += [f"{self.name}: row too many: {_shown(row)}" for row in self.surplus]
        return lines


def compare(
    native: Mapping[TableKey, TableRows], rebuilt: Mapping[TableKey, TableRows]
) -> list[Comparison]:
    """Compare every table that either side has, in the order of subscription and name."""
    return [_compare(key, native.get(key), rebuilt.get(key)) for key in sorted({*native, *rebuilt})]


def summary(comparisons: list[Comparison]) -> str:
    """The last line: how many tables are equal, of all."""
    equal = sum(comparison.equal for comparison in comparisons)
    return f"verified: {equal} of {len(comparisons)} tables equal the native subscription"


def _compare(key: TableKey, native: TableRows | None, rebuilt: TableRows | None) -> Comparison:
    if native is None or rebuilt is None:
        return Comparison(key, native, rebuilt)
    theirs, ours = Counter(native.rows), Counter(_reordered(rebuilt, native.columns))
    return Comparison(
        key, native, rebuilt, tuple((theirs - ours).elements()), tuple((ours - theirs).elements())
    )


def _reordered(table: TableRows, columns: tuple[str, ...]) -> list[Row]:
    """The rows with their columns in another order; as they are when the columns differ."""
    if sorted(table.columns) != sorted(columns):
        return list(table.rows)
    at = [table.columns.index(column) for column in columns]
    return [tuple(row[index] for index in at) for row in table.rows]


def _shown(row: Row) -> str:
    return "(" + ", ".join("NULL" if value is None else value for value in row) + ")"
