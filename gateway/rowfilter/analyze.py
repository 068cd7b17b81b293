"""Analysis of a parse tree into a typed expression, from the columns' types upwards.

Nothing is resolved by guessing: the server prints every cast, so an operator or a function is
looked up by its name and the exact types of its arguments. Constant parts are folded as
eval_const_expressions() folds them, because that decides which errors can be raised at all.

Source: src/backend/parser/parse_expr.c, src/backend/optimizer/util/clauses.c.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gateway.definitions.model import Column
from gateway.rowfilter.analysis import arrays, calls, conditionals, leaves, truth
from gateway.rowfilter.analysis.context import Context, Handler
from gateway.rowfilter.expr import Expr
from gateway.rowfilter.parse import Node, Text, unwrap
from gateway.rowfilter.types import BOOL, type_name

__all__ = ["analyze"]

_HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "a_array_expr": arrays.a_array_expr,
        "a_const": leaves.a_const,
        "a_expr": calls.a_expr,
        "bool_expr": truth.bool_expr,
        "boolean_test": truth.boolean_test,
        "case_expr": conditionals.case_expr,
        "coalesce_expr": conditionals.coalesce_expr,
        "collate_clause": leaves.collate_clause,
        "column_ref": leaves.column_ref,
        "func_call": calls.func_call,
        "min_max_expr": conditionals.min_max_expr,
        "null_test": truth.null_test,
        "type_cast": leaves.type_cast,
    }
)
"""Kind of node -> function that types it. Other kinds are refused."""


def analyze(root: Node, columns: Sequence[Column], text: Text) -> Expr:
    """Type the expression `root` of a filter on `columns`.

    Raises:
        FilterError: something in it is not evaluated here, or PostgreSQL fails on a constant part.
    """
    context = Context({column.name: column for column in columns}, text, _HANDLERS)
    typed = context.typed(root)
    if typed.type_oid != BOOL:
        raise text.refuse(
            f"argument of PUBLICATION WHERE must be type boolean, not {type_name(typed.type_oid)}",
            unwrap(root)[1],
        )
    if context.failures:
        reason, node = context.failures[0]
        raise text.refuse(reason, node)
    return typed.expr
