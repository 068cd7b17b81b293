"""ARRAY[...], and ANY and ALL of an array."""

from __future__ import annotations

from gateway.pgtypes.arrays import Array, one_dimension, stack
from gateway.rowfilter import types
from gateway.rowfilter.analysis.context import Context
from gateway.rowfilter.analysis.lookup import operator
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.expr import AnyAll, ArrayOf, Constant, Expr, Operation
from gateway.rowfilter.interpret import any_all as evaluate
from gateway.rowfilter.operators import operator_type, whole
from gateway.rowfilter.parse import Node
from gateway.rowfilter.types import BOOL, type_name

__all__ = ["a_array_expr", "any_all"]


def any_all(context: Context, node: Node, name: str, *, is_any: bool) -> Typed:
    """``scalar operator ANY (array)``, or ALL."""
    scalar = context.typed(node.lexpr)
    array = context.typed(node.rexpr)
    element = types.element_type(array.type_oid)
    if element is None:
        raise context.text.refuse(f"{type_name(array.type_oid)} is not an array", node)
    operation, result = operator(
        context, node, name, operator_type(scalar.type_oid), operator_type(element)
    )
    if result != BOOL:
        raise context.text.refuse("op ANY/ALL requires operator to yield boolean", node)
    if not operation.strict or operation.nullable:
        raise context.text.refuse(f'operator "{name}" is not supported with ANY and ALL', node)
    operation = context.check(f'"{name}"', operation, (scalar, array), node)
    of_scalar, of_item = operation.adapters or (None, None)
    left = scalar.expr
    if of_scalar is not None:
        left = context.call(of_scalar, (left,), node)
    right: Expr
    if of_item is not None and not isinstance(array.expr, Constant | ArrayOf):
        # The items come at run time, so that the operator has to adapt them.
        operation, right = whole(operation, first=False), array.expr
    else:
        right = _adapted(context, array.expr, of_item, node)
    equality = {"==": True, "!=": False}.get(operation.infix or "")
    expr = AnyAll(operation, left, right, is_any, equality)
    return Typed(_folded(context, expr, node), BOOL)


def _adapted(context: Context, array: Expr, adapter: Operation | None, node: Node) -> Expr:
    if adapter is None:
        return array
    if isinstance(array, ArrayOf):
        if array.nested:
            raise context.text.refuse("an array of arrays is not supported here", node)
        return ArrayOf(tuple(context.call(adapter, (item,), node) for item in array.elements))
    if isinstance(array, Constant) and isinstance(array.value, Array):
        return Constant(array.value.map(adapter.function))
    return array


def _folded(context: Context, expr: AnyAll, node: Node) -> Expr:
    scalar, array = expr.scalar, expr.array
    if not (isinstance(scalar, Constant) and isinstance(array, Constant)):
        return expr
    items = array.value
    assert items is None or isinstance(items, Array)
    return context.evaluated(
        expr,
        lambda: evaluate(expr.operation.function, scalar.value, items, expr.is_any),
        node,
    )


def a_array_expr(context: Context, node: Node) -> Typed:
    """``ARRAY[...]``, of elements or of arrays."""
    elements = [context.typed(element) for element in node.elements]
    kinds = {typed.type_oid for typed in elements}
    if len(kinds) != 1:
        raise context.text.refuse("an array whose elements differ in type", node)
    kind = kinds.pop()
    nested = types.element_type(kind) is not None
    array = kind if nested else types.array_type(kind)
    if array is None or array not in types.PARSERS:
        raise context.text.refuse("an array of this type is not supported", node)
    values = [typed.expr.value for typed in elements if isinstance(typed.expr, Constant)]
    expr: Expr = ArrayOf(tuple(typed.expr for typed in elements), nested)
    if len(values) == len(elements):
        build = stack if nested else one_dimension
        expr = context.evaluated(expr, lambda: build(values), node)  # type: ignore[arg-type]
    return context.result(expr, array, elements, node)
