"""inet and cidr: addresses with a mask.

A value is an `Inet`, for both types: they differ in how they are printed only, and in that a cidr
has no bits beyond its mask. Its fields stand in the order in which PostgreSQL compares them, so
that ``==``, ``<`` and ``hash`` of two values are its own.

Source: src/backend/utils/adt/network.c (network_cmp_internal() for the order).
"""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "Inet",
    "add",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "broadcast",
    "contained",
    "contained_or_equal",
    "contains",
    "contains_or_equal",
    "family",
    "host_mask",
    "mask_length",
    "merge",
    "net_mask",
    "network",
    "overlaps",
    "parse_inet",
    "same_family",
    "set_cidr_mask_length",
    "set_mask_length",
    "subtract",
    "subtract_number",
]

_SOCKET_FAMILY: Final = {4: socket.AF_INET, 6: socket.AF_INET6}
WIDTH: Final = {4: 32, 6: 128}
"""Bits of an address of the family."""


class Inet(NamedTuple):
    """An address and the length of its mask.

    Attributes:
        family: 4 or 6.
        network: The address with the bits beyond the mask cleared.
        masklen: 0 to 32, or to 128.
        address: All its bits, as an unsigned integer.
    """

    family: int
    network: int
    masklen: int
    address: int


def make(family: int, address: int, masklen: int) -> Inet:
    """The value of these parts."""
    shift = WIDTH[family] - masklen
    return Inet(family, address >> shift << shift, masklen, address)


def parse_inet(text: bytes) -> Inet:
    """Read an inet or a cidr as its output function prints it.

    Raises:
        ValueFormatError: not an address with all its parts, or a mask out of range.
    """
    address, slash, length = text.decode("ascii", "replace").partition("/")
    family = 6 if ":" in address else 4
    try:
        number = int.from_bytes(socket.inet_pton(_SOCKET_FAMILY[family], address), "big")
        masklen = int(length) if slash else WIDTH[family]
    except (OSError, ValueError):
        raise ValueFormatError("a value does not read as inet") from None
    if not 0 <= masklen <= WIDTH[family]:
        raise ValueFormatError("a value does not read as inet")
    return make(family, number, masklen)


# Inclusion


def _within(inner: Inet, outer: Inet) -> bool:
    """They share the bits under the mask of `outer`."""
    if inner.family != outer.family:
        return False
    return inner.address >> (WIDTH[outer.family] - outer.masklen) == outer.network >> (
        WIDTH[outer.family] - outer.masklen
    )


def contained(left: Inet, right: Inet) -> bool:
    """``<<``."""
    return left.masklen > right.masklen and _within(left, right)


def contained_or_equal(left: Inet, right: Inet) -> bool:
    """``<<=``: the host bits of both do not matter."""
    return left.masklen >= right.masklen and _within(left, right)


def contains(left: Inet, right: Inet) -> bool:
    """``>>``."""
    return contained(right, left)


def contains_or_equal(left: Inet, right: Inet) -> bool:
    """``>>=``."""
    return contained_or_equal(right, left)


def overlaps(left: Inet, right: Inet) -> bool:
    """``&&``: one contains the other, or they are the same network."""
    return _within(left, right) if left.masklen > right.masklen else _within(right, left)


# Parts


def family(value: Inet) -> int:
    """4 or 6."""
    return value.family


def mask_length(value: Inet) -> int:
    """The length of the mask."""
    return value.masklen


def same_family(left: Inet, right: Inet) -> bool:
    """Both are of IPv4, or both of IPv6."""
    return left.family == right.family


def _host_bits(value: Inet) -> int:
    return (1 << (WIDTH[value.family] - value.masklen)) - 1


def broadcast(value: Inet) -> Inet:
    """The last address of the network, with the mask of `value`."""
    return make(value.family, value.address | _host_bits(value), value.masklen)


def network(value: Inet) -> Inet:
    """The address without the bits beyond the mask; also the cast of inet to cidr."""
    return Inet(value.family, value.network, value.masklen, value.network)


def net_mask(value: Inet) -> Inet:
    """The mask as an address."""
    width = WIDTH[value.family]
    return make(value.family, ((1 << width) - 1) ^ _host_bits(value), width)


def host_mask(value: Inet) -> Inet:
    """The complement of the mask as an address."""
    return make(value.family, _host_bits(value), WIDTH[value.family])


def _checked_length(value: Inet, masklen: int) -> int:
    width = WIDTH[value.family]
    if masklen == -1:
        return width
    if not 0 <= masklen <= width:
        raise EvaluationError(f"invalid mask length: {masklen}")
    return masklen


def set_mask_length(value: Inet, masklen: int) -> Inet:
    """set_masklen() of an inet, which keeps its address; -1 is the whole width.

    Raises:
        EvaluationError: the length is out of range for the family.
    """
    return make(value.family, value.address, _checked_length(value, masklen))


def set_cidr_mask_length(value: Inet, masklen: int) -> Inet:
    """set_masklen() of a cidr, which clears the bits beyond the mask; -1 is the whole width.

    Raises:
        EvaluationError: the length is out of range for the family.
    """
    return network(set_mask_length(value, masklen))


def merge(left: Inet, right: Inet) -> Inet:
    """The smallest cidr that contains both networks.

    Raises:
        EvaluationError: they are of different families.
    """
    if left.family != right.family:
        raise EvaluationError("cannot merge addresses from different families")
    width = WIDTH[left.family]
    common = width - (left.address ^ right.address).bit_length()
    return network(make(left.family, left.address, min(common, left.masklen, right.masklen)))


# Bits and arithmetic


def bitwise_not(value: Inet) -> Inet:
    """``~``."""
    everything = (1 << WIDTH[value.family]) - 1
    return make(value.family, value.address ^ everything, value.masklen)


def bitwise_and(left: Inet, right: Inet) -> Inet:
    """``&``, with the longer mask.

    Raises:
        EvaluationError: they are of different families.
    """
    if left.family != right.family:
        raise EvaluationError("cannot AND inet values of different sizes")
    return make(left.family, left.address & right.address, max(left.masklen, right.masklen))


def bitwise_or(left: Inet, right: Inet) -> Inet:
    """``|``, with the longer mask.

    Raises:
        EvaluationError: they are of different families.
    """
    if left.family != right.family:
        raise EvaluationError("cannot OR inet values of different sizes")
    return make(left.family, left.address | right.address, max(left.masklen, right.masklen))


def add(value: Inet, number: int) -> Inet:
    """``inet + bigint``, which keeps the mask.

    Raises:
        EvaluationError: the address leaves its family's range.
    """
    address = value.address + number
    if not 0 <= address < 1 << WIDTH[value.family]:
        raise EvaluationError("result is out of range")
    return make(value.family, address, value.masklen)


def subtract_number(value: Inet, number: int) -> Inet:
    """``inet - bigint``. The least bigint has no negative: it is added as it is.

    Raises:
        EvaluationError: the address leaves its family's range.
    """
    return add(value, -number if number != -(2**63) else number)


def subtract(left: Inet, right: Inet) -> int:
    """``inet - inet``. Of IPv6 the difference is taken modulo 2^128.

    Raises:
        EvaluationError: different families, or the difference is no bigint.
    """
    if left.family != right.family:
        raise EvaluationError("cannot subtract inet values of different sizes")
    difference = left.address - right.address
    if left.family == 6:
        difference = ((difference + (1 << 127)) & ((1 << 128) - 1)) - (1 << 127)
        if not -(2**63) <= difference < 2**63:
            raise EvaluationError("result is out of range")
    return difference
