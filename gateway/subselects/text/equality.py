"""Columns of two tables that equal each other exactly where their canonical texts do. Pure.

A test looks a value up by its canonical text. This is what ``=`` of the server says only if both
columns have the same type, or types of one family whose values are printed alike, and a text's
collation has equal bytes for equal texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from gateway.definitions.model import Column
from gateway.envelope.canonical import KEY_FORMS
from gateway.pgtypes.catalog import TYPES

__all__ = ["canonical_text", "why_not_equal"]

_FAMILIES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        **dict.fromkeys(("int2", "int4", "int8"), ("integer", "printed")),
        **dict.fromkeys(("text", "varchar"), ("text", "text")),
        "bpchar": ("char", "bpchar"),
        "name": ("name", "text"),
        "numeric": ("numeric", "numeric"),
        "float4": ("float4", "float"),
        "float8": ("float8", "float"),
        **{name: (name, "printed") for name in ("bool", "bytea", "date", "timestamp", "uuid")},
    }
)
"""Family and canonical form of each type; columns of one family can be compared.

A canonical text is a literal of its type as well, by which rows are looked for in the source.
"""
_BY_OID: Final = MappingProxyType({TYPES[name][0]: found for name, found in _FAMILIES.items()})


def canonical_text(column: Column) -> Callable[[bytes], bytes] | None:
    """Return the function from a value's text to its canonical text; None if it stays as it is."""
    found = _BY_OID.get(column.base_type_oid)
    return None if found is None else KEY_FORMS[found[1]]


def why_not_equal(outer: Column, inner: Column) -> str | None:
    """Return why equality of two columns cannot be followed, or None if it can."""
    for column in (outer, inner):
        if column.generated:
            return f"column {column.name} is generated, and may not be in the stream"
        if column.collation is not None and not column.collation.deterministic:
            return f"the collation of column {column.name} is not deterministic"
    if outer.type_kind == "e" or inner.type_kind == "e":
        return None if outer.type_oid == inner.type_oid else _differ(outer, inner)
    families = [_BY_OID.get(column.base_type_oid) for column in (outer, inner)]
    if None in families:
        column = outer if families[0] is None else inner
        return f"values of type {column.type_name} are not looked up in sets"
    if families[0] != families[1]:
        return _differ(outer, inner)
    names = {column.collation.name for column in (outer, inner) if column.collation is not None}
    if len(names) > 1:
        return f"the collations of columns {outer.name} and {inner.name} differ"
    return None


def _differ(outer: Column, inner: Column) -> str:
    return (
        f"column {outer.name} is {outer.type_name} and column {inner.name} is {inner.type_name}: "
        "only columns of one type, or two integer types, are compared"
    )
