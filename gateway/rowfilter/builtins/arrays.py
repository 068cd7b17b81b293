"""Arrays of any element that can be compared.

Left out: array_fill, whose result can be too large, array_sort, where it shows in which order
equal elements are left (1.0 and 1.00), and the hash functions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key, partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from gateway.pgtypes import array_functions
from gateway.pgtypes.arrays import Array
from gateway.pgtypes.catalog import TYPES
from gateway.pgtypes.errors import EvaluationError
from gateway.rowfilter.builtins.common import COMPARISONS
from gateway.rowfilter.builtins.number_functions import width_bucket_of_thresholds
from gateway.rowfilter.expr import CollationUse, Operation, Signature, Value

__all__ = ["ELEMENTS", "OPERATIONS"]

Comparison: TypeAlias = Callable[[str, int], Operation | None]
ElementFactory: TypeAlias = Callable[[Signature, Comparison], Operation | None]
_ELEMENT_OF: Final = {array: oid for oid, array in TYPES.values() if array}


def _same(value: Value) -> Value:
    return value


@dataclass(frozen=True, slots=True)
class _Equality:
    """How two elements that are not NULL are compared for equality.

    Attributes:
        equal: PostgreSQL's =.
        is_plain: Python's ``==`` is the same.
        use: What it asks of the collation.
    """

    equal: Callable[[Any, Any], Any]
    is_plain: bool
    use: CollationUse


def _key_of(operation: Operation) -> Callable[[Any], Any]:
    """What both sides of a comparison are seen through; `_same`: as they are."""
    left, right = operation.adapters or (None, None)
    assert left is right, "elements of one type are seen the same way on both sides"
    return _same if left is None else left.function


_WITHOUT_EQUALITY: Final = frozenset(TYPES[name][0] for name in ("json", "jsonpath"))
_WITHOUT_ORDER: Final = _WITHOUT_EQUALITY | {TYPES["xid"][0], TYPES["cid"][0]}
_NAMES: Final = {oid: name for name, (oid, _) in TYPES.items()}


def _missing(name: str, element: int, *, orders: bool) -> Operation | None:
    """What a function does that PostgreSQL accepts for arrays whose elements do not compare."""
    if element not in (_WITHOUT_ORDER if orders else _WITHOUT_EQUALITY):
        return None
    kind = "a comparison function" if orders else "an equality operator"
    message = f"could not identify {kind} for type {_NAMES[element]}"

    def fail(left: Any, right: Any) -> bool:
        shapes = [(array.dimensions, array.lower_bounds) for array in (left, right)]
        if name in ("array_eq", "array_ne") and shapes[0] != shapes[1]:
            return name == "array_ne"
        raise EvaluationError(message)

    return Operation(name, fail, can_raise=True)


def _refused(name: str, operation: Operation) -> Operation | None:
    """The function `name`, when `operation` is refused for elements of which nothing is known."""
    found = operation.specialize({}) if operation.specialize is not None else operation
    if isinstance(found, Operation):
        return None
    reason = found
    return replace(operation, name=name, infix=None, adapters=(), specialize=lambda _: reason)


def _equality(signature: Signature, comparison: Comparison) -> _Equality | None:
    """How elements of the first argument, an array, are compared for equality."""
    operation = comparison("=", _ELEMENT_OF[signature.arguments[0]])
    if operation is None:
        return None
    key = _key_of(operation)
    if key is _same:
        return _Equality(operation.function, operation.infix == "==", operation.collation)
    function = operation.function
    return _Equality(lambda a, b: function(key(a), key(b)), False, operation.collation)


def _order_key(equal: Operation, less: Operation) -> Callable[[Any], Any]:
    """What turns an element into one that Python compares as PostgreSQL compares the element."""
    key = _key_of(less)
    if equal.infix == "==" and less.infix == "<":
        return key
    same, before = equal.function, less.function

    def compare(left: Any, right: Any) -> int:
        return 0 if same(left, right) else -1 if before(left, right) else 1

    comparable = cmp_to_key(compare)
    return comparable if key is _same else lambda item: comparable(key(item))


def _compared(
    name: str,
    function: Callable[..., Value],
    infix: str | None = None,
    *,
    orders: bool = True,
) -> ElementFactory:
    """A function of two arrays that compares them as a whole."""

    def make(signature: Signature, comparison: Comparison) -> Operation | None:
        element = _ELEMENT_OF[signature.arguments[0]]
        equal, less = comparison("=", element), comparison("<", element)
        used = less if orders else equal
        if equal is None or used is None:
            return _missing(name, element, orders=orders)
        refused = _refused(name, used)
        if refused is not None:
            return refused
        key = _order_key(equal, used) if orders else _equal_key(equal)
        adapter = None if key is _same else Operation("(comparable array)", _mapped(key))
        return Operation(
            name,
            function,
            infix,
            collation=used.collation,
            adapters=() if adapter is None else (adapter, adapter),
        )

    return make


def _equal_key(equal: Operation) -> Callable[[Any], Any]:
    key = _key_of(equal)
    if equal.infix == "==":
        return key
    same = equal.function
    comparable = cmp_to_key(lambda left, right: 0 if same(left, right) else 1)
    return comparable if key is _same else lambda item: comparable(key(item))


def _mapped(key: Callable[[Any], Any]) -> Callable[[Array], Array]:
    return lambda array: array.map(key)


def _picked(name: str, function: Callable[[Array, Array], bool]) -> ElementFactory:
    """array_larger and array_smaller: the first where `function` says so, else the second."""

    def make(signature: Signature, comparison: Comparison) -> Operation | None:
        compared = _compared(name, function)(signature, comparison)
        if compared is None or compared.can_raise or compared.specialize is not None:
            return compared
        key = compared.adapters[0].function if compared.adapters and compared.adapters[0] else _same

        def pick(left: Value, right: Value) -> Value:
            return left if function(key(left), key(right)) else right  # type: ignore[arg-type]

        return Operation(name, pick, collation=compared.collation)

    return make


def _bucket(signature: Signature, comparison: Comparison) -> Operation | None:
    """width_bucket() of an operand and thresholds, which are the array."""
    element = signature.arguments[0]
    equal, less = comparison("=", element), comparison("<", element)
    if equal is None or less is None or less.can_raise:
        return None
    refused = _refused("width_bucket_array", less)
    if refused is not None:
        return refused
    key = _order_key(equal, less)

    def bucket(operand: Any, thresholds: Array) -> int:
        return width_bucket_of_thresholds(key(operand), thresholds.map(key))

    return Operation("width_bucket_array", bucket, can_raise=True, collation=less.collation)


def _compare(left: Array, right: Array) -> int:
    return int(left > right) - int(left < right)


def _searching(
    name: str,
    function: Callable[..., Value],
    *,
    plain: bool = False,
    strict: bool = True,
    can_raise: bool = False,
) -> ElementFactory:
    """A function that takes `equal` to compare elements; `plain`: it knows better for Python's."""

    def make(signature: Signature, comparison: Comparison) -> Operation | None:
        found = _equality(signature, comparison)
        if found is None:
            # Those that take an element look at the array first, and may not get to compare.
            element = _ELEMENT_OF[signature.arguments[0]]
            return _missing(name, element, orders=False) if plain else None
        equal = None if plain and found.is_plain else found.equal
        return Operation(
            name,
            partial(function, equal=equal),
            strict=strict,
            can_raise=can_raise,
            collation=found.use,
        )

    return make


def _contained(left: Array, right: Array, equal: array_functions.Equal | None) -> bool:
    return array_functions.contains(right, left, equal)


def _position(array: Array | None, wanted: Value, equal: array_functions.Equal) -> int | None:
    start = array.lower_bounds[0] if array is not None and array.items else 1
    return array_functions.position(array, wanted, start, equal)


ELEMENTS: Final[Mapping[str, ElementFactory]] = MappingProxyType(
    {
        **{
            f"array_{suffix}": _compared(
                f"array_{suffix}", function, infix, orders=suffix not in ("eq", "ne")
            )
            for suffix, (infix, function) in COMPARISONS.items()
        },
        "btarraycmp": _compared("btarraycmp", _compare),
        "array_larger": _picked("array_larger", operator.gt),
        "array_smaller": _picked("array_smaller", operator.lt),
        "width_bucket_array": _bucket,
        "arraycontains": _searching("arraycontains", array_functions.contains, plain=True),
        "arraycontained": _searching("arraycontained", _contained, plain=True),
        "arrayoverlap": _searching("arrayoverlap", array_functions.overlaps, plain=True),
        "array_position": _searching("array_position", _position, strict=False, can_raise=True),
        "array_position_start": _searching(
            "array_position_start", array_functions.position, strict=False, can_raise=True
        ),
        "array_positions": _searching(
            "array_positions", array_functions.positions, strict=False, can_raise=True
        ),
        "array_remove": _searching(
            "array_remove", array_functions.remove, strict=False, can_raise=True
        ),
        "array_replace": _searching("array_replace", array_functions.replace, strict=False),
    }
)

OPERATIONS: Final[Sequence[Operation]] = (
    Operation("array_ndims", array_functions.ndims, nullable=True),
    Operation("array_dims", array_functions.dims, nullable=True),
    Operation("array_length", array_functions.length, nullable=True),
    Operation("array_lower", array_functions.lower, nullable=True),
    Operation("array_upper", array_functions.upper, nullable=True),
    Operation("array_cardinality", array_functions.cardinality),
    Operation("array_append", array_functions.append, strict=False, can_raise=True),
    Operation("array_prepend", array_functions.prepend, strict=False, can_raise=True),
    Operation("array_cat", array_functions.concatenate, strict=False, can_raise=True),
    Operation("trim_array", array_functions.trim, can_raise=True),
    Operation("array_reverse", array_functions.reverse),
)
