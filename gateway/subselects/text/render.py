"""A filter over other tables as SQL again, for the server to evaluate and for people to read. Pure.

It needs no names of outer tables: `x IN (...) IS NOT TRUE` is what NOT EXISTS says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from gateway.core.formula import AllOf, AnyOf, Formula, Plain, SetTest, SetTestKind
from gateway.core.identifiers import quote_identifier
from gateway.definitions.model import Table

__all__ = ["sql_of"]


def sql_of(formula: Formula, tables: Mapping[int, Table]) -> str:
    """Return a condition on the bare column names of the filtered table, in parentheses.

    Args:
        formula: A filter whose plain parts are the server's rendering.
        tables: Tables of the sub-selects, by OID.
    """
    match formula:
        case Plain(text):
            return f"({text})"
        case AllOf(parts):
            return f"({' AND '.join(sql_of(part, tables) for part in parts)})"
        case AnyOf(parts):
            return f"({' OR '.join(sql_of(part, tables) for part in parts)})"
        case SetTest():
            return _test(formula, tables)
    assert_never(formula)


def _test(test: SetTest, tables: Mapping[int, Table]) -> str:
    inner = test.subselect
    table = tables[inner.table_oid]
    columns = ", ".join(map(quote_identifier, test.columns))
    left = columns if len(test.columns) == 1 else f"({columns})"
    only = "" if table.kind == "p" else "ONLY "
    select = f"SELECT {', '.join(map(quote_identifier, inner.columns))} FROM {only}{table.sql}"  # noqa: S608
    if inner.filter is not None:
        select += f" WHERE {sql_of(inner.filter, tables)}"
    match test.kind:
        case SetTestKind.IN:
            return f"({left} IN ({select}))"
        case SetTestKind.NOT_IN:
            return f"({left} NOT IN ({select}))"
        case SetTestKind.NOT_EXISTS:
            return f"(({left} IN ({select})) IS NOT TRUE)"
    assert_never(test.kind)
