"""Detection of expressions that would run another role's code on the server. Pure.

An unqualified name is looked up only in ``pg_catalog``. Two cases remain: a name with another
schema, and a literal converted to its column's type, whose input function can call functions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import postgast
from postgast import pg_query_pb2 as pb

from gateway.core.errors import FilterError
from gateway.definitions.sql.grammar import TooDeepError, parse

__all__ = ["first_reference", "foreign_name", "has_part_of"]

_PREFIX = "SELECT WHERE ("


def foreign_name(expression: str, *, types_only: bool = False) -> str | None:
    """Return the first type, function or operator qualified with a schema not ``pg_catalog``.

    The result is None if there is none, or if the text does not parse.

    Raises:
        FilterError: it is nested too deeply to be examined.
    """
    if (tree := _tree(expression)) is None:
        return None
    names = [kind.names for kind in postgast.find_nodes(tree, pb.TypeName)]
    if not types_only:
        names += [call.funcname for call in postgast.find_nodes(tree, pb.FuncCall)]
        names += [term.name for term in postgast.find_nodes(tree, pb.A_Expr)]
    for parts in names:
        texts = [part.string.sval for part in parts]
        if len(texts) > 1 and texts[0] != "pg_catalog":
            return ".".join(texts)
    return None


def first_reference(expression: str, columns: Collection[str]) -> int | None:
    """Return the byte offset at which one of `columns` is first named; None if none is.

    Raises:
        FilterError: it is nested too deeply to be examined.
    """
    if (tree := _tree(expression)) is None:
        return None
    found = [
        reference.location - len(_PREFIX)
        for reference in postgast.find_nodes(tree, pb.ColumnRef)
        if reference.fields[-1].string.sval in columns
    ]
    return min(found, default=None)


def has_part_of(expression: str, columns: Collection[str]) -> bool:
    """Whether a valid expression names a field or an element of one of `columns`."""
    tree = parse(f"{_PREFIX}{expression}\n)")
    return any(
        reference.fields[-1].string.sval in columns
        for part in postgast.find_nodes(tree, pb.A_Indirection)
        for reference in postgast.find_nodes(part.arg, pb.ColumnRef)
    )


def _tree(expression: str) -> Any:
    """Return the tree of an expression; None if it does not parse."""
    try:
        return parse(f"{_PREFIX}{expression}\n)")
    except TooDeepError as error:
        raise FilterError(error.message) from None
    except postgast.PgQueryError:
        return None
