"""Which overload of a function a call means, and what polymorphic types stand for in it.

The server prints arguments with their final types, so types have to be equal; only the
pseudo-types (anyelement and its kin) are resolved here.

Source: enforce_generic_type_consistency().
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.pgtypes.catalog import FUNCTIONS, POLYMORPHIC, RANGES
from gateway.rowfilter import types
from gateway.rowfilter.expr import Signature

__all__ = ["Overload", "overloads", "resolve"]

_ANY: Final = "any"
_MULTIRANGES: Final = {multirange: range_ for range_, (_, multirange) in RANGES.items()}


@dataclass(frozen=True, slots=True)
class Overload:
    """One function of a name.

    Attributes:
        arguments: Declared types.
        key: `Operation.name` of its implementation.
        result: Declared type.
        variadic: Element type of the VARIADIC parameter, 0 without one.
        defaults: SQL of the last arguments' defaults, separated by commas.
    """

    arguments: tuple[int, ...]
    key: str
    result: int
    variadic: int
    defaults: str

    @property
    def takes_any(self) -> bool:
        """It is VARIADIC "any": takes any number of arguments of any type."""
        return POLYMORPHIC.get(self.variadic) == _ANY


def overloads(name: str) -> list[Overload]:
    """The immutable built-in functions of a name."""
    return [
        Overload(arguments, key, result, variadic, defaults)
        for arguments, key, result, _, variadic, defaults in FUNCTIONS.get(name, ())
    ]


def resolve(declared: Sequence[int], actual: Sequence[int], result: int) -> Signature | None:
    """The actual types of a call, or None when it does not fit the declaration."""
    if len(declared) != len(actual):
        return None
    families = {False: _Family(), True: _Family()}
    for wanted, given in zip(declared, actual, strict=True):
        pseudo = POLYMORPHIC.get(wanted)  # anyenum is never met: enums are not built in
        if pseudo is None:
            if wanted != given:
                return None
        elif pseudo != _ANY:
            family = families[pseudo.startswith("anycompatible")]
            if not family.learn(pseudo.replace("anycompatible", "any"), given):
                return None
    pseudo = POLYMORPHIC.get(result)
    resolved: int | None = result
    if pseudo is not None:
        family = families[pseudo.startswith("anycompatible")]
        resolved = family.type_of(pseudo.replace("anycompatible", "any"))
    return None if resolved is None else Signature(tuple(actual), resolved)


class _Family:
    """What the pseudo-types of one family stand for, as far as the arguments tell."""

    __slots__ = ("element", "range")

    def __init__(self) -> None:
        self.element: int | None = None
        self.range: int | None = None

    def learn(self, pseudo: str, given: int) -> bool:
        """Take an argument declared as `pseudo`; False: it does not fit."""
        element: int | None = given
        if pseudo == "anyarray":
            element = types.element_type(given)
        elif pseudo in ("anyrange", "anymultirange"):
            range_ = given if pseudo == "anyrange" else _MULTIRANGES.get(given)
            if range_ not in RANGES or self.range not in (None, range_):
                return False
            self.range = range_
            element = RANGES[range_][0]
        elif pseudo == "anynonarray" and types.element_type(given) is not None:
            element = None
        if element is None or self.element not in (None, element):
            return False
        self.element = element
        return True

    def type_of(self, pseudo: str) -> int | None:
        """What `pseudo` stands for as a result."""
        if pseudo == "anyarray":
            return types.array_type(self.element) if self.element is not None else None
        if pseudo == "anyrange":
            return self.range
        if pseudo == "anymultirange":
            return None if self.range is None else RANGES[self.range][1]
        return self.element
