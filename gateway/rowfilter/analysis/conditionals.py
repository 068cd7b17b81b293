"""CASE, COALESCE, GREATEST and LEAST, folded as eval_const_expressions() folds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.pgtypes.catalog import OPERATORS
from gateway.rowfilter import operators, types
from gateway.rowfilter.analysis import leaves
from gateway.rowfilter.analysis.context import Context
from gateway.rowfilter.analysis.lookup import comparison
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.evaluation.interpret import min_max as evaluate_min_max
from gateway.rowfilter.expr import Case, Coalesce, Constant, Expr, MinMax
from gateway.rowfilter.parse import Node, unwrap
from gateway.rowfilter.types import type_name

__all__ = ["case_expr", "coalesce_expr", "min_max_expr"]

_NUMBERS: Final = (types.INT2, types.INT4, types.INT8, types.NUMERIC, types.FLOAT4, types.FLOAT8)


def case_expr(context: Context, node: Node) -> Typed:
    """Type a CASE, with and without an expression after it.

    Code after a condition that is constantly false, or after one that is constantly true, is
    ignored, so that errors of constants in it do not count.
    """
    subject = context.typed(node.arg) if node.HasField("arg") else None
    branches: list[tuple[Expr, Expr]] = []
    results: list[Typed] = []
    default: Expr | None = None
    for when in (unwrap(arg)[1] for arg in node.args):
        before = len(context.failures)
        condition = _condition(context, subject, when)
        if default is not None:
            del context.failures[before:]
        cut = default is not None or (
            isinstance(condition, Constant) and condition.value is not True
        )
        before = len(context.failures)
        result = context.typed(when.result)
        results.append(result)
        if cut:
            del context.failures[before:]
        elif isinstance(condition, Constant):
            default = result.expr
        else:
            branches.append((condition, result.expr))
    before = len(context.failures)
    otherwise = context.typed(node.defresult)
    if default is not None:
        del context.failures[before:]
    expr = otherwise.expr if default is None else default
    type_oid = _common_type(context, node, [*results, otherwise])
    if branches:
        expr = Case(tuple(branches), expr)
    return context.result(expr, type_oid, [*results, otherwise], node)


def _condition(context: Context, subject: Typed | None, when: Node) -> Expr:
    if subject is None:
        return context.boolean(when.expr)
    value = context.typed(when.expr)
    # COLLATE on the subject chooses its collation, but no longer overrides that of the value.
    subject = Typed(subject.expr, subject.type_oid, subject.collation)
    sides = _comparable(context, when, subject, value)
    left, right = (operators.operator_type(side.type_oid) for side in sides)
    operation = comparison(context, when, "=", left, right)
    context.check('"="', operation, sides, when)
    return context.call(operation, [side.expr for side in sides], when)


def _comparable(context: Context, node: Node, subject: Typed, value: Typed) -> list[Typed]:
    """Both sides of the = that CASE implies, with the casts that the server does not print.

    Source: oper(), for the types where its choice is plain.
    """
    left, right = (operators.operator_type(side.type_oid) for side in (subject, value))
    if left == right or ("=", left, right) in OPERATORS:
        return [subject, value]
    common: int | None = None
    if left in _NUMBERS and right in _NUMBERS:
        floats = {left, right} & {types.FLOAT4, types.FLOAT8}
        common = types.FLOAT8 if floats else types.NUMERIC
    elif {left, right} == {types.BPCHAR, types.TEXT} and types.VARCHAR not in (
        subject.type_oid,
        value.type_oid,
    ):
        common = types.TEXT
    if common is None:
        raise context.text.refuse(
            f"CASE that compares {type_name(left)} with {type_name(right)} is not supported; "
            "write WHEN with the whole condition",
            node,
        )
    return [leaves.cast(context, side, common, node) for side in (subject, value)]


def _common_type(context: Context, node: Node, arguments: Sequence[Typed]) -> int:
    kinds = {typed.type_oid for typed in arguments}
    if len(kinds) != 1:
        raise context.text.refuse("results that differ in type", node)
    return kinds.pop()


def coalesce_expr(context: Context, node: Node) -> Typed:
    """Type a COALESCE; arguments after a constant that is not NULL are ignored."""
    arguments: list[Typed] = []
    kept: list[Expr] = []
    decided = False
    for argument in node.args:
        before = len(context.failures)
        typed = context.typed(argument)
        arguments.append(typed)
        if decided:
            del context.failures[before:]
        elif not isinstance(typed.expr, Constant):
            kept.append(typed.expr)
        elif typed.expr.value is not None:
            kept.append(typed.expr)
            decided = True
    expr: Expr = Coalesce(tuple(kept))
    if len(kept) < 2:
        expr = kept[0] if kept else Constant(None)
    return context.result(expr, _common_type(context, node, arguments), arguments, node)


def min_max_expr(context: Context, node: Node) -> Typed:
    """Type GREATEST and LEAST."""
    arguments = [context.typed(argument) for argument in node.args]
    type_oid = _common_type(context, node, arguments)
    name = "GREATEST" if node.op == 1 else "LEAST"
    kind = operators.operator_type(arguments[0].type_oid)
    less = comparison(context, node, "<", kind, kind)
    context.check(name, less, arguments, node)
    expr: Expr = MinMax(
        operators.whole(less), tuple(typed.expr for typed in arguments), name == "GREATEST"
    )
    values = [typed.expr.value for typed in arguments if isinstance(typed.expr, Constant)]
    if isinstance(expr, MinMax) and len(values) == len(arguments):
        function, is_greatest = expr.less.function, expr.is_greatest
        expr = context.evaluated(
            expr, lambda: evaluate_min_max(function, values, is_greatest), node
        )
    return context.result(expr, type_oid, arguments, node)
