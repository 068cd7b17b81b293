"""Filters as functions over the tuples of one relation.

The function is generated once per relation and called once per row. It reads the columns that
the filter reads and no others, each at most once, and turns them from text into values.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from gateway.definitions.model import Column
from gateway.errors import FilterError, ValueFormatError
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter.analyze import analyze
from gateway.rowfilter.errors import FilterEvaluationError, FilterSource
from gateway.rowfilter.expr import ColumnRef, Constant, Expr, Or, children, column_names
from gateway.rowfilter.generate import Generator
from gateway.rowfilter.interpret import interpret, passes
from gateway.rowfilter.parse import Text, parse_filter
from gateway.rowfilter.transform import Predicate
from gateway.rowfilter.types import PARSERS

__all__ = ["RowFilter", "combine", "compile_filter", "reference"]

_FILE_NUMBERS: Final = count(1)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter that has been understood.

    Attributes:
        text: As it was given.
        expr: The typed expression, with constants folded.
        columns: The columns that it reads.
        source: Where it comes from, for messages.
    """

    text: str
    expr: Expr
    columns: frozenset[str]
    source: FilterSource | None

    def bind(self, names: Sequence[str]) -> Predicate:
        """A function that says whether a tuple with columns `names`, in that order, passes.

        The tuple's values are in text format. The function raises `FilterEvaluationError` where
        PostgreSQL would raise, and `ValueFormatError` for a value that is not its type's, or an
        unchanged TOAST value that is needed.

        Raises:
            FilterError: a column is not among `names`.
        """
        return _bind(self.expr, names, self.source)


def compile_filter(
    text: str,
    columns: Sequence[Column],
    *,
    source: FilterSource | None = None,
    major: int | None = None,
) -> RowFilter:
    """Understand a filter in the server's own rendering (``pg_get_expr(prqual, prrelid)``).

    Args:
        text: The rendering, made with an empty search_path.
        columns: The columns of the table that it was written for.
        source: Where it comes from, for messages.
        major: The server's major version. Without it, an operation whose results differ between
            versions raises `EvaluationError` where they do.

    Raises:
        FilterError: it cannot be evaluated exactly; with the reason and the position in `text`.
    """
    carrier = Text(text, source)
    expr = analyze(parse_filter(carrier), columns, carrier, major=major)
    return RowFilter(text, expr, frozenset(column_names(expr)), source)


def combine(filters: Sequence[RowFilter], names: Sequence[str]) -> Predicate:
    """One function for several filters of which one must pass; without any, every row passes.

    They are tried from left to right, and a constant true decides before any of them.

    Raises:
        FilterError: a column is not among `names`.
    """
    if not filters:
        return _every_row
    exprs = [filter_.expr for filter_ in filters]
    if any(isinstance(expr, Constant) and expr.value is True for expr in exprs):
        return _every_row
    expr = exprs[0] if len(exprs) == 1 else Or(tuple(exprs))
    return _bind(expr, names, filters[0].source)


def _every_row(_: Sequence[ColumnValue]) -> bool:
    return True


def _bind(expr: Expr, names: Sequence[str], source: FilterSource | None) -> Predicate:
    indexes = {name: index for index, name in enumerate(names)}
    for name in column_names(expr):
        if name not in indexes:
            raise FilterError(f'{source or "row filter"}: column "{name}" is not in the relation')
    failures = _Failures(source)
    generator = Generator(indexes, expr)
    body = generator.is_true(expr)
    lines = [
        "def passes(row):",
        "    try:",
        *(f"        {line}" for line in generator.prologue),
        f"        return {body}",
        "    except EvaluationError as error:",
        "        raise failures.evaluation(error) from None",
        "    except (AttributeError, TypeError, ValueError):",
        "        raise failures.format(row) from None",
        "",
    ]
    text = "\n".join(lines)
    file = f"<row filter {next(_FILE_NUMBERS)}>"
    namespace: dict[str, Any] = {
        **generator.constants,
        "EvaluationError": EvaluationError,
        "failures": failures,
    }
    try:
        code = compile(text, file, "exec")
    except (MemoryError, RecursionError, SyntaxError):  # too deep for Python's own parser
        return reference(expr, names, source)
    # So that a traceback shows the generated line.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(code, namespace)  # noqa: S102 - made from the typed tree; literals only as repr
    bound: Predicate = namespace["passes"]
    return bound


class _Failures:
    """Makes the errors of one filter; never shows a value."""

    __slots__ = ("source",)

    def __init__(self, source: FilterSource | None) -> None:
        self.source = source

    def evaluation(self, error: EvaluationError) -> FilterEvaluationError:
        return FilterEvaluationError(error.message, self.source)

    def format(self, row: Sequence[ColumnValue]) -> ValueFormatError:
        if UNCHANGED in row:
            return ValueFormatError(
                f"{self.source or 'row filter'}: an unchanged TOAST value that was not sent "
                "is needed",
                hint="every column of a filter must be part of the replica identity",
            )
        return ValueFormatError(
            f"{self.source or 'row filter'}: a value does not read as its column's type"
        )


def reference(
    expr: Expr, names: Sequence[str], source: FilterSource | None = None
) -> Callable[[Sequence[ColumnValue]], bool]:
    """The same function as `RowFilter.bind` gives, interpreted: slow, for tests and for depth."""
    evaluate = interpret(expr)
    readers = {name: (names.index(name), PARSERS[oid]) for name, oid in _types(expr)}
    failures = _Failures(source)

    def row_passes(row: Sequence[ColumnValue]) -> bool:
        values: dict[str, object] = {}
        for name, (index, parse) in readers.items():
            raw = row[index]
            if raw is UNCHANGED:
                raise failures.format(row)
            values[name] = None if raw is None else parse(raw)
        try:
            return passes(evaluate(values))
        except EvaluationError as error:
            raise failures.evaluation(error) from None

    return row_passes


def _types(expr: Expr) -> set[tuple[str, int]]:
    if isinstance(expr, ColumnRef):
        return {(expr.name, expr.type_oid)}
    return {pair for child in children(expr) for pair in _types(child)}
