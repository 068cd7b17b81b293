"""Rows of slices as a condition of SQL, for a reader of chunks.

Literals have no type: each becomes one of its column's, under whose equality canonical texts are
equal (`gateway.subselects.text.equality`). Those of integers are of the largest type, which a value
of another table can have; an index of the column can be used all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.core.identifiers import quote_identifier
from gateway.subselects.formula import Value

__all__ = ["slice_condition"]


def slice_condition(
    columns: Sequence[str], values: Sequence[Value], integers: Collection[str] = ()
) -> str:
    """Return the condition of rows that have one of `values` in `columns`.

    The session has ``standard_conforming_strings`` on.

    Args:
        columns: Columns that are compared.
        values: Values of these columns.
        integers: Those of a type of integers.
    """
    names = [quote_identifier(name) for name in columns]
    types = ["::pg_catalog.int8" if name in integers else "" for name in columns]
    plain = [value for value in values if None not in value]
    parts = [
        "(" + " AND ".join(map(_equals, names, value, types)) + ")"
        for value in values
        if None in value
    ]
    if plain:
        listed = ", ".join(f"({', '.join(map(_literal, value, types))})" for value in plain)
        parts.append(f"({', '.join(names)}) IN ({listed})")
    return " OR ".join(parts)


def _equals(name: str, text: bytes | None, of_type: str) -> str:
    return f"{name} IS NULL" if text is None else f"{name} = {_literal(text, of_type)}"


def _literal(text: bytes | None, of_type: str) -> str:
    assert text is not None
    return "'" + text.decode().replace("'", "''") + "'" + of_type
