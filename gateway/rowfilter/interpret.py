"""Typed expression -> closure, with SQL's three truth values: the readable reference.

A compiled expression maps a row to a value, None being NULL ("unknown" for a truth value). Only
`passes` turns unknown into a decision. `compile` makes the fast form; it must agree with this.

Source: src/backend/executor/execExprInterp.c.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, assert_never

from gateway.rowfilter.expr import (
    And,
    AnyAll,
    ArrayOf,
    Call,
    ColumnRef,
    Constant,
    Distinct,
    Expr,
    IsNull,
    IsTrue,
    Not,
    Or,
    Value,
)

__all__ = ["Evaluator", "Row", "any_all", "distinct", "interpret", "passes"]

Row: TypeAlias = Mapping[str, Value]
"""Column values by name, already read from their text; None is NULL."""
Evaluator: TypeAlias = Callable[[Row], Any]


def interpret(expr: Expr) -> Evaluator:
    """A function that evaluates `expr` on a row.

    It raises `EvaluationError` exactly when PostgreSQL would: all arguments of an operator are
    evaluated, also after one was NULL; AND and OR stop at the first that decides.
    """
    match expr:
        case ColumnRef(name):
            return lambda row: row[name]
        case Constant(value):
            return lambda _: value
        case Call(operation, arguments):
            return _strict(operation.function, [interpret(a) for a in arguments])
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
        case ArrayOf(elements):
            items = [interpret(element) for element in elements]
            return lambda row: tuple([item(row) for item in items])
        case AnyAll(operation, scalar, array, is_any):
            first, second, function = interpret(scalar), interpret(array), operation.function
            return lambda row: any_all(function, first(row), second(row), is_any)
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


def distinct(equal: Callable[..., Value], left: Value, right: Value) -> bool:
    """``left IS DISTINCT FROM right``: NULLs are equal to each other and to nothing else."""
    if left is None or right is None:
        return left is not right
    return not equal(left, right)


def any_all(function: Callable[..., Value], scalar: Value, array: Any, is_any: bool) -> bool | None:
    """``scalar operator ANY (array)`` or ALL, with a strict operator.

    An empty array decides even for a NULL scalar, a NULL array never does.

    Source: ExecEvalScalarArrayOp().
    """
    if array is None:
        return None
    if not array:
        return not is_any
    if scalar is None:
        return None
    unknown = False
    for item in array:
        if item is None:
            unknown = True
        elif function(scalar, item) is is_any:
            return is_any
    return None if unknown else not is_any


def passes(truth: bool | None) -> bool:
    """SQL WHERE: a row passes only when the filter is true; false and NULL both drop it."""
    return truth is True
