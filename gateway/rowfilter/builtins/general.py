"""boolean, oid, uuid, pg_lsn, xid, cid and tid: what belongs to no larger subject."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gateway.errors import ValueFormatError
from gateway.pgtypes import identifiers
from gateway.pgtypes.catalog import TYPES
from gateway.pgtypes.integers import OID, parse_integer
from gateway.pgtypes.numeric import Numeric
from gateway.rowfilter.builtins.common import comparisons, same
from gateway.rowfilter.builtins.ordering import compare, larger, smaller
from gateway.rowfilter.expr import Operation, Signature, Value

__all__ = ["FACTORIES", "OPERATIONS", "PARSERS", "STEPS"]


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


def _num_nulls(*values: Value) -> int:
    return values.count(None)


def _num_nonnulls(*values: Value) -> int:
    return len(values) - values.count(None)


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
        "pg_lsn": identifiers.parse_lsn,
        "xid": parse_integer,
        "xid8": parse_integer,
        "cid": parse_integer,
        "tid": identifiers.parse_tid,
    }
)


def _add_reversed(number: Numeric, lsn: int) -> int:
    return identifiers.add_to_lsn(lsn, number)


def _low_half(value: int) -> int:
    return value & 0xFFFFFFFF


def _and(left: bool, right: bool) -> bool:
    return left and right


def _or(left: bool, right: bool) -> bool:
    return left or right


def _difference(left: int, right: int) -> int:
    return left - right


def _char_difference(left: bytes, right: bytes) -> int:
    """Of two values of "char", which are one byte each."""
    return left[0] - right[0]


_IDENTIFIERS: Final = (
    *comparisons("pg_lsn_{}"),
    Operation("pg_lsn_cmp", compare),
    Operation("pg_lsn_larger", larger),
    Operation("pg_lsn_smaller", smaller),
    Operation("pg_lsn_mi", identifiers.subtract_lsns),
    Operation("pg_wal_lsn_diff", identifiers.subtract_lsns),
    Operation("pg_lsn_pli", identifiers.add_to_lsn, can_raise=True),
    Operation("numeric_pl_pg_lsn(numeric,pg_lsn)", _add_reversed, can_raise=True),
    Operation("pg_lsn_mii", identifiers.subtract_from_lsn, can_raise=True),
    Operation("numeric_pg_lsn", identifiers.numeric_to_lsn, can_raise=True),
    *comparisons("xid8{}"),
    Operation("xid8cmp", compare),
    Operation("xid8_larger", larger),
    Operation("xid8_smaller", smaller),
    Operation("xid8toxid", _low_half),
    *comparisons("tid{}"),
    Operation("bttidcmp", compare),
    Operation("tidlarger", larger),
    Operation("tidsmaller", smaller),
    Operation("cideq", operator.eq, "=="),
    Operation("btcharcmp", _char_difference),
    Operation("uuid_extract_version", identifiers.uuid_version, nullable=True),
)

OPERATIONS: Final[Sequence[Operation]] = (
    *comparisons("bool{}"),
    *comparisons("oid{}"),
    *comparisons("uuid_{}"),
    Operation("bool_int4", int),
    Operation("int4_bool", _bool_of),
    Operation("booltext", _bool_text),
    Operation("btboolcmp", _difference),
    Operation("booland_statefunc", _and),
    Operation("boolor_statefunc", _or),
    Operation("btoidcmp", compare),
    Operation("oidlarger", larger),
    Operation("oidsmaller", smaller),
    *_IDENTIFIERS,
    Operation("oidtoi8", same),
    Operation("i8tooid", OID.check, can_raise=True),
    Operation("pg_num_nulls", _num_nulls, strict=False),
    Operation("pg_num_nonnulls", _num_nonnulls, strict=False),
)

_BITS_AS_XID: Final = Operation("(bits as xid)", _low_half)
_XID_TESTS: Final = MappingProxyType({"xideq": (operator.eq, "=="), "xidneq": (operator.ne, "!=")})


def _xid_test(name: str) -> Callable[[Signature], Operation]:
    function, infix = _XID_TESTS[name]

    def make(signature: Signature) -> Operation:
        # An integer is compared bit by bit with an xid, which has no sign.
        is_integer = signature.arguments[1] == TYPES["int4"][0]
        adapters = (None, _BITS_AS_XID) if is_integer else ()
        return Operation(name, function, infix, adapters=adapters)

    return make


FACTORIES: Final[Mapping[str, Callable[[Signature], Operation | None]]] = MappingProxyType(
    {name: _xid_test(name) for name in _XID_TESTS}
)

_TO_OID: Final = Operation("(bits as oid)", _oid_of)

STEPS: Final[Mapping[tuple[str, str], Operation]] = MappingProxyType(
    {
        ("int2", "oid"): _TO_OID,
        ("int4", "oid"): _TO_OID,
        ("oid", "int4"): Operation("(bits as integer)", _integer_of_oid),
    }
)
