"""Columns, literals, casts and COLLATE."""

from __future__ import annotations

from gateway.core.errors import ValueFormatError
from gateway.definitions.model import Collation
from gateway.pgtypes.arrays import Array
from gateway.pgtypes.catalog import TYPES
from gateway.rowfilter import collations, operators, types
from gateway.rowfilter.analysis.context import Context
from gateway.rowfilter.collations import Typed
from gateway.rowfilter.expr import ColumnRef, Constant, Expr
from gateway.rowfilter.parse import Node, unwrap
from gateway.rowfilter.types import BOOL, INT4, INT8, NUMERIC, type_name

__all__ = ["a_const", "cast", "collate_clause", "column_ref", "type_cast"]


def column_ref(context: Context, node: Node) -> Typed:
    """Type a column."""
    names = [unwrap(field)[1] for field in node.fields]
    if len(names) != 1 or not hasattr(names[0], "sval"):
        raise context.text.refuse("only plain names of columns are supported", node)
    column = context.columns.get(names[0].sval)
    if column is None:
        raise context.text.refuse(f'column "{names[0].sval}" does not exist', node)
    if column.generated == "v":
        raise context.text.refuse(
            f'column "{column.name}" is generated when it is read, so changes do not carry it',
            node,
        )
    if column.type_oid not in types.PARSERS:
        raise context.text.refuse(f'column "{column.name}" of type {column.type_name}', node)
    collation = column.collation or types.type_collation(column.type_oid)
    reference = ColumnRef(column.name, column.type_oid, column.type_modifier)
    return Typed(reference, column.type_oid, collation)


def a_const(context: Context, node: Node) -> Typed:
    """Type a literal that has its type."""
    match node.WhichOneof("val"):
        case "ival":
            return Typed(Constant(node.ival.ival), INT4)
        case "boolval":
            return Typed(Constant(node.boolval.boolval), BOOL)
        case "fval":
            digits: str = node.fval.fval
            if digits.isdigit() and int(digits) < 2**63:
                return Typed(Constant(int(digits)), INT8)
            return Typed(Constant(types.PARSERS[NUMERIC](digits.encode())), NUMERIC)
    raise context.text.refuse(
        "a literal without a type; the text must be the server's own rendering", node
    )


def type_cast(context: Context, node: Node) -> Typed:
    """``'...'::type`` and ``(...)::type``."""
    target = _type_oid(context, node)
    typmod = _typmod(node.type_name, target)
    kind, argument = unwrap(node.arg)
    if kind == "a_const" and (argument.isnull or argument.WhichOneof("val") == "sval"):
        return _length(context, _literal(context, argument, target), typmod, node)
    if kind == "a_array_expr" and not argument.elements:  # ARRAY[]::integer[]
        return Typed(Constant(Array(())), target, types.type_collation(target))
    return _length(context, cast(context, context.typed(node.arg), target, node), typmod, node)


def _type_oid(context: Context, node: Node) -> int:
    names = [unwrap(name)[1].sval for name in node.type_name.names]
    if names == ["unknown"]:  # a NULL that nothing gives a type
        return types.UNKNOWN
    if names[:-1] not in ([], ["pg_catalog"]) or names[-1] not in TYPES:
        raise context.text.refuse(f"a value of type {'.'.join(names)}", node.type_name)
    oid, array = TYPES[names[-1]]
    return array if node.type_name.array_bounds else oid


def _typmod(name: Node, target: int) -> int:
    numbers: list[int] = [unwrap(node)[1].ival.ival for node in name.typmods]
    if not numbers:
        return -1
    if target in (types.VARCHAR, types.BPCHAR):
        return numbers[0] + 4
    if target == NUMERIC:
        scale = numbers[1] if len(numbers) > 1 else 0
        return ((numbers[0] << 16) | (scale & 0x7FF)) + 4
    return numbers[0]


def _literal(context: Context, node: Node, target: int) -> Typed:
    collation = types.type_collation(target)
    parse = types.PARSERS.get(target) or types.ARRAY_PARSERS.get(target)
    if parse is None:
        raise context.text.refuse(f"a value of type {type_name(target)}", node)
    if node.isnull:
        return Typed(Constant(None), target, collation)
    try:
        value = parse(node.sval.sval.encode())
    except ValueFormatError:
        raise context.text.refuse(
            f"literal does not read as {type_name(target)} in the server's rendering", node
        ) from None
    return Typed(Constant(value), target, collation)


def cast(context: Context, typed: Typed, target: int, node: Node) -> Typed:
    """Return the cast that the server resolved, from one built-in type to another."""
    source = typed.type_oid
    if source == target:
        return typed
    elements = (types.element_type(source), types.element_type(target))
    if None not in elements and isinstance(typed.expr, Constant):
        return _cast_items(context, typed, target, node)
    operation = operators.cast_operation((source, target))
    if isinstance(operation, KeyError):
        raise context.text.refuse(f"cast from {type_name(source)} to {type_name(target)}", node)
    expr: Expr = typed.expr
    if operation is not None:
        expr = context.call(operation, (typed.expr,), node)
    return context.result(expr, target, (typed,), node)


def _cast_items(context: Context, typed: Typed, target: int, node: Node) -> Typed:
    """Return the cast of a constant array, item by item, if the items need no function."""
    step = (types.element_type(typed.type_oid) or 0, types.element_type(target) or 0)
    if step[0] != step[1] and operators.cast_operation(step) is not None:
        names = f"{type_name(typed.type_oid)} to {type_name(target)}"
        raise context.text.refuse(f"cast from {names}", node)
    return context.result(typed.expr, target, (typed,), node)


def _length(context: Context, typed: Typed, typmod: int, node: Node) -> Typed:
    if typmod == -1:
        return typed
    operation = operators.length_coercion(typed.type_oid, typmod)
    if operation is None:
        raise context.text.refuse(f"a type modifier of {type_name(typed.type_oid)}", node)
    expr = context.call(operation, (typed.expr,), node)
    return Typed(expr, typed.type_oid, typed.collation, typed.explicit)


def collate_clause(context: Context, node: Node) -> Typed:
    """COLLATE."""
    typed = context.typed(node.arg)
    names = [unwrap(name)[1].sval for name in node.collname]
    if names[:-1] not in ([], ["pg_catalog"]):
        raise context.text.refuse("user-defined collations are not allowed", node)
    collation = Collation(names[-1], True, names[-1] in collations.BYTE_ORDER_NAMES)
    return Typed(typed.expr, typed.type_oid, collation, explicit=True)
