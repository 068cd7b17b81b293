"""Form of a sub-select: one table, columns, a WHERE; everything else is refused with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from postgast import pg_query_pb2 as pb

from gateway.rowfilter.parse import unwrap
from gateway.subselects.text.scope import InnerTable

__all__ = ["equality_of", "refuse_select", "select_faults"]

_FAULTS: Final = (
    ("larg", "UNION, INTERSECT and EXCEPT are not followed"),
    ("with_clause", "WITH is not followed"),
    ("values_lists", "VALUES is not followed: list the constants in IN"),
    ("group_clause", "GROUP BY is not followed"),
    ("having_clause", "HAVING is not followed"),
    ("window_clause", "WINDOW is not followed"),
    ("limit_count", "LIMIT is not followed: which rows it leaves out is not known"),
    ("limit_offset", "OFFSET is not followed: which rows it leaves out is not known"),
    ("locking_clause", "FOR UPDATE and FOR SHARE are not followed"),
    ("into_clause", "INTO is not allowed here"),
    ("sort_clause", "ORDER BY means nothing here; leave it out"),
)
"""Field of a SelectStmt and why it cannot be followed, in the order in which they are reported."""
_KNOWN: Final = frozenset(
    {"distinct_clause", "target_list", "from_clause", "where_clause", "limit_option", "op"}
)


def refuse_select(select: Any, *, is_exists: bool) -> tuple[str, Any] | None:
    """Return why a SelectStmt cannot be followed, and the node at fault; or None."""
    given = {field.name: value for field, value in select.ListFields()}
    for name, why in _FAULTS:
        if name in given:
            value = given[name]
            return why, value[0] if _is_list(value) else value
    if unknown := sorted(set(given) - _KNOWN):
        return f"{unknown[0].replace('_', ' ')} is not followed", select
    if any(unwrap(node)[0] for node in select.distinct_clause):  # DISTINCT alone is one empty node
        return "DISTINCT ON is not followed", select.distinct_clause[0]
    sources = select.from_clause
    if not sources:
        return "the sub-select has no table", select
    kind, source = unwrap(sources[0])
    if len(sources) > 1 or kind == "join_expr":
        return (
            "joins are not followed: nest a sub-select for each table",
            sources[1] if len(sources) > 1 else select,
        )
    if kind != "range_var":
        return "only a table can be in FROM", select
    if source.catalogname:
        return "cross-database references are not implemented", source
    if source.HasField("alias") and source.alias.colnames:
        return "names of columns after an alias are not followed", source
    for target in select.target_list:
        kind, found = unwrap(target.res_target.val)
        if kind == "column_ref" or (is_exists and kind == "a_const"):
            continue
        if kind == "func_call":
            return "aggregates and other functions are not followed in the list of columns", found
        return "only columns can be in the list of columns", target
    return None


def select_faults(inner: InnerTable, *, only: bool) -> str | None:
    """Return why the changes of an inner table cannot be followed, or None."""
    if inner.row_security:
        return "row-level security hides rows of it from the gateway, and the stream has them all"
    if inner.inherited and not only:
        return "tables inherit from it, and their rows are not in its stream: write FROM ONLY"
    if inner.unlogged:
        return "a partition of it is a foreign or an unlogged table, whose rows are in no stream"
    if only and inner.table.kind == "p":
        return "ONLY a partitioned table has no rows"
    return None


def equality_of(node: Any) -> Sequence[Any]:
    """Return both sides if `node` is ``column = column`` with PostgreSQL's own operator."""
    kind, found = unwrap(node)
    if kind != "a_expr" or found.kind != pb.AEXPR_OP:
        return ()
    if [part.string.sval for part in found.name] not in (["="], ["pg_catalog", "="]):
        return ()
    sides = (found.lexpr, found.rexpr)
    return sides if all(unwrap(side)[0] == "column_ref" for side in sides) else ()


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and not hasattr(value, "ListFields")
