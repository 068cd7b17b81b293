"""AND, OR, NOT, IS NULL, IS TRUE and their kin."""

from __future__ import annotations

from gateway.rowfilter.analysis.context import Context
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.expr import Constant, Expr, IsNull, IsTrue
from gateway.rowfilter.fold import Junction, negate
from gateway.rowfilter.parse import Node
from gateway.rowfilter.types import BOOL

__all__ = ["bool_expr", "boolean_test", "null_test"]


def bool_expr(context: Context, node: Node) -> Typed:
    """Type AND, OR and NOT."""
    match node.boolop:
        case 1 | 2:  # AND_EXPR, OR_EXPR
            return Typed(_junction(context, node, is_and=node.boolop == 1), BOOL)
        case _:
            return Typed(negate(context.boolean(node.args[0])), BOOL)


def _junction(context: Context, node: Node, *, is_and: bool) -> Expr:
    """Fold AND or OR; a deciding constant cuts off even the operands before it.

    Source: simplify_and_arguments(), simplify_or_arguments().
    """
    fold = Junction(is_and=is_and)
    for argument in node.args:
        failures = len(context.failures)
        expr = context.boolean(argument)
        if fold.decided:  # PostgreSQL no longer looks here: errors of constants do not count
            del context.failures[failures:]
        else:
            fold.add(expr)
    return fold.result()


def null_test(context: Context, node: Node) -> Typed:
    """IS NULL, IS NOT NULL."""
    is_null = node.nulltesttype == 1  # IS_NULL
    expr = test_null(context.typed(node.arg).expr)
    return Typed(expr if is_null else negate(expr), BOOL)


def test_null(expr: Expr) -> Expr:
    """IS NULL of a scalar."""
    return Constant(expr.value is None) if isinstance(expr, Constant) else IsNull(expr)


def boolean_test(context: Context, node: Node) -> Typed:
    """IS TRUE, IS NOT FALSE, IS UNKNOWN and so on."""
    argument = context.boolean(node.arg)
    kind, negated = divmod(node.booltesttype - 1, 2)
    expected = (True, False, None)[kind]
    expr: Expr
    if isinstance(argument, Constant):
        expr = Constant(argument.value is expected)
    else:
        expr = IsNull(argument) if expected is None else IsTrue(argument, expected)
    return Typed(negate(expr) if negated else expr, BOOL)
