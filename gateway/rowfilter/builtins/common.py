"""Declarations shared by the families of functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from gateway.rowfilter.expr import CollationUse, Operation, Value

__all__ = ["COMPARISONS", "Family", "Length", "Parser", "comparisons", "same"]

Parser: TypeAlias = Callable[[bytes], Value]
Length: TypeAlias = Callable[[int], Operation]


@dataclass(frozen=True, slots=True)
class Family:
    """Family of types, with the operators and functions that are evaluated here.

    Attributes:
        parsers: By ``typname``, parsers of the output function's text; they raise
            `ValueFormatError`.
        operations: Operations by ``prosrc``.
        lengths: By ``typname``, functions from a type modifier to the cast of the type to itself.
    """

    parsers: Mapping[str, Parser]
    operations: tuple[Operation, ...]
    lengths: Mapping[str, Length] = field(default_factory=dict)


COMPARISONS: Final[Mapping[str, tuple[str, Callable[[Any, Any], bool]]]] = MappingProxyType(
    {
        "eq": ("==", operator.eq),
        "ne": ("!=", operator.ne),
        "lt": ("<", operator.lt),
        "le": ("<=", operator.le),
        "gt": (">", operator.gt),
        "ge": (">=", operator.ge),
    }
)
"""The ending of a comparison function's name -> Python's operator."""


def comparisons(
    pattern: str,
    *,
    equality: CollationUse = CollationUse.NONE,
    order: CollationUse = CollationUse.NONE,
    adapters: tuple[Operation | None, ...] = (),
) -> list[Operation]:
    """Return the six comparisons of a type whose values Python compares as PostgreSQL does.

    `pattern` is the ``prosrc`` with ``{}`` in the place of eq, ne, lt, le, gt, ge.
    """
    return [
        Operation(
            pattern.format(suffix),
            function,
            infix,
            collation=equality if suffix in ("eq", "ne") else order,
            adapters=adapters,
        )
        for suffix, (infix, function) in COMPARISONS.items()
    ]


def same(value: object) -> object:
    """Return a value unchanged: a cast, or unary plus."""
    return value
