"""Functions of arrays, for any kind of element.

Where elements are compared, `equal` is PostgreSQL's = of two that are not NULL.

Source: src/backend/utils/adt/arrayfuncs.c, array_userfuncs.c.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from gateway.pgtypes.arrays import EMPTY, Array, one_dimension
from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "Equal",
    "append",
    "cardinality",
    "concatenate",
    "contains",
    "dims",
    "larger",
    "length",
    "lower",
    "ndims",
    "overlaps",
    "position",
    "positions",
    "prepend",
    "remove",
    "replace",
    "reverse",
    "smaller",
    "trim",
    "upper",
]

Equal: TypeAlias = Callable[[Any, Any], Any]
_MAX_INTEGER: Final = 2**31 - 1
_MAX_ITEMS: Final = 134_217_727
"""MaxArraySize."""


def ndims(array: Array) -> int | None:
    """array_ndims()."""
    return len(array.dimensions) or None


def dims(array: Array) -> bytes | None:
    """array_dims(), for example ``[1:3][0:1]``."""
    if not array.dimensions:
        return None
    bounds = zip(array.lower_bounds, array.dimensions, strict=True)
    return "".join(f"[{lower}:{lower + size - 1}]" for lower, size in bounds).encode()


def length(array: Array, dimension: int) -> int | None:
    """array_length()."""
    return array.dimensions[dimension - 1] if _has(array, dimension) else None


def lower(array: Array, dimension: int) -> int | None:
    """array_lower()."""
    return array.lower_bounds[dimension - 1] if _has(array, dimension) else None


def upper(array: Array, dimension: int) -> int | None:
    """array_upper()."""
    if not _has(array, dimension):
        return None
    return array.lower_bounds[dimension - 1] + array.dimensions[dimension - 1] - 1


def _has(array: Array, dimension: int) -> bool:
    return 0 < dimension <= len(array.dimensions)


def cardinality(array: Array) -> int:
    """How many elements, in all dimensions (cardinality)."""
    return len(array.items)


# What makes arrays


def append(array: Array | None, item: Any) -> Array:
    """array_append(), array || element; a NULL array is an empty one."""
    return _extended(array, item, first=False)


def prepend(item: Any, array: Array | None) -> Array:
    """array_prepend(), element || array; the lower bound stays."""
    return _extended(array, item, first=True)


def _extended(array: Array | None, item: Any, *, first: bool) -> Array:
    if array is None or not array.items:
        return one_dimension([item])
    if len(array.dimensions) > 1:
        raise EvaluationError("argument must be empty or one-dimensional array")
    bound = array.lower_bounds[0]
    new = bound - 1 if first else bound + len(array.items)
    if not -_MAX_INTEGER - 1 <= new <= _MAX_INTEGER:
        raise EvaluationError("integer out of range")
    items = (item, *array.items) if first else (*array.items, item)
    return Array((len(items),), array.lower_bounds, items)


def concatenate(left: Array | None, right: Array | None) -> Array | None:
    """array_cat(), array || array; a NULL one adds nothing."""
    if left is None or right is None:
        return right if left is None else left
    if not left.items or not right.items:
        return left if left.items else right
    more = len(left.dimensions) - len(right.dimensions)
    # An array of one dimension less is one element of the other.
    inner_left = _shape(left, 0 if more == -1 else 1)
    inner_right = _shape(right, 0 if more == 1 else 1)
    if abs(more) > 1 or inner_left != inner_right:
        raise EvaluationError("cannot concatenate incompatible arrays")
    outer = right if more == -1 else left
    count = (1 if more == -1 else left.dimensions[0]) + (1 if more == 1 else right.dimensions[0])
    items = left.items + right.items
    _check_size(len(items))
    return Array((count, *outer.dimensions[1:]), outer.lower_bounds, items)


def _shape(array: Array, start: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return array.dimensions[start:], array.lower_bounds[start:]


def _check_size(items: int) -> None:
    if items > _MAX_ITEMS:
        raise EvaluationError(f"array size exceeds the maximum allowed ({_MAX_ITEMS})")


def trim(array: Array, count: int) -> Array:
    """trim_array(); the bounds of the rest begin at 1, as those of a slice do."""
    rows = array.dimensions[0] if array.dimensions else 0
    if not 0 <= count <= rows:
        raise EvaluationError(f"number of elements to trim must be between 0 and {rows}")
    if count == rows:
        return EMPTY
    kept = rows - count
    size = len(array.items) // rows
    dimensions = (kept, *array.dimensions[1:])
    return Array(dimensions, (1,) * len(dimensions), array.items[: kept * size])


def reverse(array: Array) -> Array:
    """array_reverse(): of the first dimension; the bounds stay."""
    if len(array.items) < 2:
        return array
    size = len(array.items) // array.dimensions[0]
    starts = range(len(array.items) - size, -1, -size)
    items = tuple([item for start in starts for item in array.items[start : start + size]])
    return Array(array.dimensions, array.lower_bounds, items)


def larger(left: Array, right: Array) -> Array:
    """array_larger(); of two equal ones the second."""
    return left if left > right else right


def smaller(left: Array, right: Array) -> Array:
    """array_smaller(); of two equal ones the second."""
    return left if left < right else right


# What looks for elements


def contains(array: Array, wanted: Array, equal: Equal | None) -> bool:
    """``array @> wanted``: NULL equals nothing; `equal` None: Python's ``==``."""
    if equal is None:
        return all(item is not None and item in array.items for item in wanted.items)
    return all(item is not None and _is_among(item, array.items, equal) for item in wanted.items)


def overlaps(left: Array, right: Array, equal: Equal | None) -> bool:
    """``left && right``: NULL equals nothing; `equal` None: Python's ``==``."""
    if equal is None:
        return any(item is not None and item in right.items for item in left.items)
    return any(item is not None and _is_among(item, right.items, equal) for item in left.items)


def _is_among(item: Any, items: Sequence[Any], equal: Equal) -> bool:
    return any(other is not None and equal(other, item) for other in items)


def _same(item: Any, wanted: Any, equal: Equal) -> bool:
    """For searches, NULL is like NULL."""
    if item is None or wanted is None:
        return item is wanted
    return bool(equal(item, wanted))


def position(array: Array | None, wanted: Any, start: Any, equal: Equal) -> int | None:
    """array_position(); `start` is a subscript.

    Raises:
        EvaluationError: the array has several dimensions, or `start` is NULL.
    """
    if array is None:
        return None
    _check_searched(array)
    if not array.items or (wanted is None and None not in array.items):
        return None
    if start is None:
        raise EvaluationError("initial position must not be null")
    for subscript, item in enumerate(array.items, array.lower_bounds[0]):
        if subscript >= start and _same(item, wanted, equal):
            return subscript
    return None


def positions(array: Array | None, wanted: Any, equal: Equal) -> Array | None:
    """array_positions()."""
    if array is None:
        return None
    _check_searched(array)
    start = array.lower_bounds[0] if array.items else 1
    found = [at for at, item in enumerate(array.items, start) if _same(item, wanted, equal)]
    return one_dimension(found)


def _check_searched(array: Array) -> None:
    if len(array.dimensions) > 1:
        raise EvaluationError("searching for elements in multidimensional arrays is not supported")


def remove(array: Array | None, wanted: Any, equal: Equal) -> Array | None:
    """array_remove()."""
    if array is None or not array.items:
        return array
    if len(array.dimensions) > 1:
        raise EvaluationError("removing elements from multidimensional arrays is not supported")
    items = tuple([item for item in array.items if not _same(item, wanted, equal)])
    return Array((len(items),), array.lower_bounds, items) if items else EMPTY


def replace(array: Array | None, wanted: Any, new: Any, equal: Equal) -> Array | None:
    """array_replace()."""
    if array is None:
        return None
    items = tuple([new if _same(item, wanted, equal) else item for item in array.items])
    return Array(array.dimensions, array.lower_bounds, items)
