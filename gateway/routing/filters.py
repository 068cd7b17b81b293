"""The row filters of a plan, each understood once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.definitions.model import FilterClause, Publish, Table
from gateway.routing.takers import Lookup, Passes
from gateway.rowfilter import FilterSource, RowFilter, combine, compile_filter, selection_of
from gateway.rowfilter.expr import can_raise

__all__ = ["Filters"]


class Filters:
    """Compiled filters by clause.

    Args:
        tables: By OID; looked at when a clause is met first.
        major: The server's major version, or None.
    """

    def __init__(self, tables: Mapping[int, Table], major: int | None) -> None:
        self._tables = tables
        self._major = major
        self._found: dict[FilterClause, RowFilter] = {}

    def of(self, clause: FilterClause) -> RowFilter:
        """Return the filter of a clause.

        Raises:
            FilterError: it cannot be evaluated exactly.
        """
        if clause not in self._found:
            table = self._tables[clause.table_oid]
            source = FilterSource(str(table), clause.publication)
            self._found[clause] = compile_filter(
                clause.text, table.columns, source=source, major=self._major
            )
        return self._found[clause]

    def compile(self, publishes: Sequence[Publish]) -> None:
        """Refuse a filter that cannot be evaluated now, not at its first row.

        Raises:
            FilterError: one of them.
        """
        for publish in publishes:
            for clauses in publish.filters.values():
                for clause in clauses:
                    self.of(clause)

    def may_raise(self) -> list[str]:
        """Return the names of the publications that have a row filter which may raise."""
        found = self._found.items()
        return sorted({clause.publication for clause, row in found if can_raise(row.expr)})

    def can_raise(self, clauses: Sequence[FilterClause]) -> bool:
        """Whether evaluating one of `clauses` may raise."""
        return any(can_raise(self.of(clause).expr) for clause in clauses)

    def passes(self, clauses: Sequence[FilterClause], names: Sequence[str]) -> Passes | None:
        """Return the decision on a tuple with columns `names`; None when every row passes."""
        if not clauses:
            return None
        return combine([self.of(clause) for clause in clauses], names)

    def lookup(self, clauses: Sequence[FilterClause], names: Sequence[str]) -> Lookup | None:
        """Return under which texts of one column a row can pass; None when any text may."""
        selection = selection_of([self.of(clause) for clause in clauses])
        if selection is None:
            return None
        null: frozenset[bytes | None] = frozenset({None} if selection.null_too else ())
        return Lookup(names.index(selection.column), selection.texts | null)
