"""Filters as functions over the tuples of one relation.

The function is generated once per relation and called once per row. It reads the columns that
the filter reads and no others, each at most once, and parses their texts.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from gateway.core.errors import FilterError, ValueFormatError
from gateway.definitions.model import Column
from gateway.definitions.sql.expression import column_names as names_in
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter.analyze import analyze
from gateway.rowfilter.errors import FilterEvaluationError, FilterSource, NotEvaluatedHere
from gateway.rowfilter.evaluation.generate import Generator
from gateway.rowfilter.evaluation.interpret import interpret, passes
from gateway.rowfilter.expr import (
    And,
    Asked,
    ColumnRef,
    Constant,
    Expr,
    IsTrue,
    Not,
    Or,
    can_raise,
    children,
    column_names,
)
from gateway.rowfilter.parse import (
    Text,
    can_fail_without_rows,
    conjuncts,
    parse_filter,
)
from gateway.rowfilter.server.question import JudgedRow, answer
from gateway.rowfilter.transform import Predicate
from gateway.rowfilter.types import PARSERS

__all__ = [
    "RowFilter",
    "asks",
    "combine",
    "compile_filter",
    "disjunction",
    "place_filter",
    "reference",
]

Places: TypeAlias = Mapping[str, int]
NOWHERE: Final[Places] = MappingProxyType({})
_FILE_NUMBERS: Final = count(1)
_TRUE: Final = Constant(value=True)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A filter that is evaluated here, or left to the server.

    Attributes:
        text: Text of the filter.
        expr: The typed expression, with constants folded; if the server evaluates the filter,
            the known part of it: ``AND`` of a part that spares the server rows, and `Asked`.
        columns: Columns that it reads.
        source: Origin of the filter, for messages.
        refused: Reason why the server evaluates it; None if it is evaluated here.
    """

    text: str
    expr: Expr
    columns: frozenset[str]
    source: FilterSource | None
    refused: NotEvaluatedHere | None = None

    def bind(self, names: Sequence[str], places: Places = NOWHERE) -> Predicate:
        """Return a predicate of tuples with columns `names`, in that order.

        The tuple's values are in text format. The predicate raises `FilterEvaluationError` where
        PostgreSQL would raise, and `ValueFormatError` for a value that is not its type's, or an
        unchanged TOAST value that is needed. `places` has, by text, the places of the server's
        answers in the flags of a `JudgedRow`.

        Raises:
            FilterError: a column is not among `names`.
        """
        return _bind(self.expr, names, self.source, places)


def compile_filter(
    text: str,
    columns: Sequence[Column],
    *,
    source: FilterSource | None = None,
) -> RowFilter:
    """Compile a filter in the server's own rendering (``pg_get_expr(prqual, prrelid)``).

    Args:
        text: The rendering, made with an empty search_path.
        columns: Columns of the table for which it was written.
        source: Origin of the filter, for messages.

    Raises:
        FilterError: it cannot be evaluated here; with the reason and the position in `text`.
    """
    carrier = Text(text, source)
    expr = analyze(parse_filter(carrier), columns, carrier)
    return RowFilter(text, expr, frozenset(column_names(expr)), source)


def place_filter(
    text: str,
    columns: Sequence[Column],
    *,
    source: FilterSource | None = None,
) -> RowFilter:
    """Decide who evaluates a filter: the gateway if every node is in its exact core.

    Otherwise the server; `RowFilter.refused` has the reason. The leading operands of an AND that
    can neither raise nor need the server are kept: if one of them is false, so is the filter, and
    the server is not asked, unless the others may fail for every row.

    Args: as for `compile_filter`.

    Raises:
        FilterError: changes do not carry a column that the filter reads.
    """
    try:
        return compile_filter(text, columns, source=source)
    except NotEvaluatedHere as refused:
        carrier = Text(text, source)
        read = names_in(text)
        names = [column.name for column in columns]
        for column in columns:
            if column.name in read and column.generated == "v":
                raise
        kept: list[Expr] = []
        nodes = conjuncts(carrier)
        for node in nodes:
            try:
                part = analyze(node, columns, carrier)
            except NotEvaluatedHere:
                break
            if can_raise(part):
                break
            kept.append(part)
        if any(map(can_fail_without_rows, nodes[len(kept) :])):
            kept = []
        expr: Expr = And((*kept, Asked(text))) if kept else Asked(text)
        return RowFilter(text, expr, read.intersection(names), source, refused)


def combine(
    filters: Sequence[RowFilter], names: Sequence[str], places: Places = NOWHERE
) -> Predicate:
    """Return a predicate for several filters, one of which must pass; without any, all rows pass.

    They are tried from left to right, and a constant true decides before any of them.

    Raises:
        FilterError: a column is not among `names`.
    """
    expr = disjunction(filters)
    if expr == _TRUE:
        return _every_row
    return _bind(expr, names, filters[0].source, places)


def disjunction(filters: Sequence[RowFilter]) -> Expr:
    """Join filters, one of which must pass, as in `combine`."""
    exprs = [filter_.expr for filter_ in filters]
    if not exprs or _TRUE in exprs:
        return _TRUE
    return exprs[0] if len(exprs) == 1 else Or(tuple(exprs))


def asks(filters: Sequence[RowFilter], names: Sequence[str]) -> Predicate:
    """Return a predicate of rows about which the server must be asked, for one of `filters`.

    It is true if none of them is decided by the parts that are evaluated here.
    """
    undecided: list[Expr] = []
    for filter_ in filters:
        match filter_.expr:
            case Asked():
                return _every_row
            case And((*known, Asked())):
                undecided.append(Not(IsTrue(And(tuple(known)), expected=False)))
    return _bind(Or(tuple(undecided)), names, filters[0].source, NOWHERE)


def _every_row(_: Sequence[ColumnValue]) -> bool:
    return True


def _bind(
    expr: Expr, names: Sequence[str], source: FilterSource | None, places: Places
) -> Predicate:
    indexes = {name: index for index, name in enumerate(names)}
    for name in column_names(expr):
        if name not in indexes:
            raise FilterError(f'{source or "row filter"}: column "{name}" is not in the relation')
    failures = _Failures(source)
    generator = Generator(indexes, expr, places)
    body = generator.is_true(expr)
    lines = [
        "def passes(row):",
        "    try:",
        *(f"        {line}" for line in generator.prologue),
        f"        return {body}",
        "    except EvaluationError as error:",
        "        raise failures.evaluation(error) from None",
        "    except (AttributeError, IndexError, TypeError, ValueError):",
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
        return reference(expr, names, source, places)
    # This makes a traceback show the generated line.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(code, namespace)  # noqa: S102 - made from the typed tree; literals only as repr
    bound: Predicate = namespace["passes"]
    return bound


class _Failures:
    """Errors of one filter, without values."""

    __slots__ = ("source",)

    def __init__(self, source: FilterSource | None) -> None:
        self.source = source

    def evaluation(self, error: EvaluationError) -> FilterEvaluationError:
        return FilterEvaluationError(error.message, self.source, sqlstate=error.sqlstate)

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
    expr: Expr,
    names: Sequence[str],
    source: FilterSource | None = None,
    places: Places = NOWHERE,
) -> Callable[[Sequence[ColumnValue]], bool]:
    """Return the predicate of `RowFilter.bind`, interpreted: slow, for tests and deep nesting."""
    evaluate = interpret(expr)
    readers = {name: (names.index(name), PARSERS[oid]) for name, oid in _types(expr)}
    failures = _Failures(source)

    def row_passes(row: Sequence[ColumnValue]) -> bool:
        values = _Values(row, places)
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


class _Values(dict[str | Asked, object]):
    """Row for `interpret`; the server's answers are read when needed."""

    def __init__(self, row: Sequence[ColumnValue], places: Places) -> None:
        super().__init__()
        self._row, self._places = row, places

    def __missing__(self, key: str | Asked) -> object:
        assert isinstance(key, Asked)
        assert isinstance(self._row, JudgedRow)
        return answer(self._row, self._places[key.text])


def _types(expr: Expr) -> set[tuple[str, int]]:
    if isinstance(expr, ColumnRef):
        return {(expr.name, expr.type_oid)}
    return {pair for child in children(expr) for pair in _types(child)}
