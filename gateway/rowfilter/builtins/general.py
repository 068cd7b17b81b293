"""boolean, oid, uuid and name: what belongs to no larger subject."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gateway.errors import ValueFormatError
from gateway.pgtypes.integers import OID, parse_integer
from gateway.rowfilter.builtins.common import comparisons, same
from gateway.rowfilter.expr import Operation, Value

__all__ = ["OPERATIONS", "PARSERS", "STEPS"]


def parse_bool(text: bytes) -> bool:
    """Read a boolean as printed (``t``, ``f``) or as in a literal (``true``, ``false``)."""
    if text in (b"t", b"true"):
        return True
    if text in (b"f", b"false"):
        return False
    raise ValueFormatError("a value does not read as boolean")


def _as_is(text: bytes) -> bytes:
    return text


def _bool_text(value: bool) -> bytes:
    return b"true" if value else b"false"


def _bool_of(value: int) -> bool:
    return value != 0


def _oid_of(value: int) -> int:
    return value & 0xFFFFFFFF


def _integer_of_oid(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value


PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {
        "bool": parse_bool,
        "oid": parse_integer,
        # 32 lower-case hex digits and the dashes in fixed places: the text sorts as the value.
        "uuid": _as_is,
    }
)

OPERATIONS: Final[Sequence[Operation]] = (
    *comparisons("bool{}"),
    *comparisons("oid{}"),
    *comparisons("uuid_{}"),
    Operation("bool_int4", int),
    Operation("int4_bool", _bool_of),
    Operation("booltext", _bool_text),
    Operation("oidtoi8", same),
    Operation("i8tooid", OID.check, can_raise=True),
)

_TO_OID: Final = Operation("(bits as oid)", _oid_of)

STEPS: Final[Mapping[tuple[str, str], Operation]] = MappingProxyType(
    {
        ("int2", "oid"): _TO_OID,
        ("int4", "oid"): _TO_OID,
        ("oid", "int4"): Operation("(bits as integer)", _integer_of_oid),
    }
)
