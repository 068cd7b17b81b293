"""ANY and ALL of a constant array, and ARRAY[...] of constants."""

from __future__ import annotations

from gateway.pgtypes.arrays import Array
from gateway.rowfilter import types
from gateway.rowfilter.analysis.context import Context
from gateway.rowfilter.analysis.lookup import operator
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.evaluation.interpret import any_all as evaluate
from gateway.rowfilter.expr import AnyAll, Constant, Expr, Operation
from gateway.rowfilter.operators import is_comparison, operator_type
from gateway.rowfilter.parse import Node
from gateway.rowfilter.types import BOOL, type_name

__all__ = ["a_array_expr", "any_all"]


def any_all(context: Context, node: Node, name: str, *, is_any: bool) -> Typed:
    """``scalar operator ANY (array)``, or ALL."""
    scalar = context.typed(node.lexpr)
    array = context.typed(node.rexpr)
    element = types.element_type(array.type_oid)
    if element is None or not isinstance(array.expr, Constant):
        raise context.text.refuse("an array that is not constant", node)
    operation, result = operator(
        context, node, name, operator_type(scalar.type_oid), operator_type(element)
    )
    if not is_comparison(operation, result):
        raise context.text.refuse(f'operator "{name}" with ANY or ALL', node)
    context.check(f'"{name}"', operation, (scalar, array), node)
    of_scalar, of_item = operation.adapters or (None, None)
    left = scalar.expr if of_scalar is None else context.call(of_scalar, (scalar.expr,), node)
    right = array.expr if of_item is None else _adapted(array.expr, of_item)
    equality = {"==": True, "!=": False}.get(operation.infix or "")
    expr = AnyAll(operation, left, right, is_any, equality)
    return Typed(_folded(context, expr, node), BOOL)


def _adapted(array: Constant, adapter: Operation) -> Constant:
    if not isinstance(array.value, Array):
        return array
    items = [None if item is None else adapter.function(item) for item in array.value.items]
    return Constant(Array(tuple(items)))


def _folded(context: Context, expr: AnyAll, node: Node) -> Expr:
    scalar, array = expr.scalar, expr.array.value
    if not isinstance(scalar, Constant):
        return expr
    assert array is None or isinstance(array, Array)
    return context.evaluated(
        expr,
        lambda: evaluate(expr.operation.function, scalar.value, array, expr.is_any),
        node,
    )


def a_array_expr(context: Context, node: Node) -> Typed:
    """``ARRAY[...]`` of constants."""
    elements = [context.typed(element) for element in node.elements]
    kinds = {typed.type_oid for typed in elements}
    kind = kinds.pop() if len(kinds) == 1 else None
    array = None if kind is None else types.array_type(kind)
    values = [typed.expr.value for typed in elements if isinstance(typed.expr, Constant)]
    if array is None or len(values) < len(elements):
        raise context.text.refuse(
            f"ARRAY[...] of {'other than constants' if array else 'arrays'}"
            f"{'' if kind is None else f', of type {type_name(kind)}'}",
            node,
        )
    return context.result(Constant(Array(tuple(values))), array, elements, node)
