"""PostgreSQL's built-in types, and the operators, casts and functions of those evaluated here.

Read from ``catalog.tsv``, which tools/update_operators.py writes. A function is named by its
``prosrc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Final

__all__ = ["CASTS", "FUNCTIONS", "OPERATORS", "TYPES"]

_types: dict[str, tuple[int, int]] = {}
_operators: dict[tuple[str, int, int], tuple[str, int]] = {}
_casts: dict[tuple[int, int], str | None] = {}
_functions: dict[tuple[str, tuple[int, ...]], tuple[str, int]] = {}


def _read() -> None:
    text = resources.files("gateway.pgtypes").joinpath("catalog.tsv").read_text(encoding="utf-8")
    for line in text.splitlines()[1:]:
        match line.split("\t"):
            case ["type", name, oid, array]:
                _types[name] = (int(oid), int(array))
            case ["operator", name, left, right, function, result]:
                _operators[name, int(left), int(right)] = (function, int(result))
            case ["cast", source, target, function]:
                _casts[int(source), int(target)] = function or None
            case ["function", name, arguments, function, result]:
                types = tuple(map(int, arguments.split()))
                _functions[name, types] = (function, int(result))
            case _:
                raise AssertionError(line)


_read()
TYPES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType(_types)
"""``typname`` -> OID, OID of its array type (0: none)."""
OPERATORS: Final[Mapping[tuple[str, int, int], tuple[str, int]]] = MappingProxyType(_operators)
"""Name, left type (0: prefix), right type -> function, result type."""
CASTS: Final[Mapping[tuple[int, int], str | None]] = MappingProxyType(_casts)
"""Source, target -> function, None when the bytes stay as they are."""
FUNCTIONS: Final[Mapping[tuple[str, tuple[int, ...]], tuple[str, int]]] = MappingProxyType(
    _functions
)
"""Name, argument types -> function, result type."""
