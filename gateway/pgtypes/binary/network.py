"""inet, cidr, macaddr, macaddr8.

Source: network_send and network_out in network.c, inet_net_ntop.c, mac.c, mac8.c.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from gateway.pgtypes.binary.info import ToText

__all__ = ["NETWORK"]

_V4: Final = 2
_V6: Final = 3
_SIZES: Final = {_V4: 4, _V6: 16}
_WORDS: Final = Struct("!8H").unpack


def _network(*, is_cidr: bool) -> ToText:
    def to_text(data: bytes) -> bytes:
        family, bits, _, size = data[:4]
        address = data[4:]
        if _SIZES.get(family) != size or len(address) != size:
            raise ValueError("not an address")
        shown = _v4(address) if family == _V4 else _v6(address)
        return shown if bits == size * 8 and not is_cidr else b"%b/%d" % (shown, bits)

    return to_text


def _v4(address: bytes) -> bytes:
    return b"%d.%d.%d.%d" % tuple(address)


def _v6(address: bytes) -> bytes:
    """The first longest run of two or more zero words becomes ``::``."""
    words = _WORDS(address)
    start, length = _longest_zeros(words)
    if length < 2:
        return b":".join([b"%x" % word for word in words])
    # An IPv4 address within: its last four bytes are printed as one.
    if start == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF)):
        middle = b"ffff:" if length == 5 else b""
        return b"::" + middle + _v4(address[12:])
    before = b":".join([b"%x" % word for word in words[:start]])
    after = b":".join([b"%x" % word for word in words[start + length :]])
    return before + b"::" + after


def _longest_zeros(words: tuple[int, ...]) -> tuple[int, int]:
    best = (0, 0)
    start = 0
    for index, word in enumerate((*words, 1)):
        if word:
            if index - start > best[1]:
                best = (start, index - start)
            start = index + 1
    return best


def _mac(size: int) -> ToText:
    def to_text(data: bytes) -> bytes:
        if len(data) != size:
            raise ValueError("not a MAC address")
        return data.hex(":").encode()

    return to_text


NETWORK: Final[dict[tuple[str, str], ToText]] = {
    ("inet_out", "inet_send"): _network(is_cidr=False),
    ("cidr_out", "cidr_send"): _network(is_cidr=True),
    ("macaddr_out", "macaddr_send"): _mac(6),
    ("macaddr8_out", "macaddr8_send"): _mac(8),
}
"""Output and send function -> conversion."""
