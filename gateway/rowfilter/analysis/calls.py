"""Operators and functions."""

from __future__ import annotations

from gateway.rowfilter import operators
from gateway.rowfilter.analysis import arrays
from gateway.rowfilter.analysis.context import Context
from gateway.rowfilter.analysis.lookup import comparison, operator, operator_name
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.expr import Constant, Distinct, NullIf, Operation
from gateway.rowfilter.fold import fold_distinct, fold_null_if, negate
from gateway.rowfilter.parse import Node, unwrap
from gateway.rowfilter.types import BOOL, type_name

__all__ = ["a_expr", "func_call"]


def a_expr(context: Context, node: Node) -> Typed:
    """Type an expression with an operator."""
    name = operator_name(context, node)
    match node.kind:
        case 1:  # AEXPR_OP
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
    if operation.prepare is not None and not isinstance(arguments[1].expr, Constant):
        raise context.text.refuse(f'operator "{name}" with a pattern that is not constant', node)
    context.check(f'"{name}"', operation, arguments, node)
    expr = context.call(operation, [typed.expr for typed in arguments], node)
    return context.result(expr, result, arguments, node)


def _equality(context: Context, node: Node, name: str) -> tuple[Operation, list[Typed]]:
    arguments = [context.typed(node.lexpr), context.typed(node.rexpr)]
    left, right = (operators.operator_type(typed.type_oid) for typed in arguments)
    operation = comparison(context, node, name, left, right)
    context.check(f'"{name}"', operation, arguments, node)
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
    """Type a call of a function."""
    names = [unwrap(name)[1].sval for name in node.funcname]
    if names[:-1] not in ([], ["pg_catalog"]) or node.func_variadic:
        raise context.text.refuse("this form of a function is not evaluated here", node)
    name: str = names[-1]
    arguments = [context.typed(argument) for argument in node.args]
    found = operators.find_function(name, tuple(typed.type_oid for typed in arguments))
    if found is None:
        shown = ", ".join(type_name(typed.type_oid) for typed in arguments)
        raise context.text.refuse(f"function {name}({shown})", node)
    operation, result = found
    if operation.prepare is not None and not isinstance(arguments[1].expr, Constant):
        raise context.text.refuse(f"function {name}() with a pattern that is not constant", node)
    context.check(f"{name}()", operation, arguments, node)
    expr = context.call(operation, [typed.expr for typed in arguments], node)
    return context.result(expr, result, arguments, node)
