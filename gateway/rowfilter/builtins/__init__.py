"""What PostgreSQL's built-in functions do, one module for each subject.

An area may export any of

    PARSERS      typname -> text, as the type's output function prints it (ISO dates, IntervalStyle
                 postgres, bytea in hex), to value; it raises `ValueFormatError`. Arrays of a type
                 that has a parser need none
    OPERATIONS   operations, by the key that `Operation.name` is
    FACTORIES    key -> a function that makes the operation for the actual types of a call, or None:
                 not supported for these; for polymorphic functions
    LENGTHS      typname -> a function that makes of a type modifier the cast of the type to itself,
                 or None: not supported
    ELEMENTS     the same for functions of arrays, whose factory is also given what finds the
                 comparison of two elements by the operator's name and the type
    operations   takes the major version of the server, or None, and gives the OPERATIONS for it,
                 where they differ
    STEPS        (source, target), typnames -> a cast that the catalog gives no function of its own,
                 or one that depends on the types more than its function does

Which key an operator, a cast or a function with which types has is in the generated
`gateway.pgtypes.catalog`. A key without an implementation is refused by `analyze`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias

from gateway.rowfilter.expr import Operation, Signature, Value

__all__ = [
    "AREAS",
    "Comparison",
    "ElementFactory",
    "Factory",
    "Length",
    "Parser",
    "element_factories",
    "factories",
    "lengths",
    "operations",
    "parsers",
    "steps",
]

AREAS: Final = (
    "general",
    "numbers",
    "number_functions",
    "bits",
    "network",
    "text",
    "json",
    "jsonpath",
    "ranges",
    "patterns",
    "bytea",
    "datetimes",
    "intervals",
    "timezones",
    "arrays",
)
"""The modules of this package that are taken in."""

Parser: TypeAlias = Callable[[bytes], Value]
Factory: TypeAlias = Callable[[Signature], Operation | None]
Comparison: TypeAlias = Callable[[str, int], Operation | None]
ElementFactory: TypeAlias = Callable[[Signature, Comparison], Operation | None]
Length: TypeAlias = Callable[[int], Operation | None]

_MODULES: Final = tuple(import_module(f"{__name__}.{area}") for area in AREAS)


def _exports(name: str) -> Iterator[tuple[Any, Any]]:
    for module in _MODULES:
        found: Mapping[Any, Any] = getattr(module, name, {})
        yield from found.items()


def parsers() -> Iterator[tuple[str, Parser]]:
    """All PARSERS."""
    yield from _exports("PARSERS")


def operations(major: int | None = None) -> Iterator[Operation]:
    """All OPERATIONS, for a server of a major version."""
    for module in _MODULES:
        versions: Callable[[int | None], Sequence[Operation]] | None
        versions = getattr(module, "operations", None)
        yield from getattr(module, "OPERATIONS", ()) if versions is None else versions(major)


def element_factories() -> Iterator[tuple[str, ElementFactory]]:
    """All ELEMENTS."""
    yield from _exports("ELEMENTS")


def factories() -> Iterator[tuple[str, Factory]]:
    """All FACTORIES."""
    yield from _exports("FACTORIES")


def lengths(major: int | None = None) -> Iterator[tuple[str, Length]]:
    """All LENGTHS, for a server of a major version."""
    for module in _MODULES:
        versions: Callable[[int | None], Mapping[str, Length]] | None
        versions = getattr(module, "lengths", None)
        found = getattr(module, "LENGTHS", {}) if versions is None else versions(major)
        yield from found.items()


def steps() -> Iterator[tuple[tuple[str, str], Operation]]:
    """All STEPS."""
    yield from _exports("STEPS")
