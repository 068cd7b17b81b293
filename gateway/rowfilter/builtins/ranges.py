"""Ranges and multiranges.

Values compare as Python tuples whatever they range over, so one implementation serves all types;
only the constructors have to know whether the subtype is discrete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from gateway.pgtypes import multiranges, ranges
from gateway.pgtypes.arrays import Array
from gateway.pgtypes.catalog import TYPES
from gateway.pgtypes.datetime import USECS_PER_SEC
from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.multiranges import Multirange
from gateway.pgtypes.numeric import Numeric, numeric_to_float, subtract
from gateway.pgtypes.ranges import Range
from gateway.rowfilter.builtins.common import comparisons, same
from gateway.rowfilter.expr import Operation, Signature, Value

__all__ = ["FACTORIES", "OPERATIONS", "PARSERS", "operations"]


def _multirange_name(name: str) -> str:
    return name.removesuffix("range") + "multirange"


PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {
        name: partial(ranges.read_range, parse=subtype.parse)
        for name, subtype in ranges.SUBTYPES.items()
    }
    | {
        _multirange_name(name): partial(multiranges.read_multirange, parse=subtype.parse)
        for name, subtype in ranges.SUBTYPES.items()
    }
)


def _compare(left: Any, right: Any) -> int:
    return int(left > right) - int(left < right)


def _swapped(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: function(right, left)


def _before(left: Range, right: Range) -> bool:
    return bool(left and right) and left[1] < right[0]


def _overleft(left: Range, right: Range) -> bool:
    return bool(left and right) and left[1] <= right[1]


def _overright(left: Range, right: Range) -> bool:
    return bool(left and right) and left[0] >= right[0]


_PLACES: Final[Mapping[str, Callable[[Range, Range], bool]]] = MappingProxyType(
    {
        "before": _before,
        "after": _swapped(_before),
        "overleft": _overleft,
        "overright": _overright,
        "adjacent": ranges.adjacent,
    }
)
"""Of two ranges; a multirange stands there as the range from its begin to its end."""


def _single(value: Range) -> Multirange:
    """A range as a multirange."""
    return (value,) if value else ()


def _of_spans(
    function: Callable[[Range, Range], bool], left: bool, right: bool
) -> Callable[[Any, Any], bool]:
    """`function` of the spans of the arguments that are multiranges: `left`, `right`."""
    if left and right:
        return lambda a, b: function(multiranges.span(a), multiranges.span(b))
    if left:
        return lambda a, b: function(multiranges.span(a), b)
    return lambda a, b: function(a, multiranges.span(b))


def _places() -> list[Operation]:
    found = [Operation(f"range_{name}", function) for name, function in _PLACES.items()]
    for name, function in _PLACES.items():
        found += [
            Operation(f"multirange_{name}_multirange", _of_spans(function, True, True)),
            Operation(f"multirange_{name}_range", _of_spans(function, True, False)),
            Operation(f"range_{name}_multirange", _of_spans(function, False, True)),
        ]
    return found


def _range_contains_multirange(value: Range, other: Multirange) -> bool:
    return ranges.contains(value, multiranges.span(other))


def _overlaps_range(value: Multirange, part: Range) -> bool:
    return multiranges.overlaps(value, _single(part))


def _containment() -> list[Operation]:
    found = [
        Operation("range_overlaps", ranges.overlaps),
        Operation("range_overlaps_multirange", _swapped(_overlaps_range)),
        Operation("multirange_overlaps_range", _overlaps_range),
        Operation("multirange_overlaps_multirange", multiranges.overlaps),
    ]
    for contains, contained, function in (
        ("range_contains", "range_contained_by", ranges.contains),
        (
            "range_contains_multirange",
            "multirange_contained_by_range",
            _range_contains_multirange,
        ),
        (
            "multirange_contains_range",
            "range_contained_by_multirange",
            multiranges.contains_range,
        ),
        (
            "multirange_contains_multirange",
            "multirange_contained_by_multirange",
            multiranges.contains_multirange,
        ),
        (
            "multirange_contains_elem",
            "elem_contained_by_multirange",
            multiranges.contains_element,
        ),
    ):
        found += [Operation(contains, function), Operation(contained, _swapped(function))]
    return found


_FOLDS_SINCE: Final = 17
"""The planner makes a comparison of a value with a constant range since this version."""


def _elements(major: int | None) -> list[Operation]:
    """A value in a range; what becomes of NULL is for the planner to say where it folds the test.

    Source: find_simplified_clause().
    """

    def refusal(constants: Mapping[int, Value], place: int) -> str | None:
        range_ = constants.get(place)
        if range_ in (ranges.EMPTY, (ranges.LOWER_INFINITE, ranges.UPPER_INFINITE)):
            return (
                "from PostgreSQL 17 on, every value is in a constant range without bounds and none "
                "in an empty one, NULL included, and the value is not evaluated"
            )
        return None

    contains = Operation("range_contains_elem", ranges.contains_element)
    contained = Operation("elem_contained_by_range", _swapped(ranges.contains_element))
    if major is not None and major < _FOLDS_SINCE:
        return [contains, contained]
    return [
        replace(contains, specialize=lambda constants: refusal(constants, 0) or contains),
        replace(contained, specialize=lambda constants: refusal(constants, 1) or contained),
    ]


_BOUNDS: Final[Mapping[str, tuple[Callable[[Range], Any], bool]]] = MappingProxyType(
    {
        "lower": (ranges.lower, True),
        "upper": (ranges.upper, True),
        "empty": (lambda value: not value, False),
        "lower_inc": (ranges.lower_inclusive, False),
        "upper_inc": (ranges.upper_inclusive, False),
        "lower_inf": (ranges.lower_infinite, False),
        "upper_inf": (ranges.upper_infinite, False),
    }
)
"""Functions of one range, and whether they may return None."""


def _bounds() -> list[Operation]:
    found = []
    for name, (function, nullable) in _BOUNDS.items():

        def of_span(value: Multirange, function: Callable[[Range], Any] = function) -> Any:
            return function(multiranges.span(value))

        found += [
            Operation(f"range_{name}", function, nullable=nullable),
            Operation(f"multirange_{name}", of_span, nullable=nullable),
        ]
    return found


def _merge_multirange(value: Multirange) -> Range:
    return multiranges.span(value)


def _multirange_of(array: Array) -> Multirange:
    """A multirange constructor; a VARIADIC parameter is an array of ranges."""
    if len(array.dimensions) > 1:
        raise EvaluationError("multiranges cannot be constructed from multidimensional arrays")
    if None in array.items:
        raise EvaluationError("multirange values cannot contain null members")
    return multiranges.make_multirange(array.items)


def _no_multirange() -> Multirange:
    return ()


def _distance(left: int, right: int) -> float:
    return float(left) - float(right)


def _seconds(left: int, right: int) -> float:
    return (float(left) - float(right)) / USECS_PER_SEC


def _numeric_distance(left: Numeric, right: Numeric) -> Value:
    return numeric_to_float(subtract(left, right))


def _distances() -> list[Operation]:
    """How far apart two values of a subtype are."""
    return [
        *(Operation(f"{name}range_subdiff", _distance) for name in ("int4", "int8", "date")),
        *(Operation(f"{name}range_subdiff", _seconds) for name in ("ts", "tstz")),
        Operation("numrange_subdiff", _numeric_distance, can_raise=True),
    ]


_SAME_EVERYWHERE: Final[Sequence[Operation]] = (
    *comparisons("range_{}"),
    *comparisons("multirange_{}"),
    Operation("range_cmp", _compare),
    Operation("multirange_cmp", _compare),
    *_containment(),
    *_places(),
    *_bounds(),
    *_distances(),
    Operation("range_union", ranges.union, can_raise=True),
    Operation("range_minus", ranges.difference, can_raise=True),
    Operation("range_intersect", ranges.intersection),
    Operation("range_merge", ranges.merge),
    Operation("range_merge_from_multirange", _merge_multirange),
    Operation("multirange_union", multiranges.union),
    Operation("multirange_minus", multiranges.difference),
    Operation("multirange_intersect", multiranges.intersection),
    Operation("multirange_constructor0", _no_multirange),
    Operation("multirange_constructor1", _single),
    Operation("multirange_constructor2", _multirange_of, can_raise=True),
    # What is printed is canonical already.
    Operation("int4range_canonical", same),
    Operation("int8range_canonical", same),
    Operation("daterange_canonical", same),
)


def operations(major: int | None) -> Sequence[Operation]:
    """The operations on a server of this major version; None: of any."""
    return (*_SAME_EVERYWHERE, *_elements(major))


OPERATIONS: Final[Sequence[Operation]] = operations(None)


def _constructor(signature: Signature) -> Operation | None:
    names = {TYPES[name][0]: name for name in ranges.SUBTYPES}
    name = names.get(signature.result)
    if name is None:
        return None
    subtype = ranges.SUBTYPES[name]
    function = partial(ranges.make_range, subtype=subtype)
    return Operation(name, function, can_raise=True, strict=False)


FACTORIES: Final[Mapping[str, Callable[[Signature], Operation | None]]] = MappingProxyType(
    {"range_constructor2": _constructor, "range_constructor3": _constructor}
)
