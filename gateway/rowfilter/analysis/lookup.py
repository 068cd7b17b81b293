"""Operators by name and exact types, as the server resolved them."""

from __future__ import annotations

from gateway.pgtypes.catalog import OPERATORS, VOLATILE_OPERATORS
from gateway.rowfilter import operators
from gateway.rowfilter.analysis.context import NOT_IMMUTABLE, Context
from gateway.rowfilter.analysis.overloads import resolve
from gateway.rowfilter.expr import Operation
from gateway.rowfilter.parse import Node, unwrap
from gateway.rowfilter.types import BOOL, type_name

__all__ = ["comparison", "operator", "operator_name"]

_POLYMORPHIC: dict[str, list[tuple[int, int]]] = {}
for _name, _left, _right in OPERATORS:
    _POLYMORPHIC.setdefault(_name, []).append((_left, _right))


def operator_name(context: Context, node: Node) -> str:
    """The name of a built-in operator."""
    names = [unwrap(name)[1].sval for name in node.name]
    if names[:-1] not in ([], ["pg_catalog"]):
        raise context.text.refuse("user-defined operators are not allowed", node)
    name: str = names[-1]
    return name


def operator(
    context: Context, node: Node, name: str, left: int, right: int
) -> tuple[Operation, int]:
    """What an operator does with these types (`left` 0: prefix), and its result type."""
    shown = f'operator "{name}"'
    of = f"{type_name(left)} and {type_name(right)}" if left else type_name(right)
    if (name, left, right) in VOLATILE_OPERATORS:
        raise context.text.refuse(f"{shown} of {of} {NOT_IMMUTABLE}", node)
    found = _find(name, left, right)
    if found is None:
        raise context.text.refuse(f"{shown} is not supported for {of}", node)
    return found


def _find(name: str, left: int, right: int) -> tuple[Operation, int] | None:
    actual = (left, right) if left else (right,)
    exact = (name, left, right)
    candidates = [exact] if exact in OPERATORS else [
        (name, *pair) for pair in _POLYMORPHIC.get(name, ()) if bool(pair[0]) is bool(left)
    ]  # fmt: skip
    for candidate in candidates:
        key, result = OPERATORS[candidate]
        declared = candidate[1:] if left else candidate[2:]
        signature = resolve(declared, actual, result)
        if signature is None:
            continue
        operation = operators.operation_for(key, signature)
        if operation is not None:
            return operation, signature.result
    return None


def comparison(context: Context, node: Node, name: str, type_oid: int) -> Operation:
    """The comparison `name` of values of one type, in the order that its B-tree has."""
    operation, result = operator(context, node, name, type_oid, type_oid)
    if result != BOOL or not operation.strict or operation.nullable:
        raise context.text.refuse(f"{type_name(type_oid)} has no order", node)
    return operation
