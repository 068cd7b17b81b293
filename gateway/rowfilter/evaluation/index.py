"""Selections: the texts of one column with which a filter can pass at all.

With hundreds of filters such as ``region = 'EU'`` on one table, a row is looked up by its text
instead of evaluating each of them. Only exact cases are used: a type whose equal values have one
text under the walsender's settings, and an operand that PostgreSQL would reach without the chance
of an error before it (AND goes from left to right; an operand that may raise must be evaluated).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.pgtypes.arrays import Array
from gateway.pgtypes.catalog import TYPES
from gateway.pgtypes.datetimes.iso import format_date
from gateway.pgtypes.text import strings
from gateway.rowfilter.evaluation.compile import RowFilter
from gateway.rowfilter.expr import (
    And,
    AnyAll,
    Call,
    ColumnRef,
    Constant,
    Expr,
    Operation,
    Or,
    Value,
    can_raise,
)

__all__ = ["Selection", "selection_of"]

_TEXT: Final = frozenset(TYPES[name][0] for name in ("text", "varchar", "name", "uuid"))
"""Types whose equality is that of the bytes; a UUID has one printed form."""
_INTEGER: Final = frozenset(TYPES[name][0] for name in ("int2", "int4", "int8"))
_DATE: Final = TYPES["date"][0]
_BPCHAR: Final = TYPES["bpchar"][0]
_EQUALITY: Final = frozenset(
    {"texteq", "nameeq", "nameeqtext", "texteqname", "uuid_eq", "date_eq", "bpchareq"}
    | {f"int{sizes}eq" for sizes in ("2", "4", "8", "24", "28", "42", "48", "82", "84")}
)


@dataclass(frozen=True, slots=True)
class Selection:
    """Texts of `column` outside of which no row passes, and none raises.

    Nor does one that has NULL there, unless `null_too`: NULL = 'EU' is not false, so that AND goes
    on to its next operand, and that one may raise.
    """

    column: str
    texts: frozenset[bytes]
    null_too: bool = False


def selection_of(filters: Sequence[RowFilter]) -> Selection | None:
    """Return the selection of rows that can pass one of `filters`, or None for any row."""
    if not filters:
        return None
    return _union([_selection(filter_.expr) for filter_ in filters])


def _selection(expr: Expr) -> Selection | None:
    match expr:
        case Call(operation, (left, Constant(value))) if operation.name in _EQUALITY:
            return _of(_column(left), (value,))
        case Call(operation, (Constant(value), right)) if operation.name in _EQUALITY:
            return _of(_column(right), (value,))
        case AnyAll(operation, scalar, Constant(Array() as array), True, True):
            return _of(_column(scalar), array.items) if operation.name in _EQUALITY else None
        case And(arguments):
            return _narrowest(arguments)
        case Or(arguments):
            return _union([_selection(argument) for argument in arguments])
        case _:
            return None


def _column(expr: Expr) -> ColumnRef | None:
    """Return the column that `expr` is, also as a comparison of char(n) sees it."""
    match expr:
        case ColumnRef(_, type_oid) if type_oid != _BPCHAR:
            return expr
        case Call(Operation(function=strings.trim_blanks), (ColumnRef(_, type_oid) as column,)):
            return column if type_oid == _BPCHAR else None
        case _:
            return None


def _of(column: ColumnRef | None, values: Sequence[Value]) -> Selection | None:
    if column is None:
        return None
    texts = [_text(column, value) for value in values if value is not None]
    if None in texts:
        return None
    return Selection(column.name, frozenset(text for text in texts if text is not None))


def _text(column: ColumnRef, value: Value) -> bytes | None:
    """Return the only text of a column's value that equals `value`; None if there may be more."""
    match value:
        case bytes() if column.type_oid in _TEXT:
            return value
        case bytes() if column.type_oid == _BPCHAR and column.type_modifier > 0:
            return strings.to_bpchar(value, column.type_modifier)
        case int() if isinstance(value, bool):
            return None
        case int() if column.type_oid in _INTEGER:
            return b"%d" % value
        case int() if column.type_oid == _DATE:
            return format_date(value)
        case _:
            return None


def _narrowest(arguments: Sequence[Expr]) -> Selection | None:
    best: Selection | None = None
    for place, argument in enumerate(arguments):
        found = _selection(argument)
        if found is not None and (best is None or len(found.texts) < len(best.texts)):
            null_too = found.null_too or any(map(can_raise, arguments[place + 1 :]))
            best = Selection(found.column, found.texts, null_too)
        if can_raise(argument):
            break  # what comes after it is not reached without the chance of an error
    return best


def _union(selections: Sequence[Selection | None]) -> Selection | None:
    found = [selection for selection in selections if selection is not None]
    if len(found) < len(selections) or len({selection.column for selection in found}) != 1:
        return None
    texts = frozenset[bytes]().union(*(selection.texts for selection in found))
    return Selection(found[0].column, texts, any(selection.null_too for selection in found))
