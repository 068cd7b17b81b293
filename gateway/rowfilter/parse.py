"""Filter text -> PostgreSQL's own parse tree (libpg_query), and positions in the text."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import postgast
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from gateway.rowfilter.errors import FilterSource, refusal

__all__ = ["Node", "Text", "parse_expressions", "parse_filter", "unwrap"]

Node: TypeAlias = Any
"""A protobuf message of libpg_query; its fields are named as in PostgreSQL's parsenodes.h."""

_PREFIX: Final = "SELECT "


class Text:
    """The text of one filter; says where something is wrong in it."""

    __slots__ = ("source", "text")

    def __init__(self, text: str, source: FilterSource | None) -> None:
        self.text, self.source = text, source

    def refuse(self, reason: str, node: Node) -> Exception:
        """The error to raise for `node`."""
        location = getattr(node, "location", 0)
        raw = self.text.encode()[: max(location - len(_PREFIX), 0)]
        position = len(raw.decode(errors="replace"))
        return refusal(reason, self.text, position, self.source)


def parse_filter(text: Text) -> Node:
    """The expression of a filter.

    Raises:
        FilterError: a syntax error, or more than one expression.
    """
    try:
        statements = postgast.parse(_PREFIX + text.text).stmts
    except postgast.PgQueryError as error:
        position = max((error.cursorpos or 0) - 1 - len(_PREFIX), 0)
        raise refusal(error.message, text.text, position, text.source) from None
    except DecodeError:  # protobuf reads a hundred levels, some three of them for each bracket
        raise refusal("it is nested too deeply", text.text, 0, text.source) from None
    select = statements[0].stmt.select_stmt
    named = {field.name for field, _ in select.ListFields()}
    if (
        len(statements) != 1
        or len(select.target_list) != 1
        or not named <= {"target_list", "limit_option", "op"}
        or select.target_list[0].res_target.name
    ):
        raise refusal("one expression is expected", text.text, 0, text.source)
    return select.target_list[0].res_target.val


def parse_expressions(text: str) -> list[Node]:
    """The expressions, separated by commas, of a text that the catalog carries."""
    select = postgast.parse(_PREFIX + text).stmts[0].stmt.select_stmt
    return [target.res_target.val for target in select.target_list]


def unwrap(node: Node) -> tuple[str, Node]:
    """The kind of a Node and the message in it; `kind` is '' for an empty node."""
    kind = node.WhichOneof("node")
    return (kind, getattr(node, kind)) if kind else ("", node)
