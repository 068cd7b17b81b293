"""bit and bit varying."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from gateway.pgtypes import bits
from gateway.rowfilter.builtins.common import comparisons
from gateway.rowfilter.expr import Operation, Value

__all__ = ["LENGTHS", "OPERATIONS", "PARSERS"]

PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {"bit": bits.parse_bits, "varbit": bits.parse_bits}
)

OPERATIONS: Final[Sequence[Operation]] = (
    *comparisons("bit{}"),
    Operation("bit_and", bits.bitwise_and, can_raise=True),
    Operation("bit_or", bits.bitwise_or, can_raise=True),
    Operation("bitxor", bits.bitwise_xor, can_raise=True),
    Operation("bitnot", bits.bitwise_not),
    Operation("bitshiftleft", bits.shift_left),
    Operation("bitshiftright", bits.shift_right),
    Operation("bitcat", bits.concatenate, can_raise=True),
    Operation("bitsubstr", bits.substring, can_raise=True),
    Operation("bitsubstr_no_len", bits.substring),
    Operation("bitoverlay", bits.overlay, can_raise=True),
    Operation("bitoverlay_no_len", bits.overlay, can_raise=True),
    Operation("bitposition", bits.position),
    Operation("bitgetbit", bits.get_bit, can_raise=True),
    Operation("bitsetbit", bits.set_bit, can_raise=True),
    Operation("bitlength", len),
    Operation("bit_length(bit)", len),
    Operation("bitoctetlength", bits.octet_length),
    Operation("bit_bit_count", bits.bit_count),
    Operation("bittoint4", bits.to_integer, can_raise=True),
    Operation("bittoint8", bits.to_bigint, can_raise=True),
    Operation("bitfromint4", bits.from_integer),
    Operation("bitfromint8", bits.from_integer),
)


def _bit_length(typmod: int) -> Operation:
    return Operation(f"bit({typmod})", partial(bits.to_bit, length=typmod))


def _varbit_length(typmod: int) -> Operation:
    return Operation(f"varbit({typmod})", partial(bits.to_varbit, length=typmod))


LENGTHS: Final[Mapping[str, Callable[[int], Operation | None]]] = MappingProxyType(
    {"bit": _bit_length, "varbit": _varbit_length}
)
