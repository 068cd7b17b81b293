"""The types of which a filter may read columns and literals: how their text becomes a value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from gateway.errors import ValueFormatError
from gateway.pgtypes.catalog import TYPES
from gateway.rowfilter import builtins
from gateway.rowfilter.expr import Value

__all__ = [
    "BOOL",
    "INT4",
    "INT8",
    "NUMERIC",
    "PARSERS",
    "TEXT",
    "TEXT_TYPES",
    "TYPE_NAMES",
    "element_type",
    "parse_array",
    "type_name",
]

BOOL: Final = TYPES["bool"][0]
INT4: Final = TYPES["int4"][0]
INT8: Final = TYPES["int8"][0]
NUMERIC: Final = TYPES["numeric"][0]
TEXT: Final = TYPES["text"][0]
OID: Final = TYPES["oid"][0]
NAME: Final = TYPES["name"][0]
VARCHAR: Final = TYPES["varchar"][0]
BPCHAR: Final = TYPES["bpchar"][0]
TEXT_TYPES: Final = frozenset(TYPES[name][0] for name in ("text", "varchar", "bpchar", "name"))

TYPE_NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {oid: name for name, (oid, _) in TYPES.items()}
    | {array: f"{name}[]" for name, (_, array) in TYPES.items() if array}
)
_ELEMENTS: Final = {array: oid for oid, array in TYPES.values() if array}


def type_name(oid: int) -> str:
    """The name of a type for messages."""
    return TYPE_NAMES.get(oid, f"with OID {oid}")


def element_type(oid: int) -> int | None:
    """The element type of a built-in array type."""
    return _ELEMENTS.get(oid)


PARSERS: Final[Mapping[int, Callable[[bytes], Value]]] = MappingProxyType(
    dict(sorted([(TYPES[name][0], parse) for name, parse in builtins.parsers()], key=itemgetter(0)))
)
"""Type OID -> from the text of a value to the value."""


def parse_array(text: bytes, parse: Callable[[bytes], Value]) -> tuple[Value, ...]:
    """Read an array literal as its output function prints it; dimensions are flattened.

    Raises:
        ValueFormatError: not an array.
    """
    if text[:1] == b"[":  # explicit bounds do not matter for ANY and ALL
        text = text.partition(b"=")[2]
    if text[:1] != b"{" or text[-1:] != b"}":
        raise ValueFormatError("a value does not read as an array")
    found: list[Value] = []
    at = 1
    while at < len(text):
        c = text[at : at + 1]
        if c in b"{},":
            at += 1
        elif c == b'"':
            item, at = _quoted(text, at + 1)
            if text[at : at + 1] not in (b",", b"}"):
                raise ValueFormatError("a value does not read as an array")
            found.append(parse(item))
        else:
            end = at
            while text[end : end + 1] not in (b",", b"}"):
                end += 1
            item = text[at:end]
            found.append(None if item == b"NULL" else parse(item))
            at = end
    return tuple(found)


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
    raise ValueFormatError("a value does not read as an array")
