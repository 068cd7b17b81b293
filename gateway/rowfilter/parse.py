"""Parsing of filters by PostgreSQL's own grammar (libpg_query), with positions in the text."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import postgast
from postgast import pg_query_pb2 as pb

from gateway.core.errors import FilterError
from gateway.definitions.sql.grammar import parse
from gateway.rowfilter.errors import FilterSource, NotEvaluatedHere

__all__ = [
    "Node",
    "Text",
    "can_fail_without_rows",
    "conjuncts",
    "parse_filter",
    "unwrap",
]

Node: TypeAlias = Any
"""A protobuf message of libpg_query; its fields are named as in PostgreSQL's parsenodes.h."""

_AND: Final = 1
_INTEGER_TARGETS: Final = frozenset({"int4", "int8", "float4", "float8", "numeric"})
"""Types that have a value for each integer constant."""

_PREFIX: Final = "SELECT "


class Text:
    """Text of one filter, with positions for errors."""

    __slots__ = ("source", "text")

    def __init__(self, text: str, source: FilterSource | None) -> None:
        self.text, self.source = text, source

    def refuse(self, reason: str, node: Node) -> NotEvaluatedHere:
        """Return the error for `node`."""
        location = getattr(node, "location", 0)
        raw = self.text.encode()[: max(location - len(_PREFIX), 0)]
        position = len(raw.decode(errors="replace"))
        return NotEvaluatedHere(reason, self.text, position, self.source)


def parse_filter(text: Text) -> Node:
    """Return the expression of a filter.

    Raises:
        FilterError: a syntax error, or more than one expression.
    """
    try:
        statements = parse(_PREFIX + text.text).stmts
    except postgast.PgQueryError as error:
        position = max((error.cursorpos or 0) - 1 - len(_PREFIX), 0)
        raise NotEvaluatedHere(error.message, text.text, position, text.source) from None
    select = statements[0].stmt.select_stmt
    named = {field.name for field, _ in select.ListFields()}
    if (
        len(statements) != 1
        or len(select.target_list) != 1
        or not named <= {"target_list", "limit_option", "op"}
        or select.target_list[0].res_target.name
    ):
        raise NotEvaluatedHere("one expression is expected", text.text, 0, text.source)
    return select.target_list[0].res_target.val


def conjuncts(text: Text) -> list[Node]:
    """Return the operands of a filter that is an AND, in order; none for other filters."""
    try:
        kind, node = unwrap(parse_filter(text))
    except FilterError:
        return []
    return list(node.args) if kind == "bool_expr" and node.boolop == _AND else []


def can_fail_without_rows(node: Node) -> bool:
    """Whether PostgreSQL may fail for every row, already when it prepares the expression.

    It computes parts without a column (``1 / 0 = a``), and looks up the comparison of a type for
    GREATEST and LEAST. True as well if it is not known.

    Source: eval_const_expressions() in clauses.c, T_MinMaxExpr in ExecInitExprRec().
    """
    if next(iter(postgast.find_nodes(node, pb.MinMaxExpr)), None) is not None:
        return True
    calls = [call for kind in (pb.FuncCall, pb.A_Expr) for call in postgast.find_nodes(node, kind)]
    casts = [cast for cast in postgast.find_nodes(node, pb.TypeCast) if not _is_value(cast)]
    return any(
        next(iter(postgast.find_nodes(each, pb.ColumnRef)), None) is None
        for each in [*calls, *casts]
    )


def _is_value(cast: Node) -> bool:
    """Whether a cast gives a value as the server prints it, or one that cannot fail.

    The server prints values as text; a number is cast by a function: ``(99999)::smallint``.
    """
    kind, argument = unwrap(cast.arg)
    if kind != "a_const" or argument.WhichOneof("val") not in ("ival", "fval"):
        return kind in ("a_const", "a_array_expr")
    target = unwrap(cast.type_name.names[-1])[1].sval
    is_integer = argument.WhichOneof("val") == "ival"
    return is_integer and not cast.type_name.typmods and target in _INTEGER_TARGETS


def unwrap(node: Node) -> tuple[str, Node]:
    """Return the kind of a Node and the message in it; the kind is '' for an empty node."""
    kind = node.WhichOneof("node")
    return (kind, getattr(node, kind)) if kind else ("", node)
