"""What several areas declare their operations with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from gateway.rowfilter.expr import CollationUse, Operation

__all__ = ["COMPARISONS", "comparisons", "same"]

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
    """The six comparisons of a type whose values Python compares as PostgreSQL does.

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
    """A cast that changes nothing, and unary plus."""
    return value
