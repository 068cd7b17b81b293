"""Which built-in operators, casts and functions are supported, and what they do.

Which function an operator, a cast or a name with which types calls comes from the generated
`gateway.pgtypes.catalog`; what the function does, from `gateway.rowfilter.builtins`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from gateway.pgtypes.catalog import CASTS, TYPES
from gateway.rowfilter import builtins
from gateway.rowfilter.expr import Operation, Signature, Value

__all__ = [
    "OPERATIONS",
    "cast_operation",
    "has_cast",
    "length_coercion",
    "operation_for",
    "whole",
]

OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType(
    {operation.name: operation for operation in builtins.operations()}
)
"""By key: ``prosrc``, or ``proname(typname,...)`` for a function that is written in SQL."""
_FACTORIES: Final = dict(builtins.factories())
_LENGTHS: Final = {TYPES[name][0]: length for name, length in builtins.lengths()}
_STEPS: Final = {
    (TYPES[source][0], TYPES[target][0]): operation
    for (source, target), operation in builtins.steps()
}


def operation_for(key: str, signature: Signature) -> Operation | None:
    """What the function `key` does with arguments of these types; None: not supported."""
    factory = _FACTORIES.get(key)
    if factory is not None:
        return factory(signature)
    return OPERATIONS.get(key)


def whole(operation: Operation, *, first: bool = True) -> Operation:
    """The comparison with its adapters inside its function, that of the left side if `first`."""
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


def length_coercion(type_oid: int, typmod: int) -> Operation | None:
    """The cast of a type to itself with a type modifier, or None when that is not supported."""
    length = _LENGTHS.get(type_oid)
    return None if length is None else length(typmod)


def has_cast(step: tuple[int, int]) -> bool:
    """The immutable built-in cast from one type to another, `step`, is supported."""
    key = CASTS[step]
    return step in _STEPS or key is None or operation_for(key, _signature(step)) is not None


def cast_operation(step: tuple[int, int]) -> Operation | None:
    """What the cast `step` does; None when the value stays what it is."""
    if step in _STEPS:
        return _STEPS[step]
    key = CASTS[step]
    return None if key is None else operation_for(key, _signature(step))


def _signature(step: tuple[int, int]) -> Signature:
    source, target = step
    return Signature((source,), target)
