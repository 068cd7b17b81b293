"""Operators by name and exact types, as the server resolved them."""

from __future__ import annotations

from gateway.rowfilter import operators
from gateway.rowfilter.analysis.context import Context
from gateway.rowfilter.expr import Operation
from gateway.rowfilter.parse import Node, unwrap
from gateway.rowfilter.types import type_name

__all__ = ["comparison", "operator", "operator_name"]


def operator_name(context: Context, node: Node) -> str:
    """Return the name of a built-in operator."""
    names = [unwrap(name)[1].sval for name in node.name]
    if names[:-1] not in ([], ["pg_catalog"]):
        raise context.text.refuse("user-defined operators are not allowed", node)
    name: str = names[-1]
    return name


def operator(
    context: Context, node: Node, name: str, left: int, right: int
) -> tuple[Operation, int]:
    """Return the operation of an operator on these types (`left` 0: prefix), and its type."""
    found = operators.find_operator(name, left, right)
    if found is None:
        kinds = map(operators.operator_type, (left, right))
        found = operators.find_operator(name, *kinds)
    if found is None:
        of = f"{type_name(left)} and {type_name(right)}" if left else type_name(right)
        raise context.text.refuse(f'operator "{name}" of {of}', node)
    return found


def comparison(context: Context, node: Node, name: str, left: int, right: int) -> Operation:
    """Return the comparison `name` of values of these types, for users other than a `Call`."""
    operation, result = operator(context, node, name, left, right)
    if not operators.is_comparison(operation, result):
        raise context.text.refuse(f'operator "{name}" in this place', node)
    return operation
