"""bytea."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.pgtypes import bytea, strings
from gateway.rowfilter.builtins.common import comparisons
from gateway.rowfilter.expr import Operation, Value

__all__ = ["OPERATIONS", "PARSERS"]

PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {"bytea": strings.parse_bytea}
)


def _not_like(value: bytes, pattern: bytes) -> bool:
    return not bytea.like(value, pattern)


def _larger(left: bytes, right: bytes) -> bytes:
    return max(left, right)


def _smaller(left: bytes, right: bytes) -> bytes:
    return min(left, right)


def _bit_length(value: bytes) -> int:
    return 8 * len(value)


_FREE: Final[Mapping[str, Callable[..., Value]]] = MappingProxyType(
    {
        "byteaoctetlen": len,
        "bit_length(bytea)": _bit_length,
        "bytea_substr_no_len": bytea.substring,
        "byteapos": bytea.position,
        "byteatrim": bytea.trim_both,
        "bytealtrim": bytea.trim_left,
        "byteartrim": bytea.trim_right,
        "bytea_reverse": bytea.reverse,
        "bytea_bit_count": bytea.bit_count,
        "bytea_larger": _larger,
        "bytea_smaller": _smaller,
        "md5_bytea": bytea.md5,
        "crc32_bytea": bytea.crc32,
        "crc32c_bytea": bytea.crc32c,
        **{f"{name}_bytea": function for name, function in bytea.DIGESTS.items()},
    }
)
_RAISING: Final[Mapping[str, Callable[..., Value]]] = MappingProxyType(
    {
        "bytea_substr": bytea.substring,
        "byteaoverlay": bytea.overlay,
        "byteaoverlay_no_len": bytea.overlay,
        "byteaGetByte": bytea.get_byte,
        "byteaSetByte": bytea.set_byte,
        "byteaGetBit": bytea.get_bit,
        "byteaSetBit": bytea.set_bit,
        "binary_encode": bytea.encode,
        "binary_decode": bytea.decode,
        "bytealike": bytea.like,
        "byteanlike": _not_like,
        "like_escape_bytea": bytea.escape_like,
    }
)


def _integers() -> list[Operation]:
    """Casts between bytea and integers, which came with PostgreSQL 18."""
    found = []
    for size, name in ((2, "smallint"), (4, "integer"), (8, "bigint")):
        found += [
            Operation(f"int{size}_bytea", partial(bytea.from_integer, size=size)),
            Operation(
                f"bytea_int{size}",
                partial(bytea.to_integer, size=size, name=name),
                can_raise=True,
            ),
        ]
    return found


OPERATIONS: Final[Sequence[Operation]] = (
    *comparisons("bytea{}"),
    Operation("byteacat", operator.add, "+"),
    *(Operation(name, function) for name, function in _FREE.items()),
    *(Operation(name, function, can_raise=True) for name, function in _RAISING.items()),
    *_integers(),
)
