"""Rows of slices as a condition of SQL, for a reader of chunks.

Literals have no type: each becomes one of its column's, under whose equality canonical texts are
equal (`gateway.subselects.text.equality`).
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.identifiers import quote_identifier
from gateway.subselects.formula import Value

__all__ = ["slice_condition"]


def slice_condition(columns: Sequence[str], values: Sequence[Value]) -> str:
    """Return the condition of rows that have one of `values` in `columns`.

    The session has ``standard_conforming_strings`` on.
    """
    names = [quote_identifier(name) for name in columns]
    plain = [value for value in values if None not in value]
    parts = [
        "("
        + " AND ".join(_equals(name, text) for name, text in zip(names, value, strict=True))
        + ")"
        for value in values
        if None in value
    ]
    if plain:
        listed = ", ".join(f"({', '.join(map(_literal, value))})" for value in plain)
        parts.append(f"({', '.join(names)}) IN ({listed})")
    return " OR ".join(parts)


def _equals(name: str, text: bytes | None) -> str:
    return f"{name} IS NULL" if text is None else f"{name} = {_literal(text)}"


def _literal(text: bytes | None) -> str:
    assert text is not None
    return "'" + text.decode().replace("'", "''") + "'"
