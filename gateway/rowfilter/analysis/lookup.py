"""Operators by name and exact types, as the server resolved them."""

from __future__ import annotations

from gateway.pgtypes.catalog import VOLATILE_OPERATORS
from gateway.rowfilter import operators
from gateway.rowfilter.analysis.context import NOT_IMMUTABLE, Context
from gateway.rowfilter.expr import Operation
from gateway.rowfilter.parse import Node, unwrap
from gateway.rowfilter.types import type_name

__all__ = ["comparison", "operator", "operator_name"]


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
    found = operators.find_operator(name, left, right, context.major)
    if found is None:
        left, right = map(operators.operator_type, (left, right))
        found = operators.find_operator(name, left, right, context.major)
    if found is None:
        raise context.text.refuse(f"{shown} is not supported for {of}", node)
    return found


def comparison(context: Context, node: Node, name: str, left: int, right: int) -> Operation:
    """The comparison `name` of values of these types, where anything but a `Call` needs it."""
    operation, result = operator(context, node, name, left, right)
    if not operators.is_comparison(operation, result):
        raise context.text.refuse(f'operator "{name}" is not supported here', node)
    return operation
