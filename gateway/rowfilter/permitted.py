"""Expressions that a publication's row filter can consist of, by PostgreSQL's grammar. Pure.

PostgreSQL has accepted a filter of the catalog. A filter from the stream or from Kafka is untrusted
text until this module has checked that it can do no more than compute: columns, constants,
operators, and functions by their bare names. Whether these are immutable is for the server to say
(`gateway.source.filters.immutable`).

Source: check_simple_rowfilter_expr_walker() in publicationcmds.c.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message  # type: ignore[import-untyped]

from gateway.core.errors import FilterError
from gateway.rowfilter.parse import Text, parse_filter, unwrap

__all__ = ["functions_of", "is_collation"]

_KINDS: Final = frozenset(
    {
        *("column_ref", "a_const", "a_expr", "bool_expr", "null_test", "boolean_test"),
        *("type_cast", "type_name", "func_call", "case_expr", "case_when", "coalesce_expr"),
        *("min_max_expr", "a_array_expr", "row_expr", "collate_clause", "xml_expr"),
        *("string", "integer", "list"),
    }
)
_CALL: Final = frozenset({"funcname", "args", "func_variadic", "funcformat", "location"})
_NAMES: Final = {
    "FuncCall": "funcname",
    "TypeName": "names",
    "CollateClause": "collname",
    "A_Expr": "name",
}


def functions_of(filter_text: str) -> frozenset[str]:
    """Return the names of the functions that a filter calls, all of pg_catalog.

    Raises:
        FilterError: it is not an expression that a publication can have.
    """
    text = Text(filter_text, None)
    found: set[str] = set()
    _visit(text, parse_filter(text), found)
    return frozenset(found)


def is_collation(name: str) -> bool:
    """Whether a text is the name of a collation, as SQL, and nothing else."""
    if name == "default":
        return True
    try:
        kind, node = unwrap(parse_filter(Text(f"a COLLATE {name}", None)))
    except FilterError:
        return False
    return kind == "collate_clause" and node.arg.WhichOneof("node") == "column_ref"


def _visit(text: Text, message: Any, found: set[str]) -> None:
    name = message.DESCRIPTOR.name
    if name == "Node":
        kind = message.WhichOneof("node")
        if kind not in _KINDS:
            raise text.refuse(f"{kind or 'nothing'} is not allowed in it", message)
    elif name == "ColumnRef":
        if len(message.fields) != 1 or message.fields[0].WhichOneof("node") != "string":
            raise text.refuse("only columns by their bare names are allowed", message)
    elif name in _NAMES:
        words = [part.string.sval for part in getattr(message, _NAMES[name])]
        if not words or words[:-1] not in ([], ["pg_catalog"]):
            raise text.refuse("only what is in pg_catalog is allowed", message)
        if name == "FuncCall":
            if not {field.name for field, _ in message.ListFields()} <= _CALL:
                raise text.refuse("only plain calls of functions are allowed", message)
            found.add(words[-1])
        elif name == "TypeName" and (message.setof or message.pct_type):
            raise text.refuse("only types by their names are allowed", message)
    for _, value in message.ListFields():
        for each in (value,) if isinstance(value, (Message, int, str, bytes)) else value:
            if isinstance(each, Message):
                _visit(text, each, found)
