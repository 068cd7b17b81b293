"""Rows, ``ROW(...)``, where a filter may have them: compared with <, and tested for NULL.

The server prints = and <> of rows as AND and OR of the columns' comparisons.

Source: make_row_comparison_op(), ExecInitExprRec(), eval_const_expressions().
"""

from __future__ import annotations

from gateway.rowfilter import operators
from gateway.rowfilter.analysis import lookup
from gateway.rowfilter.analysis.context import Context
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.expr import Constant, Expr, IsNull, Pair, RowCompare
from gateway.rowfilter.fold import Junction, negate
from gateway.rowfilter.parse import Node, unwrap
from gateway.rowfilter.types import BOOL

__all__ = ["comparison", "is_row", "null_test"]


def is_row(node: Node) -> bool:
    """`node` is ``ROW(...)``."""
    return unwrap(node)[0] == "row_expr"


def comparison(context: Context, node: Node, name: str) -> Typed:
    """``ROW(a, b) < ROW(c, d)``."""
    if not (is_row(node.lexpr) and is_row(node.rexpr)) or name not in ("<", "<=", ">", ">="):
        raise context.text.refuse("this comparison of rows is not supported", node)
    lefts, rights = (unwrap(side)[1].args for side in (node.lexpr, node.rexpr))
    if len(lefts) != len(rights):
        raise context.text.refuse("unequal number of entries in row expressions", node)
    pairs = tuple(
        _pair(context, node, left, right) for left, right in zip(lefts, rights, strict=True)
    )
    return Typed(RowCompare(name, pairs), BOOL)


def _pair(context: Context, node: Node, left: Node, right: Node) -> Pair:
    sides = [context.typed(left), context.typed(right)]
    kinds = [operators.operator_type(side.type_oid) for side in sides]
    equal, less = (lookup.comparison(context, node, name, *kinds) for name in ("=", "<"))
    less = context.check('"<"', less, sides, node)
    if less.can_raise:  # there is no order, which the executor finds before equality
        equal = less
    first, second = context.adapted(less, sides, node)
    return Pair(equal, less, first, second)


def null_test(context: Context, node: Node, *, is_null: bool) -> Typed:
    """``ROW(...) IS NULL``: all columns are; ``IS NOT NULL``: none is.

    A constant column that decides is found before anything is evaluated.
    """
    columns = [_column(context, column) for column in unwrap(node.arg)[1].args]
    values = [column.value for column in columns if isinstance(column, Constant)]
    if len(values) == len(columns):
        # The planner makes a constant of the row, but does not look at it: the test is carried out
        # for each row, so that it cuts nothing off.
        holds = all((value is None) is is_null for value in values)
        always = IsNull(Constant(None))
        return Typed(always if holds else negate(always), BOOL)
    tests: list[Expr] = []
    for column in columns:
        if isinstance(column, Constant):
            if (column.value is None) is not is_null:
                return Typed(Constant(False), BOOL)
        else:
            tests.append(IsNull(column) if is_null else negate(IsNull(column)))
    fold = Junction(is_and=True)
    for test in tests:
        fold.add(test)
    return Typed(fold.result(), BOOL)


def _column(context: Context, node: Node) -> Expr:
    if is_row(node):  # a row in a row is a value that is not NULL, whatever its columns are
        raise context.text.refuse("a row within a row is not supported", node)
    return context.typed(node).expr
