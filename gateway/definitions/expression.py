"""What can be read off an expression without resolving it: its columns, its place in a query."""

from __future__ import annotations

import postgast
from postgast import pg_query_pb2 as pb

from gateway.definitions.grammar import column_words, parse
from gateway.definitions.source import SourceText

__all__ = ["column_names", "select_where"]


def column_names(expression: str) -> frozenset[str]:
    """Return the names of the columns that a filter, as the server printed it, refers to.

    A name may be qualified with the table's; the last part is the column. Of an expression that is
    nested too deeply to be parsed, also words that may only look like names of columns.
    """
    try:
        tree = parse(f"SELECT WHERE ({expression}\n)")
    except postgast.PgQueryError:  # PostgreSQL has printed it: it parses, but for its depth
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
    """Whether `text` is one expression, and nothing behind it, by PostgreSQL's grammar."""
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
