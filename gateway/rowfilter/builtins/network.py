"""inet, cidr, macaddr and macaddr8."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from gateway.pgtypes import macaddr, network, network_text
from gateway.pgtypes.network import Inet
from gateway.rowfilter.builtins.common import comparisons
from gateway.rowfilter.builtins.ordering import compare, larger, smaller
from gateway.rowfilter.expr import Operation, Value

__all__ = ["OPERATIONS", "PARSERS"]

PARSERS: Final[Mapping[str, Callable[[bytes], Value]]] = MappingProxyType(
    {
        "inet": network.parse_inet,
        "cidr": network.parse_inet,
        "macaddr": macaddr.parse_macaddr,
        "macaddr8": macaddr.parse_macaddr8,
    }
)


def _add_reversed(number: int, value: Inet) -> Inet:
    return network.add(value, number)


_ADDRESSES: Final = (
    *comparisons("network_{}"),
    Operation("network_larger", larger),
    Operation("network_smaller", smaller),
    Operation("network_sub", network.contained),
    Operation("network_subeq", network.contained_or_equal),
    Operation("network_sup", network.contains),
    Operation("network_supeq", network.contains_or_equal),
    Operation("network_overlap", network.overlaps),
    Operation("network_family", network.family),
    Operation("network_masklen", network.mask_length),
    Operation("network_broadcast", network.broadcast),
    Operation("network_network", network.network),
    Operation("network_netmask", network.net_mask),
    Operation("network_hostmask", network.host_mask),
    Operation("network_host", network_text.host),
    Operation("network_show", network_text.show),
    Operation("inet_abbrev", network_text.abbreviate_inet),
    Operation("cidr_abbrev", network_text.abbreviate_cidr),
    Operation("inet_to_cidr", network.network),
    Operation("inet_set_masklen", network.set_mask_length, can_raise=True),
    Operation("cidr_set_masklen", network.set_cidr_mask_length, can_raise=True),
    Operation("inet_same_family", network.same_family),
    Operation("inet_merge", network.merge, can_raise=True),
    Operation("inetnot", network.bitwise_not),
    Operation("inetand", network.bitwise_and, can_raise=True),
    Operation("inetor", network.bitwise_or, can_raise=True),
    Operation("inetpl", network.add, can_raise=True),
    Operation("int8pl_inet(int8,inet)", _add_reversed, can_raise=True),
    Operation("inetmi_int8", network.subtract_number, can_raise=True),
    Operation("inetmi", network.subtract, can_raise=True),
)

_MACS: Final = tuple(
    operation
    for kind in ("macaddr", "macaddr8")
    for operation in (
        *comparisons(kind + "_{}"),
        Operation(f"{kind}_cmp", compare),
        Operation(f"{kind}_not", macaddr.bitwise_not),
        Operation(f"{kind}_and", macaddr.bitwise_and),
        Operation(f"{kind}_or", macaddr.bitwise_or),
        Operation(f"{kind}_trunc", macaddr.truncate),
    )
)

OPERATIONS: Final[Sequence[Operation]] = (
    *_ADDRESSES,
    *_MACS,
    Operation("macaddr8_set7bit", macaddr.set_7th_bit),
    Operation("macaddrtomacaddr8", macaddr.to_macaddr8),
    Operation("macaddr8tomacaddr", macaddr.to_macaddr, can_raise=True),
)
