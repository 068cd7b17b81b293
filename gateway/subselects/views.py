"""Rows of one table as filters see them: plain filters compiled, values in canonical form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.core.errors import ValueFormatError
from gateway.definitions.model import Table
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.rowfilter import FilterSource, compile_filter
from gateway.subselects.formula import (
    LONGEST,
    Formula,
    Plain,
    Value,
    plains_of,
    set_tests_of,
    shortened,
)
from gateway.subselects.text.equality import canonical_text

__all__ = ["TableViews", "TupleView"]


class TableViews:
    """Views of the rows of one table.

    Args:
        table: The table.
        names: Names of the columns of a row.
        formulas: Filters on the table; None for none.
        values: Further columns whose values are asked for: those of sub-selects on the table.

    Raises:
        FilterError: the gateway does not evaluate a plain filter.
    """

    def __init__(
        self,
        table: Table,
        names: Sequence[str],
        formulas: Iterable[Formula | None],
        values: Iterable[tuple[str, ...]] = (),
    ) -> None:
        formulas = list(formulas)
        self.places = {name: place for place, name in enumerate(names)}
        self.predicates = {
            plain: compile_filter(plain.text, table.columns, source=FilterSource(str(table))).bind(
                names
            )
            for formula in formulas
            for plain in plains_of(formula)
        }
        canonical = {column.name: canonical_text(column) for column in table.columns}
        asked = {*values, *(test.columns for f in formulas for test in set_tests_of(f))}
        self.values = {
            columns: tuple((self.places[name], canonical[name]) for name in columns)
            for columns in asked
        }

    def of(self, row: Sequence[ColumnValue]) -> TupleView:
        """Return the view of a row in which the columns that decide are known."""
        return TupleView(self, row)


class TupleView:
    """`gateway.subselects.formula.RowView` of a tuple."""

    __slots__ = ("_row", "_values", "_views")

    def __init__(self, views: TableViews, row: Sequence[ColumnValue]) -> None:
        self._views = views
        self._row = row
        self._values: dict[tuple[str, ...], Value] = {}

    def plain(self, plain: Plain) -> bool:
        """Whether the row passes a plain filter."""
        return self._views.predicates[plain](self._row)

    def value(self, columns: tuple[str, ...]) -> Value:
        """Return the canonical texts of some columns."""
        value = self._values.get(columns)
        if value is None:  # several ask for it: who may want the row, and each that does
            found: list[bytes | None] = []
            for place, canonical in self._views.values[columns]:
                text = self._known(place)
                text = text if text is None or canonical is None else canonical(text)
                found.append(text if text is None or len(text) <= LONGEST else shortened(text))
            value = self._values[columns] = tuple(found)
        return value

    def text(self, column: str) -> bytes | None:
        """Return the text of a column as it was sent."""
        return self._known(self._views.places[column])

    def _known(self, place: int) -> bytes | None:
        text = self._row[place]
        if text is UNCHANGED:
            # It is in the replica identity, of which the old row is logged in full.
            raise ValueFormatError("a column of a filter over other tables was not sent")
        assert text is None or isinstance(text, bytes)
        return text
