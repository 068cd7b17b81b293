"""Row filters of a plan, each compiled once, and their evaluators."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from gateway.definitions.model import FilterClause, Operation, Publish, Table, TableCopy
from gateway.definitions.moving import read_columns
from gateway.routing.row.targets import Lookup, Passes
from gateway.rowfilter import (
    AskedColumn,
    FilterSource,
    Question,
    RowFilter,
    asks,
    combine,
    compile_filter,
    place_filter,
    selection_of,
)
from gateway.rowfilter.expr import can_raise

__all__ = ["Asking", "Filters"]

_TEXT: Final = 25
_EVERY_ROW: Final = compile_filter("true", ())


@dataclass(frozen=True, slots=True)
class Asking:
    """Question that the server is asked about the rows of one relation.

    Attributes:
        indexes: Index in a tuple of each of the question's columns; None for a column of no table.
        places: Index of each filter in the question, by the filter's text.
        needed: Predicate: whether the server must see a row, by operation; it never must
            for operations without an entry.
    """

    question: Question
    indexes: tuple[int | None, ...]
    places: Mapping[str, int]
    needed: Mapping[Operation, Passes]


class Filters:
    """Row filters by clause, evaluated here or by the server.

    Args:
        tables: Tables by OID; read when a clause is first compiled.
        server: Whether the server evaluates filters that are not evaluated here; otherwise they are
            errors.

    Attributes:
        expected: Whether such filters may appear later.
    """

    def __init__(self, tables: Mapping[int, Table], *, server: bool) -> None:
        self._tables = tables
        self._understand = place_filter if server else compile_filter
        self._compiled: dict[FilterClause, RowFilter] = {}
        self.expected = False

    def of(self, clause: FilterClause) -> RowFilter:
        """Return the filter of a clause.

        Raises:
            FilterError: neither the gateway nor the server can evaluate it.
        """
        if clause.formula is not None:
            # Its targets are `gateway.routing.row.moving_route`'s: only what it reads is asked for.
            return replace(_EVERY_ROW, text=clause.text, columns=read_columns(clause))
        if clause not in self._compiled:
            table = self._tables[clause.table_oid]
            source = FilterSource(str(table), clause.publication)
            self._compiled[clause] = self._understand(clause.text, table.columns, source=source)
        return self._compiled[clause]

    def compile(self, publishes: Sequence[Publish], copies: Sequence[TableCopy] = ()) -> None:
        """Compile all filters, so that an unusable one fails before its first row.

        Copies may have filters that the stream has not reached yet.

        Raises:
            FilterError: a filter cannot be evaluated.
        """
        of_publishes = (clauses for each in publishes for clauses in each.filters.values())
        for clause in chain(*of_publishes, *(copy.filters for copy in copies)):
            self.of(clause)

    def evaluations(self) -> list[tuple[str, str]]:
        """Return each filter, by publication and table, with its evaluator and the reason."""
        result = []
        for row_filter in self._compiled.values():
            who = "evaluated here"
            if row_filter.refused is not None:
                who = f"evaluated by the server: {row_filter.refused.reason}"
            result.append((f"{row_filter.source}", who))
        return sorted(set(result))

    def evaluators(self, publish: Publish) -> str:
        """Return the evaluator of the filters of `publish`, in a few words."""
        clauses = {clause for found in publish.filters.values() for clause in found}
        asked = {self.of(clause).refused is not None for clause in clauses}
        if not asked:
            return "no filter"
        return "gateway and server" if len(asked) > 1 else "server" if True in asked else "gateway"

    @property
    def ask_server(self) -> bool:
        """Whether the server evaluates one of the filters, or may have to."""
        return self.expected or any(found.refused is not None for found in self._compiled.values())

    def asking(
        self,
        filters: Iterable[Mapping[Operation, Sequence[FilterClause]]],
        names: Sequence[str],
    ) -> Asking | None:
        """Return the server's question about tuples with columns `names`; None if it is not needed.

        `filters` has the filters of each subscription, by operation.
        """
        by_operation: dict[Operation, list[RowFilter]] = {}
        columns: dict[str, AskedColumn] = {}
        for of_subscription in filters:
            for operation, clauses in of_subscription.items():
                for clause in clauses:
                    row_filter = self.of(clause)
                    if row_filter.refused is not None:
                        by_operation.setdefault(operation, []).append(row_filter)
                        columns |= self._asked_columns(clause.table_oid, row_filter.columns)
        if not by_operation:
            return None
        texts = list(dict.fromkeys(f.text for found in by_operation.values() for f in found))
        read = [name for name in names if name in columns]
        asked = tuple(columns[name] for name in read) or (AskedColumn("none", _TEXT, None),)
        return Asking(
            Question(asked, tuple(texts)),
            tuple(map(names.index, read)) or (None,),
            {text: place for place, text in enumerate(texts)},
            {operation: asks(found, names) for operation, found in by_operation.items()},
        )

    def _asked_columns(self, table_oid: int, names: Container[str]) -> dict[str, AskedColumn]:
        return {
            column.name: AskedColumn(
                column.name,
                column.base_type_oid,
                None
                if column.collation is None or column.collation.name == "default"
                else column.collation.name,
            )
            for column in self._tables[table_oid].columns
            if column.name in names
        }

    def may_raise(self) -> list[str]:
        """Return the names of the publications with a row filter that may raise."""
        found = self._compiled.items()
        return sorted({clause.publication for clause, row in found if can_raise(row.expr)})

    def passes(
        self, clauses: Sequence[FilterClause], names: Sequence[str], asking: Asking | None
    ) -> Passes | None:
        """Return the decision on a tuple with columns `names`; None if every row passes."""
        if not clauses:
            return None
        places = {} if asking is None else asking.places
        return combine([self.of(clause) for clause in clauses], names, places)

    def lookup(self, clauses: Sequence[FilterClause], names: Sequence[str]) -> Lookup | None:
        """Return the texts of one column with which a row can pass; None if there is no limit."""
        selection = selection_of([self.of(clause) for clause in clauses])
        if selection is None:
            return None
        null: frozenset[bytes | None] = frozenset({None} if selection.null_too else ())
        return Lookup(names.index(selection.column), selection.texts | null)
