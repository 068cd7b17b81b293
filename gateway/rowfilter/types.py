"""Types whose columns and literals a filter may read, with parsers of their texts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.definitions.model import Collation
from gateway.pgtypes.arrays import parse_array
from gateway.pgtypes.catalog import TYPES
from gateway.rowfilter.builtins import FAMILIES
from gateway.rowfilter.builtins.common import Parser

__all__ = [
    "ARRAY_PARSERS",
    "BOOL",
    "BPCHAR",
    "DEFAULT",
    "FLOAT4",
    "FLOAT8",
    "INT2",
    "INT4",
    "INT8",
    "NAME",
    "NUMERIC",
    "PARSERS",
    "TEXT",
    "TEXT_TYPES",
    "TYPE_NAMES",
    "UNKNOWN",
    "VARCHAR",
    "C",
    "array_type",
    "element_type",
    "type_collation",
    "type_name",
]

BOOL: Final = TYPES["bool"][0]
INT4: Final = TYPES["int4"][0]
INT8: Final = TYPES["int8"][0]
NUMERIC: Final = TYPES["numeric"][0]
TEXT: Final = TYPES["text"][0]
NAME: Final = TYPES["name"][0]
INT2: Final = TYPES["int2"][0]
FLOAT4: Final = TYPES["float4"][0]
FLOAT8: Final = TYPES["float8"][0]
UNKNOWN: Final = 705
VARCHAR: Final = TYPES["varchar"][0]
BPCHAR: Final = TYPES["bpchar"][0]
TEXT_TYPES: Final = frozenset(TYPES[name][0] for name in ("text", "varchar", "bpchar", "name"))

TYPE_NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {oid: name for name, (oid, _) in TYPES.items()}
    | {UNKNOWN: "unknown"}
    | {array: f"{name}[]" for name, (_, array) in TYPES.items() if array}
)
_ELEMENTS: Final = {array: oid for oid, array in TYPES.values() if array}
_ARRAYS: Final = {oid: array for oid, array in TYPES.values() if array}

DEFAULT: Final = Collation("default", deterministic=True, c_order=False)
"""Collation of literals. The database's collation is always deterministic; its order is not known
here."""
C: Final = Collation("C", deterministic=True, c_order=True)


def type_name(oid: int) -> str:
    """Return the name of a type for messages."""
    return TYPE_NAMES.get(oid, f"with OID {oid}")


def array_type(oid: int) -> int | None:
    """Return the array type of a built-in type."""
    return _ARRAYS.get(oid)


def type_collation(oid: int) -> Collation | None:
    """Return the default collation of a type's values, or None.

    Source: get_typcollation().
    """
    scalar = _ELEMENTS.get(oid, oid)
    if scalar == NAME:
        return C
    return DEFAULT if scalar in TEXT_TYPES else None


def element_type(oid: int) -> int | None:
    """Return the element type of a built-in array type."""
    return _ELEMENTS.get(oid)


PARSERS: Final[Mapping[int, Parser]] = MappingProxyType(
    {TYPES[name][0]: parse for family in FAMILIES for name, parse in family.parsers.items()}
)
"""Type OID -> from the text of a value to the value."""
ARRAY_PARSERS: Final[Mapping[int, Parser]] = MappingProxyType(
    {_ARRAYS[oid]: partial(parse_array, parse=parse) for oid, parse in PARSERS.items()}
)
"""The same of arrays, which are constants."""
