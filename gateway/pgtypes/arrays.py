"""Arrays of any number of dimensions: from text, and compared as PostgreSQL compares them.

Source: src/backend/utils/adt/arrayfuncs.c (array_in, array_eq, array_cmp).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError

__all__ = ["EMPTY", "MAX_DIMENSIONS", "Array", "one_dimension", "parse_array", "stack"]

MAX_DIMENSIONS: Final = 6
"""MAXDIM."""


@dataclass(frozen=True, slots=True)
class Array:
    """An array; None among its items is NULL.

    ``==`` is right where the items' ``==`` is (array_eq: NULLs are equal, bounds count), ``<`` and
    its kin where the items' ``<`` is as well (array_cmp: NULL is greater than everything).

    Attributes:
        dimensions: Length of each dimension; empty for an empty array.
        lower_bounds: The first subscript of each dimension.
        items: All of them, the last subscript running fastest.
    """

    dimensions: tuple[int, ...]
    lower_bounds: tuple[int, ...]
    items: tuple[Any, ...]

    def _compare(self, other: Array) -> int:
        for left, right in zip(self.items, other.items, strict=False):
            if left is None or right is None:
                if left is not right:
                    return 1 if left is None else -1
            elif left != right:
                return -1 if left < right else 1
        mine = (len(self.items), len(self.dimensions), self.dimensions, self.lower_bounds)
        theirs = (len(other.items), len(other.dimensions), other.dimensions, other.lower_bounds)
        return (mine > theirs) - (mine < theirs)

    def __lt__(self, other: Array) -> bool:
        return self._compare(other) < 0

    def __le__(self, other: Array) -> bool:
        return self._compare(other) <= 0

    def __gt__(self, other: Array) -> bool:
        return self._compare(other) > 0

    def __ge__(self, other: Array) -> bool:
        return self._compare(other) >= 0

    def map(self, function: Callable[[Any], Any]) -> Array:
        """The array of the same shape with `function` of each item that is not NULL."""
        items = tuple([None if item is None else function(item) for item in self.items])
        return Array(self.dimensions, self.lower_bounds, items)


EMPTY: Final = Array((), (), ())


def one_dimension(items: Sequence[Any]) -> Array:
    """The array that ``ARRAY[...]`` makes of elements."""
    return Array((len(items),), (1,), tuple(items)) if items else EMPTY


def stack(arrays: Sequence[Array | None]) -> Array:
    """The array that ``ARRAY[...]`` makes of arrays; a NULL one is like an empty one.

    Raises:
        EvaluationError: their shapes differ, or there are too many dimensions.

    Source: ExecEvalArrayExpr().
    """
    full = [array for array in arrays if array is not None and array.items]
    if not full:
        return EMPTY
    first = full[0]
    if len(full) < len(arrays) or any(
        (array.dimensions, array.lower_bounds) != (first.dimensions, first.lower_bounds)
        for array in full
    ):
        raise EvaluationError(
            "multidimensional arrays must have array expressions with matching dimensions"
        )
    if len(first.dimensions) >= MAX_DIMENSIONS:
        raise EvaluationError(
            f"number of array dimensions ({len(first.dimensions) + 1}) exceeds the maximum "
            f"allowed ({MAX_DIMENSIONS})"
        )
    items = tuple([item for array in full for item in array.items])
    return Array((len(full), *first.dimensions), (1, *first.lower_bounds), items)


def parse_array(text: bytes, parse: Callable[[bytes], Any]) -> Array:
    """Read an array as its output function prints it.

    Args:
        text: For example ``{1,NULL,3}`` or ``[0:1][1:2]={{1,2},{3,4}}``.
        parse: Reads an element.

    Raises:
        ValueFormatError: not an array.
    """
    bounds, at = _bounds(text)
    if text[at : at + 1] != b"{" or text[-1:] != b"}":
        _refuse()
    dimensions, items, end = _level(text, at, parse)
    if end != len(text):
        _refuse()
    if not items:
        return EMPTY
    lower_bounds = tuple(lower for lower, _ in bounds) or (1,) * len(dimensions)
    if bounds and tuple(upper - lower + 1 for lower, upper in bounds) != dimensions:
        _refuse()
    return Array(dimensions, lower_bounds, tuple(items))


def _bounds(text: bytes) -> tuple[list[tuple[int, int]], int]:
    """The bounds that stand before the first brace, and where that is."""
    if text[:1] != b"[":
        return [], 0
    head, equals, _ = text.partition(b"=")
    try:
        bounds = [
            (int(lower), int(upper))
            for lower, upper in (pair.split(b":") for pair in head[1:-1].split(b"]["))
        ]
    except ValueError:
        _refuse()
    return bounds, len(head) + len(equals)


def _level(
    text: bytes, at: int, parse: Callable[[bytes], Any]
) -> tuple[tuple[int, ...], list[Any], int]:
    """Dimensions and items of the braces that open at `at`, and where the text goes on."""
    at += 1
    items: list[Any] = []
    inner: tuple[int, ...] | None = None
    count = 0
    if text[at : at + 1] == b"}":
        return (), [], at + 1
    while True:
        if text[at : at + 1] == b"{":
            dimensions, found, at = _level(text, at, parse)
            items += found
        else:
            dimensions = ()
            item, at = _item(text, at, parse)
            items.append(item)
        if inner is not None and inner != dimensions:
            _refuse()
        inner = dimensions
        count += 1
        after = text[at : at + 1]
        at += 1
        if after == b"}":
            return (count, *inner), items, at
        if after != b",":
            _refuse()


def _item(text: bytes, at: int, parse: Callable[[bytes], Any]) -> tuple[Any, int]:
    if text[at : at + 1] == b'"':
        item, at = _quoted(text, at + 1)
        return parse(item), at
    end = at
    while text[end : end + 1] not in (b",", b"}", b""):
        end += 1
    if end == at:
        _refuse()
    item = text[at:end]
    return (None if item == b"NULL" else parse(item)), end


def _quoted(text: bytes, at: int) -> tuple[bytes, int]:
    """The element whose opening quote is before `at`, and where the text goes on."""
    item = bytearray()
    while at < len(text):
        if text[at] == 0x22:
            return bytes(item), at + 1
        if text[at] == 0x5C:
            at += 1
        item += text[at : at + 1]
        at += 1
    _refuse()


def _refuse() -> NoReturn:
    raise ValueFormatError("a value does not read as an array")
