"""Which rows a filter can pass at all, as far as one column's text decides it.

With hundreds of filters such as ``region = 'EU'`` on one table, a row is looked up by its text
instead of asking each of them. Only what is exact is used: a type whose equal values have one text
under the walsender's settings, and an operand that PostgreSQL would reach without the chance of an
error before it (AND goes from left to right; an operand that may raise must be evaluated).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.pgtypes.arrays import Array
from gateway.rowfilter.compile import RowFilter
from gateway.rowfilter.expr import (
    And,
    AnyAll,
    Call,
    ColumnRef,
    Constant,
    Expr,
    Or,
    Value,
    can_raise,
)

__all__ = ["Selection", "selection_of"]

_TEXT: Final = frozenset({25, 1043})  # text, varchar: equality is that of the bytes
_INTEGER: Final = frozenset({20, 21, 23})  # int8, int2, int4
_EQUALITY: Final = frozenset(
    {"texteq"} | {f"int{sizes}eq" for sizes in ("2", "4", "8", "24", "28", "42", "48", "82", "84")}
)


@dataclass(frozen=True, slots=True)
class Selection:
    """No row passes, and none raises, whose `column` has a text that is not among `texts`.

    Nor one that has NULL there, unless `null_too`: NULL = 'EU' is not false, so that AND goes on to
    its next operand, and that one may raise.
    """

    column: str
    texts: frozenset[bytes]
    null_too: bool = False


def selection_of(filters: Sequence[RowFilter]) -> Selection | None:
    """Return what a row needs to pass one of `filters`, or None when any row might."""
    if not filters:
        return None
    return _union([_selection(filter_.expr) for filter_ in filters])


def _selection(expr: Expr) -> Selection | None:
    match expr:
        case Call(operation, (ColumnRef() as column, Constant(value))) if _is_equal(operation.name):
            return _of(column, (value,))
        case Call(operation, (Constant(value), ColumnRef() as column)) if _is_equal(operation.name):
            return _of(column, (value,))
        case AnyAll(_, ColumnRef() as column, Constant(Array() as array), True, True):
            return _of(column, array.items)
        case And(arguments):
            return _narrowest(arguments)
        case Or(arguments):
            return _union([_selection(argument) for argument in arguments])
        case _:
            return None


def _is_equal(name: str) -> bool:
    return name in _EQUALITY


def _of(column: ColumnRef, values: Sequence[Value]) -> Selection | None:
    texts = [_text(column.type_oid, value) for value in values if value is not None]
    if None in texts:
        return None
    return Selection(column.name, frozenset(text for text in texts if text is not None))


def _text(type_oid: int, value: Value) -> bytes | None:
    """Return the only text of a column's value that equals `value`; None when there may be more."""
    if type_oid in _TEXT and isinstance(value, bytes):
        return value
    if type_oid in _INTEGER and isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
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
