"""Which built-in operators, casts and functions are supported, and what they do.

Which function an operator, a cast or a name with which types calls comes from the generated
`gateway.pgtypes.catalog`; what the function does, from `gateway.rowfilter.builtins`.

`major` is always the major version of the server, or None: then an operation whose results differ
between versions raises where they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Final, TypeVar

from gateway.pgtypes.catalog import CASTS, OPERATORS, TYPES
from gateway.rowfilter import builtins
from gateway.rowfilter.expr import Operation, Signature, Value
from gateway.rowfilter.overloads import resolve

__all__ = [
    "NEWEST",
    "OPERATIONS",
    "cast_operation",
    "find_operator",
    "has_cast",
    "in_order_of_evaluation",
    "is_comparison",
    "is_supported",
    "length_coercion",
    "length_types",
    "operation_for",
    "operator_type",
    "whole",
]


Argument = TypeVar("Argument")


@cache
def _operations(major: int | None) -> Mapping[str, Operation]:
    return MappingProxyType({operation.name: operation for operation in builtins.operations(major)})


@cache
def _lengths(major: int | None) -> Mapping[int, builtins.Length]:
    return {TYPES[name][0]: length for name, length in builtins.lengths(major)}


OPERATIONS: Final = _operations(None)
"""By key: ``prosrc``, or ``proname(typname,...)`` for a function that is written in SQL."""
NEWEST: Final = 18
"""The newest major version of PostgreSQL that is supported."""
_FACTORIES: Final = dict(builtins.factories())
_ELEMENT_FACTORIES: Final = dict(builtins.element_factories())
_STEPS: Final = {
    (TYPES[source][0], TYPES[target][0]): operation
    for (source, target), operation in builtins.steps()
}


_BORROWED: Final = {
    TYPES["varchar"][0]: TYPES["text"][0],
    TYPES["cidr"][0]: TYPES["inet"][0],
}


def _by_name() -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for name, left, right in OPERATORS:
        found.setdefault(name, []).append((left, right))
    return found


_OPERATORS: Final = _by_name()


def operation_for(key: str, signature: Signature, major: int | None = None) -> Operation | None:
    """What the function `key` does with arguments of these types; None: not supported."""
    factory = _FACTORIES.get(key)
    if factory is not None:
        return factory(signature)
    of_elements = _ELEMENT_FACTORIES.get(key)
    if of_elements is not None:
        return of_elements(signature, _comparison)
    return _operations(major).get(key)


def is_supported(key: str) -> bool:
    """The function `key` is implemented, for some types at least, on the newest server."""
    return key in _FACTORIES or key in _ELEMENT_FACTORIES or key in _operations(NEWEST)


def length_types() -> list[int]:
    """The types for which a type modifier is supported."""
    return sorted(_lengths(None))


def find_operator(
    name: str, left: int, right: int, major: int | None = None
) -> tuple[Operation, int] | None:
    """What an operator does with values of these types (`left` 0: prefix), and its result type."""
    actual = (left, right) if left else (right,)
    candidates = [(left, right)]
    if (name, left, right) not in OPERATORS:
        candidates = [pair for pair in _OPERATORS.get(name, ()) if bool(pair[0]) is bool(left)]
    for candidate in candidates:
        key, result = OPERATORS[name, *candidate]
        signature = resolve(candidate if left else candidate[1:], actual, result)
        if signature is None:
            continue
        operation = operation_for(key, signature, major)
        if operation is not None:
            return operation, signature.result
    return None


def operator_type(type_oid: int) -> int:
    """The type whose operators a type has: varchar has none of its own, nor has cidr."""
    return _BORROWED.get(type_oid, type_oid)


def is_comparison(operation: Operation, result: int) -> bool:
    """It says true or false, and NULL of NULL only."""
    return result == TYPES["bool"][0] and operation.strict and not operation.nullable


def _comparison(name: str, type_oid: int) -> Operation | None:
    """A comparison of elements of an array."""
    type_oid = operator_type(type_oid)
    found = find_operator(name, type_oid, type_oid)
    return found[0] if found is not None and is_comparison(*found) else None


_COMMUTED: Final = frozenset(
    ("int8pl_inet(int8,inet)", "integer_pl_date(int4,date)", "interval_pl_date(interval,date)",
     "interval_pl_time(interval,time)", "interval_pl_timestamp(interval,timestamp)",
     "interval_pl_timetz(interval,timetz)", "numeric_pl_pg_lsn(numeric,pg_lsn)",
     "timedate_pl(time,date)", "timetzdate_pl(timetz,date)")
)  # fmt: skip
"""Functions in SQL whose body is ``$2 + $1``, which the planner puts in their place."""


def in_order_of_evaluation(
    operation: Operation, arguments: Sequence[Argument]
) -> tuple[Operation, Sequence[Argument]]:
    """A call with its arguments in the order in which PostgreSQL evaluates them."""
    if operation.name not in _COMMUTED:
        return operation, arguments
    function = operation.function
    swapped = replace(operation, function=lambda right, left: function(left, right))
    return swapped, arguments[::-1]


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


def length_coercion(type_oid: int, typmod: int, major: int | None = None) -> Operation | None:
    """The cast of a type to itself with a type modifier, or None when that is not supported."""
    length = _lengths(major).get(type_oid)
    return None if length is None else length(typmod)


def has_cast(step: tuple[int, int], major: int | None = None) -> bool:
    """The immutable built-in cast from one type to another, `step`, is supported."""
    key = CASTS[step]
    return step in _STEPS or key is None or operation_for(key, _signature(step), major) is not None


def cast_operation(step: tuple[int, int], major: int | None = None) -> Operation | None:
    """What the cast `step` does; None when the value stays what it is."""
    if step in _STEPS:
        return _STEPS[step]
    key = CASTS[step]
    return None if key is None else operation_for(key, _signature(step), major)


def _signature(step: tuple[int, int]) -> Signature:
    source, target = step
    return Signature((source,), target)
