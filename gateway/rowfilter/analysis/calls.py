"""Operators and functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.pgtypes.catalog import FUNCTIONS, TYPES, VOLATILE_FUNCTIONS
from gateway.rowfilter import operators
from gateway.rowfilter.analysis import arrays, leaves, rows
from gateway.rowfilter.analysis.context import NOT_IMMUTABLE, Context
from gateway.rowfilter.analysis.lookup import comparison, operator, operator_name
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.expr import Distinct, NullIf, Operation, Signature
from gateway.rowfilter.fold import fold_distinct, fold_null_if, negate
from gateway.rowfilter.overloads import Overload, overloads, resolve
from gateway.rowfilter.parse import Node, parse_expressions, unwrap
from gateway.rowfilter.types import BOOL, type_name

__all__ = ["a_expr", "func_call"]

_SQL_SYNTAX: Final = 4
"""COERCE_SQL_SYNTAX of libpg_query."""
_HIDDEN_CASTS: Final = frozenset(
    (TYPES[source][0], TYPES[target][0])
    for source, target in (
        ("varchar", "text"),
        ("bpchar", "text"),
        ("name", "text"),
        ("varbit", "bit"),
        ("int2", "int4"),
    )
)


def a_expr(context: Context, node: Node) -> Typed:
    """Everything that is written with an operator."""
    name = operator_name(context, node)
    match node.kind:
        case 1:  # AEXPR_OP
            if rows.is_row(node.lexpr) or rows.is_row(node.rexpr):
                return rows.comparison(context, node, name)
            return _binary(context, node, name)
        case 2 | 3:  # AEXPR_OP_ANY, AEXPR_OP_ALL
            return arrays.any_all(context, node, name, is_any=node.kind == 2)
        case 4 | 5:  # AEXPR_DISTINCT, AEXPR_NOT_DISTINCT
            return _distinct(context, node, name, negated=node.kind == 5)
        case 6:  # AEXPR_NULLIF
            return _null_if(context, node, name)
    raise context.text.refuse("this form is not how the server prints an expression", node)


def _binary(context: Context, node: Node, name: str) -> Typed:
    arguments = [context.typed(node.lexpr)] if node.HasField("lexpr") else []
    arguments.append(context.typed(node.rexpr))
    left = arguments[0].type_oid if len(arguments) == 2 else 0
    operation, result = operator(context, node, name, left, arguments[-1].type_oid)
    operation = context.check(f'"{name}"', operation, arguments, node)
    expr = context.call(operation, [typed.expr for typed in arguments], node)
    return context.result(expr, result, arguments, node)


def _equality(context: Context, node: Node, name: str) -> tuple[Operation, list[Typed]]:
    arguments = [context.typed(node.lexpr), context.typed(node.rexpr)]
    left, right = (operators.operator_type(typed.type_oid) for typed in arguments)
    operation = comparison(context, node, name, left, right)
    operation = context.check(f'"{name}"', operation, arguments, node)
    return operation, arguments


def _distinct(context: Context, node: Node, name: str, *, negated: bool) -> Typed:
    operation, arguments = _equality(context, node, name)
    left, right = context.adapted(operation, arguments, node)
    expr = fold_distinct(Distinct(operation, left, right))
    return Typed(negate(expr) if negated else expr, BOOL)


def _null_if(context: Context, node: Node, name: str) -> Typed:
    operation, arguments = _equality(context, node, name)
    left, right = (typed.expr for typed in arguments)
    expr = fold_null_if(NullIf(operators.whole(operation), left, right))
    # Its type is that of the first argument, its collation that of both.
    return context.result(expr, arguments[0].type_oid, arguments, node)


def func_call(context: Context, node: Node) -> Typed:
    """A function."""
    names = [unwrap(name)[1].sval for name in node.funcname]
    if names[:-1] not in ([], ["pg_catalog"]):
        raise context.text.refuse("user-defined functions are not allowed", node)
    for part in ("agg_order", "agg_filter", "agg_within_group", "agg_star", "agg_distinct", "over"):
        value = getattr(node, part)
        if node.HasField(part) if part in ("agg_filter", "over") else value:
            raise context.text.refuse("aggregate functions are not allowed in WHERE", node)
    name: str = names[-1]
    arguments = [leaves.text_constant(arg) or context.typed(arg) for arg in node.args]
    found = _overload(context, node, name, arguments)
    if found is None and node.funcformat == _SQL_SYNTAX:
        found = _with_hidden_casts(context, node, name, arguments)
    if found is None:
        shown = ", ".join(type_name(typed.type_oid) for typed in arguments)
        reason = "is not supported"
        if name in VOLATILE_FUNCTIONS:
            reason = NOT_IMMUTABLE if name not in FUNCTIONS else f"{reason}, or not immutable"
        raise context.text.refuse(f"function {name}({shown}) {reason}", node)
    operation, signature, arguments = found
    operation = context.check(f"{name}()", operation, arguments, node)
    expr = context.call(operation, [typed.expr for typed in arguments], node)
    return context.result(expr, signature.result, arguments, node)


def _overload(
    context: Context, node: Node, name: str, arguments: Sequence[Typed]
) -> tuple[Operation, Signature, list[Typed]] | None:
    for overload in overloads(name):
        given = [*arguments, *_defaults(context, overload, len(arguments))]
        actual = [typed.type_oid for typed in given]
        declared = list(overload.arguments)
        if overload.takes_any:
            if node.func_variadic:
                continue
            fixed = declared[:-1]
            declared = [*fixed, *[declared[-1]] * (len(actual) - len(fixed))]
        signature = resolve(declared, actual, overload.result)
        if signature is None:
            continue
        operation = operators.operation_for(overload.key, signature, context.major)
        if operation is not None:
            return operation, signature, given
    return None


def _with_hidden_casts(
    context: Context, node: Node, name: str, arguments: Sequence[Typed]
) -> tuple[Operation, Signature, list[Typed]] | None:
    """The function of SUBSTRING(... FROM ...) and its kin, which the server prints without casts.

    Only where one overload alone can be meant, so that nothing is chosen here.

    Source: get_func_sql_syntax() in ruleutils.c, which hides implicit casts of the arguments.
    """
    found = []
    for overload in overloads(name):
        pairs = list(zip(arguments, overload.arguments, strict=False))
        if len(arguments) == len(overload.arguments) and all(
            typed.type_oid == declared or (typed.type_oid, declared) in _HIDDEN_CASTS
            for typed, declared in pairs
        ):
            found.append([leaves.cast(context, typed, declared, node) for typed, declared in pairs])
    return _overload(context, node, name, found[0]) if len(found) == 1 else None


def _defaults(context: Context, overload: Overload, given: int) -> list[Typed]:
    """The defaults of the arguments that a call leaves out, when all have one."""
    missing = len(overload.arguments) - given
    if missing <= 0 or not overload.defaults:
        return []
    nodes = parse_expressions(overload.defaults)
    if missing > len(nodes):
        return []
    return [
        leaves.cast(context, context.typed(node), declared, node)
        for node, declared in zip(nodes[-missing:], overload.arguments[-missing:], strict=True)
    ]
