"""Unresolved expressions: columns, functions, and nodes that row filters cannot have.

PostgreSQL's own grammar parses them; nothing is matched by regular expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import postgast
from postgast import pg_query_pb2 as pb

from gateway.definitions.sql.grammar import TooDeepError, column_words, parse
from gateway.definitions.sql.source import SourceText

__all__ = ["column_names", "function_names", "is_expression", "refuse_nodes", "select_where"]

# check_simple_rowfilter_expr in publicationcmds.c, as far as the grammar shows; `Node` wraps nodes.
_ALLOWED: Final = frozenset(
    {
        *("A_ArrayExpr", "A_Const", "A_Expr", "BitString", "BoolExpr", "Boolean", "BooleanTest"),
        *("CaseExpr", "CaseWhen", "CoalesceExpr", "CollateClause", "ColumnRef", "Float"),
        *("FuncCall", "Integer", "List", "MinMaxExpr", "Node", "NullTest", "RowExpr", "String"),
        *("NamedArgExpr", "ResTarget", "TypeCast", "TypeName", "XmlExpr"),
    }
)


def column_names(expression: str) -> frozenset[str]:
    """Return the names of the columns in a filter as printed by the server.

    If the filter is nested too deeply to be parsed, the result includes words that merely look like
    column names.
    """
    try:
        tree = parse(f"SELECT WHERE ({expression}\n)")
    except postgast.PgQueryError:  # PostgreSQL printed it, so only its depth can be the reason
        return column_words(expression)
    return frozenset(
        reference.fields[-1].string.sval
        for reference in postgast.find_nodes(tree, pb.ColumnRef)
        if reference.fields[-1].HasField("string")
    )


def select_where(query: str) -> str:
    """Return the WHERE expression of a one-table SELECT as ``pg_get_viewdef`` prints it."""
    return SourceText(query).after_where()


def is_expression(text: str) -> bool:
    """Whether `text` is exactly one expression by PostgreSQL's grammar."""
    try:
        tree = parse(f"SELECT WHERE ({text}\n)")
    except postgast.PgQueryError:
        return False
    if len(tree.stmts) != 1:
        return False
    select = pb.SelectStmt()
    select.CopyFrom(tree.stmts[0].stmt.select_stmt)
    select.ClearField("where_clause")
    empty = parse("SELECT").stmts[0].stmt.select_stmt
    return bool(select == empty)


def function_names(expression: str) -> frozenset[str]:
    """Return the names of the functions that an expression calls, without ``pg_catalog``."""
    tree = parse(f"SELECT WHERE ({expression}\n)")
    return frozenset(
        call.funcname[-1].string.sval for call in postgast.find_nodes(tree, pb.FuncCall)
    )


def refuse_nodes(text: str) -> str | None:
    """Return why `text` cannot be the expression of a row filter, or None.

    Checks beyond the grammar (types, and whether functions are immutable) are left to the server.
    """
    if "\0" in text:
        return "it has a zero byte"
    try:
        tree = parse(f"SELECT WHERE ({text}\n)")
    except postgast.PgQueryError as error:
        return error.message if isinstance(error, TooDeepError) else "it is not one expression"
    if not is_expression(text):
        return "it is not one expression"
    select = tree.stmts[0].stmt.select_stmt
    waiting: list[Any] = [select.where_clause]
    while waiting:
        node = waiting.pop()
        why = _refuse_node(node)
        if why is not None:
            return why
        for descriptor, value in node.ListFields():
            if descriptor.message_type is not None:
                waiting += [value] if hasattr(value, "DESCRIPTOR") else value
    return None


def _refuse_node(node: Any) -> str | None:
    name = node.DESCRIPTOR.name
    if name == "SubLink":
        return "subqueries are not allowed"
    if name not in _ALLOWED:
        return "only columns, constants, operators, CASE and immutable functions are allowed"
    if isinstance(node, pb.FuncCall):
        plain = not (
            node.agg_order
            or node.agg_star
            or node.agg_distinct
            or node.agg_within_group
            or node.HasField("agg_filter")
            or node.HasField("over")
        )
        return (
            None if plain and _is_built_in(node.funcname) else "only built-in functions are allowed"
        )
    if isinstance(node, pb.TypeName) and (
        node.setof or node.pct_type or not _is_built_in(node.names)
    ):
        return "only built-in types are allowed"
    if isinstance(node, pb.A_Expr) and not _is_built_in(node.name):
        return "only built-in operators are allowed"
    if isinstance(node, pb.CollateClause) and not _is_built_in(node.collname):
        return "only built-in collations are allowed"
    if isinstance(node, pb.ColumnRef) and any(not f.HasField("string") for f in node.fields):
        return "a whole row is not allowed"
    return None


def _is_built_in(names: Sequence[pb.Node]) -> bool:
    """Whether a name has no other schema; the sessions search only ``pg_catalog``."""
    return len(names) == 1 or (len(names) == 2 and names[0].string.sval == "pg_catalog")
