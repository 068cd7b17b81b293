"""Tables, for the compiled row path, of filters that compare columns with constants.

Most filters are no more than that: equality, IN, ranges and tests for NULL, joined by AND, OR and
NOT. None of it can raise, and three-valued logic comes down to two questions, "is it true?" and "is
it false?", which NOT exchanges. Any other filter has no such form, and stays a function
(`gateway.rowfilter.evaluation.generate`).

A text that no server sends for its type is an error of the function. A condition therefore reads at
least the values that the function reads, always before the row is decided.

A comparison holds if the column is not NULL, and stands to the constants as one of `orders` says.
With several constants, which are sorted, EQUAL means that it is among them, and the other two that
it is not. A text that cannot be read as `code` says is left to the function, also where `orders`
has none of the three, or all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeVar

from gateway._speedups import codes
from gateway._speedups.codes import ALL_OF, EQUAL, GREATER, IS_NULL, LESS, NOT, ONE_OF
from gateway._speedups.layouts import Condition
from gateway.pgtypes.arrays import Array
from gateway.pgtypes.catalog import TYPES
from gateway.pgtypes.datetimes import iso
from gateway.pgtypes.text import strings
from gateway.rowfilter.evaluation.compile import RowFilter, disjunction
from gateway.rowfilter.evaluation.generate import read_first, without_widening
from gateway.rowfilter.expr import (
    And,
    AnyAll,
    Call,
    ColumnRef,
    Constant,
    Distinct,
    Expr,
    IsNull,
    IsTrue,
    Not,
    Or,
)

__all__ = ["Condition", "condition_of"]

ANY_ORDER: Final = LESS | EQUAL | GREATER

_ORDERS: Final[Mapping[str, int]] = {
    "==": EQUAL,
    "!=": LESS | GREATER,
    "<": LESS,
    "<=": LESS | EQUAL,
    ">": GREATER,
    ">=": GREATER | EQUAL,
}
_MIRRORED: Final = {LESS: GREATER, GREATER: LESS}

_TRUE: Final[Condition] = Condition(ALL_OF)
_FALSE: Final[Condition] = Condition(ONE_OF)
_DEEPEST: Final = 32
"""Deeper nesting is left to the function."""

_INT8_MIN: Final = -(2**63)
_INT8_MAX: Final = 2**63 - 1
_INTEGERS: Final = frozenset(TYPES[name][0] for name in ("int2", "int4", "int8"))
_ENDS_OF_DATES: Final = {iso.DATE_INFINITY: _INT8_MAX, iso.DATE_MINUS_INFINITY: _INT8_MIN}
"""The infinities, like those of timestamps."""
_DATE: Final = TYPES["date"][0]
_TIMESTAMPS: Final = {
    TYPES["timestamp"][0]: codes.AS_TIMESTAMP,
    TYPES["timestamptz"][0]: codes.AS_TIMESTAMPTZ,
}
_FLOATS: Final = {TYPES["float4"][0]: codes.AS_FLOAT, TYPES["float8"][0]: codes.AS_DOUBLE}
_TEXTS: Final = frozenset(TYPES[name][0] for name in ("text", "varchar", "name", "uuid"))
_BOOL: Final = TYPES["bool"][0]
_NUMERIC: Final = TYPES["numeric"][0]
_ANYTHING: Final[Mapping[int, tuple[str, tuple[object, ...]]]] = {
    **dict.fromkeys((*_TEXTS, TYPES["bpchar"][0]), (codes.AS_TEXT, (b"",))),
    **dict.fromkeys(_INTEGERS, (codes.AS_INTEGER, (0,))),
    **{type_oid: (code, (0.0,)) for type_oid, code in _FLOATS.items()},
    **{_BOOL: (codes.AS_BOOLEAN, (0,)), _NUMERIC: (codes.AS_DECIMAL, (b"0",))},
}
"""Code, and any constant, of each type that is read before a filter."""


def condition_of(filters: Sequence[RowFilter], names: Sequence[str]) -> Condition | None:
    """Return the condition for tuples with columns `names` to pass one of `filters`, or None.

    It is equal to `combine` for all texts that the compiled path reads; it leaves all others.
    """
    tabulator = _Tabulator({name: index for index, name in enumerate(names)})
    expr = disjunction(filters)
    try:
        read = tuple(map(tabulator.is_readable, read_first(expr)))
        condition = tabulator.is_true(expr, 0)
    except _NoConditionError:
        return None
    return Condition(ALL_OF, (*read, condition)) if read else condition


class _NoConditionError(Exception):
    """Raised for a filter with more than comparisons with constants."""


class _Tabulator:
    """Builder of the condition under which an expression is true, or false."""

    def __init__(self, indexes: Mapping[str, int]) -> None:
        self._indexes = indexes

    def is_readable(self, column: ColumnRef) -> Condition:
        """Return a condition that is true of each value of `column` and leaves unreadable texts."""
        index = self._indexes[column.name]
        code, constants = _ANYTHING[column.type_oid]
        is_null = Condition(IS_NULL, column=index)
        compared = Condition(code, column=index, orders=ANY_ORDER, constants=constants)
        return Condition(ONE_OF, (is_null, compared))

    def is_true(self, expr: Expr, depth: int) -> Condition:
        """Return when `expr` is true."""
        depth = _deeper(depth)
        match expr:
            case Constant(value):
                return _TRUE if value is True else _FALSE
            case And(arguments):
                return self._all(ALL_OF, self.is_true, arguments, depth)
            case Or(arguments):
                return self._all(ONE_OF, self.is_true, arguments, depth)
            case Not(argument):
                return self.is_false(argument, depth)
            case IsTrue(argument, expected):
                return (self.is_true if expected else self.is_false)(argument, depth)
            case IsNull(ColumnRef() as column):
                return Condition(IS_NULL, column=self._indexes[column.name])
            case Distinct(equal, left, Constant(value)) if value is not None:
                is_null = self.is_true(IsNull(without_widening(left)), depth)
                differs = self._comparison(left, _order(equal.infix) ^ ANY_ORDER, (value,))
                return Condition(ONE_OF, (is_null, differs))
            case AnyAll():
                return self._search(expr, wanted=True)
            case ColumnRef(_, type_oid) if type_oid == _BOOL:
                return self._comparison(expr, EQUAL, (True,))
            case Call():
                return self._call(expr, wanted=True)
        raise _NoConditionError

    def is_false(self, expr: Expr, depth: int) -> Condition:
        """Return when `expr` is false, which for NULL it is not."""
        depth = _deeper(depth)
        match expr:
            case Constant(value):
                return _TRUE if value is False else _FALSE
            case And(arguments):
                return self._all(ONE_OF, self.is_false, arguments, depth)
            case Or(arguments):
                return self._all(ALL_OF, self.is_false, arguments, depth)
            case Not(argument):
                return self.is_true(argument, depth)
            case IsTrue() | IsNull() | Distinct():
                return Condition(NOT, (self.is_true(expr, depth),))
            case AnyAll():
                return self._search(expr, wanted=False)
            case ColumnRef(_, type_oid) if type_oid == _BOOL:
                return self._comparison(expr, EQUAL, (False,))
            case Call():
                return self._call(expr, wanted=False)
        raise _NoConditionError

    def _all(
        self,
        joint: str,
        build: Callable[[Expr, int], Condition],
        arguments: Sequence[Expr],
        depth: int,
    ) -> Condition:
        return Condition(joint, tuple(build(argument, depth) for argument in arguments))

    def _call(self, expr: Call, *, wanted: bool) -> Condition:
        orders = _order(expr.operation.infix)
        match expr.arguments:
            case (scalar, Constant(value)) if value is not None:
                pass
            case (Constant(value), scalar) if value is not None:
                orders = orders & EQUAL | sum(_MIRRORED[bit] for bit in _MIRRORED if orders & bit)
            case _:
                raise _NoConditionError
        return self._comparison(scalar, orders if wanted else orders ^ ANY_ORDER, (value,))

    def _search(self, expr: AnyAll, *, wanted: bool) -> Condition:
        """``= ANY (...)`` is true where the value is found, ``<> ALL (...)`` where it is not."""
        items = expr.array.value
        if expr.equality is not expr.is_any or not isinstance(items, Array) or not items.items:
            raise _NoConditionError
        present = tuple(item for item in items.items if item is not None)
        if not present:
            raise _NoConditionError
        if wanted is expr.is_any:
            orders = EQUAL
        else:
            # With a NULL in the array, not found is unknown.
            orders = LESS | GREATER if len(present) == len(items.items) else 0
        return self._comparison(expr.scalar, orders, present)

    def _comparison(self, scalar: Expr, orders: int, constants: Sequence[object]) -> Condition:
        scalar = without_widening(scalar)
        is_trimmed = False
        match scalar:
            case Call(operation, (ColumnRef() as inner,)):
                if operation.function is not strings.trim_blanks:
                    raise _NoConditionError
                scalar, is_trimmed = inner, True
        if not isinstance(scalar, ColumnRef):
            raise _NoConditionError
        code, found = _coded(scalar, constants, is_trimmed=is_trimmed)
        index = self._indexes[scalar.name]
        return Condition(code, column=index, orders=orders, constants=found)


def _coded(
    column: ColumnRef, constants: Sequence[object], *, is_trimmed: bool
) -> tuple[str, tuple[object, ...]]:
    """How the texts of `column` are read, and the constants, sorted, as they are compared so."""
    type_oid = column.type_oid
    if is_trimmed or type_oid in _TEXTS:
        return codes.AS_BPCHAR if is_trimmed else codes.AS_TEXT, tuple(_sorted(constants, bytes))
    if type_oid == _BOOL:
        return codes.AS_BOOLEAN, tuple(map(int, _sorted(constants, bool)))
    if type_oid == _DATE:
        return codes.AS_DATE, tuple(_ENDS_OF_DATES.get(day, day) for day in _sorted(constants, int))
    if type_oid in _TIMESTAMPS:
        return _TIMESTAMPS[type_oid], tuple(_sorted(constants, int))
    if type_oid in _FLOATS:
        return _FLOATS[type_oid], tuple(_sorted(constants, float))
    if type_oid in _INTEGERS and all(type(value) is int for value in constants):
        return codes.AS_INTEGER, tuple(_sorted(constants, int))
    if type_oid in _INTEGERS or type_oid == _NUMERIC:
        decimals = [_decimal(value) for value in constants]
        code = codes.AS_DECIMAL if type_oid == _NUMERIC else codes.AS_WHOLE
        return code, tuple(f"{number:f}".encode() for number in _sorted(decimals, Decimal))
    raise _NoConditionError


_Sortable = TypeVar("_Sortable", bytes, bool, int, float, Decimal)


def _sorted(constants: Sequence[object], kind: type[_Sortable]) -> list[_Sortable]:
    """The constants, each once, where all of them are of `kind`; `NAN` is not."""
    found = [value for value in constants if type(value) is kind]
    if len(found) < len(constants):
        raise _NoConditionError
    return sorted(set(found))


def _decimal(value: object) -> Decimal:
    """A number without rounding; one that a server prints in digits."""
    if isinstance(value, (int, float, Decimal)) and (number := Decimal(value)).is_finite():
        return number
    raise _NoConditionError


def _order(infix: str | None) -> int:
    orders = _ORDERS.get(infix or "")
    if orders is None:
        raise _NoConditionError
    return orders


def _deeper(depth: int) -> int:
    if depth >= _DEEPEST:
        raise _NoConditionError
    return depth + 1
