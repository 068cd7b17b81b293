"""Conversion functions from a type's send format to its text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from gateway.core.errors import SchemaError
from gateway.pgtypes.binary.containers import array, composite, multirange, range_, vector
from gateway.pgtypes.binary.datetimes import DATETIMES
from gateway.pgtypes.binary.floats import FLOATS
from gateway.pgtypes.binary.geometry import GEOMETRY
from gateway.pgtypes.binary.info import ToText, TypeInfo
from gateway.pgtypes.binary.network import NETWORK
from gateway.pgtypes.binary.numbers import NUMBERS, integer
from gateway.pgtypes.binary.search import SEARCH
from gateway.pgtypes.binary.strings import STRINGS

__all__ = ["Describe", "compile_to_text"]

Describe: TypeAlias = Callable[[int], TypeInfo]
"""Describes a type by its OID; raises SchemaError when there is none."""

_SCALARS: Final[Mapping[tuple[str, str], ToText]] = {
    **NUMBERS,
    **FLOATS,
    **STRINGS,
    **DATETIMES,
    **NETWORK,
    **GEOMETRY,
    **SEARCH,
    ("int2vectorout", "int2vectorsend"): vector(integer(2, signed=True)),
    ("oidvectorout", "oidvectorsend"): vector(integer(4, signed=False)),
}

_SESSION_DEPENDENT: Final = {
    "cash_out": "it prints in the currency of lc_monetary",
}


def compile_to_text(type_oid: int, describe: Describe) -> ToText:
    """Return the function for the values of a type, in binary format and not NULL.

    The function raises one of `FAULTS` when the bytes are not of the format; where a composite
    value names a type that was not seen before, also what `describe` and this raise.

    Raises:
        SchemaError: the type is gone, or cannot be converted exactly; with a hint.
    """
    return _Compiler(describe).compile(type_oid)


class _Compiler:
    """Compiler with a cache by OID, in which a composite type finds its fields."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._compiled: dict[int, ToText] = {}

    def compile(self, type_oid: int) -> ToText:
        known = self._compiled.get(type_oid)
        if known is None:
            known = self._compiled[type_oid] = self._make(self._describe(type_oid))
        return known

    def _make(self, info: TypeInfo) -> ToText:
        if info.base_oid:
            return self.compile(info.base_oid)
        scalar = _SCALARS.get((info.output, info.send or ""))
        if scalar is not None:
            return scalar
        match info.output, info.send:
            case "array_out", "array_send" if info.element_oid:
                element = self._describe(info.element_oid)
                return array(self.compile(element.oid), element.delimiter)
            case "range_out", "range_send" if info.range_oid:
                return range_(self.compile(info.range_oid))
            case "multirange_out", "multirange_send" if info.range_oid:
                return multirange(self.compile(info.range_oid))
            case "record_out", "record_send" if info.kind == "c":
                for attribute in info.attributes:
                    self.compile(attribute.type_oid)
                return composite(self.compile)
        raise _refusal(info)


def _refusal(info: TypeInfo) -> SchemaError:
    if info.send is None:
        reason = "it has no binary format"
    else:
        reason = _SESSION_DEPENDENT.get(
            info.output, "its binary format does not say exactly what its text is"
        )
    return SchemaError(
        f"values of type {info.name} cannot be read in binary format: {reason}",
        hint="use binary = false for one of the subscriptions, and the stream is in text format",
    )
