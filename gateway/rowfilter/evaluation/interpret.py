"""Typed expression -> closure, with SQL's three truth values: the readable reference.

A compiled expression maps a row to a value, None being NULL ("unknown" for a truth value). Only
`passes` turns unknown into a decision. `compile` makes the fast form; it must agree with this.

Source: src/backend/executor/execExprInterp.c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, assert_never

from gateway.pgtypes.arrays import Array
from gateway.rowfilter.expr import (
    And,
    AnyAll,
    Asked,
    Call,
    Case,
    Coalesce,
    ColumnRef,
    Constant,
    Distinct,
    Expr,
    IsNull,
    IsTrue,
    MinMax,
    Not,
    NullIf,
    Or,
    Value,
)

__all__ = [
    "Evaluator",
    "Row",
    "any_all",
    "distinct",
    "interpret",
    "min_max",
    "null_if",
    "passes",
]

Row: TypeAlias = Mapping[Any, Value]
"""Column values by name, already parsed, None for NULL; and answers by `Asked`."""
Evaluator: TypeAlias = Callable[[Row], Any]


def interpret(expr: Expr) -> Evaluator:
    """Return a function that evaluates `expr` on a row.

    It raises `EvaluationError` exactly when PostgreSQL would: all arguments of an operator are
    evaluated, also after one was NULL; AND, OR, CASE and COALESCE stop at the first that decides.
    """
    match expr:
        case ColumnRef(name):
            return lambda row: row[name]
        case Constant(value):
            return lambda _: value
        case Asked():
            return lambda row: row[expr]
        case Call(operation, arguments):
            evaluators = [interpret(a) for a in arguments]
            return _strict(operation.function, evaluators)
        case And(arguments):
            return _junction([interpret(a) for a in arguments], decides=False)
        case Or(arguments):
            return _junction([interpret(a) for a in arguments], decides=True)
        case Not(argument):
            return _strict(lambda truth: not truth, [interpret(argument)])
        case IsNull(argument):
            inner = interpret(argument)
            return lambda row: inner(row) is None
        case IsTrue(argument, expected):
            inner = interpret(argument)
            return lambda row: inner(row) is expected
        case Distinct(equal, left, right):
            first, second, function = interpret(left), interpret(right), equal.function
            return lambda row: distinct(function, first(row), second(row))
        case AnyAll(operation, scalar, array, is_any):
            first, function, items = interpret(scalar), operation.function, array.value
            assert items is None or isinstance(items, Array)
            return lambda row: any_all(function, first(row), items, is_any)
        case Case(branches, default):
            return _case([(interpret(c), interpret(r)) for c, r in branches], interpret(default))
        case Coalesce(arguments):
            return _coalesce([interpret(a) for a in arguments])
        case NullIf(equal, left, right):
            first, second, function = interpret(left), interpret(right), equal.function
            return lambda row: null_if(function, first(row), second(row))
        case MinMax(less, arguments, is_greatest):
            values, function = [interpret(a) for a in arguments], less.function
            return lambda row: min_max(function, [value(row) for value in values], is_greatest)
    assert_never(expr)


def _strict(function: Callable[..., Value], arguments: list[Evaluator]) -> Evaluator:
    def call(row: Row) -> Value:
        values = [argument(row) for argument in arguments]
        return None if None in values else function(*values)

    return call


def _junction(arguments: list[Evaluator], *, decides: bool) -> Evaluator:
    def junction(row: Row) -> bool | None:
        unknown = False
        for argument in arguments:
            truth: bool | None = argument(row)
            if truth is decides:
                return decides
            unknown |= truth is None
        return None if unknown else not decides

    return junction


def _case(branches: list[tuple[Evaluator, Evaluator]], default: Evaluator) -> Evaluator:
    def case(row: Row) -> Value:
        for condition, result in branches:
            if condition(row) is True:
                return result(row)
        return default(row)

    return case


def _coalesce(arguments: list[Evaluator]) -> Evaluator:
    def coalesce(row: Row) -> Value:
        for argument in arguments:
            value = argument(row)
            if value is not None:
                return value
        return None

    return coalesce


def distinct(equal: Callable[..., Value], left: Value, right: Value) -> bool:
    """``left IS DISTINCT FROM right``: NULLs are equal to each other and to nothing else."""
    if left is None or right is None:
        return left is not right
    return not equal(left, right)


def null_if(equal: Callable[..., Value], left: Value, right: Value) -> Value:
    """``NULLIF(left, right)``."""
    if left is None or right is None:
        return left
    return None if equal(left, right) else left


def min_max(less: Callable[..., Value], values: Iterable[Value], is_greatest: bool) -> Value:
    """GREATEST, or LEAST, of `values`; None when all are NULL."""
    found: Value = None
    for value in values:
        if value is None:
            continue
        if found is None or (less(found, value) if is_greatest else less(value, found)):
            found = value
    return found


def any_all(
    function: Callable[..., Value], scalar: Value, array: Array | None, is_any: bool
) -> bool | None:
    """``scalar operator ANY (array)`` or ALL, with a strict operator.

    An empty array decides even for a NULL scalar, a NULL array never does.

    Source: ExecEvalScalarArrayOp().
    """
    if array is None:
        return None
    if not array.items:
        return not is_any
    if scalar is None:
        return None
    unknown = False
    for item in array.items:
        if item is None:
            unknown = True
        elif function(scalar, item) is is_any:
            return is_any
    return None if unknown else not is_any


def passes(truth: bool | None) -> bool:
    """Whether a row passes as in SQL's WHERE: only true passes, false and NULL do not."""
    return truth is True
