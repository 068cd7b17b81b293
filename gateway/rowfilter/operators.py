"""Built-in operators, casts and functions that are evaluated here.

The generated `gateway.pgtypes.catalog` maps operators, casts and names, with types, to functions;
`gateway.rowfilter.builtins` implements the functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from gateway.pgtypes.catalog import CASTS, FUNCTIONS, OPERATORS, TYPES
from gateway.rowfilter.builtins import FAMILIES
from gateway.rowfilter.builtins.common import Length
from gateway.rowfilter.expr import Operation, Value

__all__ = [
    "OPERATIONS",
    "cast_operation",
    "find_function",
    "find_operator",
    "is_comparison",
    "length_coercion",
    "operator_type",
    "whole",
]

OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType(
    {operation.name: operation for family in FAMILIES for operation in family.operations}
)
"""By ``prosrc``."""
_LENGTHS: Final[Mapping[int, Length]] = MappingProxyType(
    {TYPES[name][0]: length for family in FAMILIES for name, length in family.lengths.items()}
)
_BOOL: Final = TYPES["bool"][0]
_TEXT: Final = TYPES["text"][0]
_VARCHAR: Final = TYPES["varchar"][0]


def find_operator(name: str, left: int, right: int) -> tuple[Operation, int] | None:
    """Return the operation of an operator on these types (`left` 0: prefix), and its type."""
    key, result = OPERATORS.get((name, left, right), ("", 0))
    operation = OPERATIONS.get(key)
    return None if operation is None else (operation, result)


def find_function(name: str, arguments: tuple[int, ...]) -> tuple[Operation, int] | None:
    """Return the operation of a function on values of these types, and its result type."""
    key, result = FUNCTIONS.get((name, arguments), ("", 0))
    operation = OPERATIONS.get(key)
    return None if operation is None else (operation, result)


def cast_operation(step: tuple[int, int]) -> Operation | KeyError | None:
    """Return the operation of a cast; None if the value stays unchanged, KeyError if unknown."""
    key = CASTS.get(step, "")
    return None if key is None else OPERATIONS.get(key, KeyError(step))


def length_coercion(type_oid: int, typmod: int) -> Operation | None:
    """Return the cast of a type to itself with a type modifier, or None if not evaluated here."""
    length = _LENGTHS.get(type_oid)
    return None if length is None else length(typmod)


def operator_type(type_oid: int) -> int:
    """Return the type whose operators a type uses: varchar has none of its own."""
    return _TEXT if type_oid == _VARCHAR else type_oid


def is_comparison(operation: Operation, result: int) -> bool:
    """Whether a function is a comparison: true or false, and NULL for NULL only."""
    return result == _BOOL and operation.infix is not None


def whole(operation: Operation, *, first: bool = True) -> Operation:
    """Return the comparison with its adapters bound in, that of the left side if `first`."""
    if not operation.adapters:
        return operation
    left, right = operation.adapters
    return replace(
        operation,
        function=_adapted(operation.function, left if first else None, right),
        infix=None,
        adapters=(),
        prepare=None,
    )


def _adapted(
    function: Callable[..., Value], left: Operation | None, right: Operation | None
) -> Callable[..., Value]:
    of_left, of_right = (side.function if side else _same for side in (left, right))
    return lambda first, second: function(of_left(first), of_right(second))


def _same(value: Value) -> Value:
    return value
