"""inet and cidr as text: host(), text() and the two abbrev().

Source: src/port/inet_net_ntop.c, src/backend/utils/adt/inet_cidr_ntop.c.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.pgtypes.network import WIDTH, Inet

__all__ = ["abbreviate_cidr", "abbreviate_inet", "host", "show"]


def host(value: Inet) -> bytes:
    """The address without its mask."""
    octets = value.address.to_bytes(WIDTH[value.family] // 8, "big")
    if value.family == 4:
        return ".".join(map(str, octets)).encode()
    words = [high << 8 | low for high, low in zip(octets[::2], octets[1::2], strict=True)]
    start, length = _longest_zeros(words)
    if length < 2:
        return _hex(words).encode()
    if start == 0 and _holds_ipv4(words, length):
        return (":" + ":ffff" * (length == 5) + ":" + ".".join(map(str, octets[12:]))).encode()
    return (_hex(words[:start]) + "::" + _hex(words[start + length :])).encode()


def _hex(words: Sequence[int]) -> str:
    return ":".join(f"{word:x}" for word in words)


def _longest_zeros(words: Sequence[int]) -> tuple[int, int]:
    """Start and length of the first of the longest runs of zero words."""
    best, start = (0, 0), 0
    for number, word in enumerate((*words, 1)):
        if word:
            if number - start > best[1]:
                best = (start, number - start)
            start = number + 1
    return best


def _holds_ipv4(words: Sequence[int], zeros: int) -> bool:
    return zeros == 6 or (zeros == 5 and words[5] == 0xFFFF)


def show(value: Inet) -> bytes:
    """The cast to text: always with the length of the mask."""
    return host(value) + b"/%d" % value.masklen


def abbreviate_inet(value: Inet) -> bytes:
    """abbrev(inet): the mask is left out when it covers the address."""
    return host(value) if value.masklen == WIDTH[value.family] else show(value)


def abbreviate_cidr(value: Inet) -> bytes:
    """abbrev(cidr): only as many parts as the mask covers."""
    octets = value.network.to_bytes(WIDTH[value.family] // 8, "big")
    if value.family == 4:
        shown = ".".join(map(str, octets[: max((value.masklen + 7) // 8, 1)]))
    else:
        shown = _abbreviated_words(octets, value.masklen)
    return f"{shown}/{value.masklen}".encode()


def _abbreviated_words(octets: bytes, masklen: int) -> str:
    if masklen == 0:
        return "::"
    count = max((masklen + 15) // 16, 2)
    words = [octets[2 * i] << 8 | octets[2 * i + 1] for i in range(count)]
    start, zeros = _counted_zeros(words)
    mapped = start == 0 and zeros != count and _counts_as_ipv4(octets, zeros)
    shown = ""
    for number, word in enumerate(words):
        if start <= number < start + zeros:
            shown += ":" * ((number == start) + (number == count - 1))
        elif mapped and number > 5:
            shown += (":" if number == 6 else ".") + str(word >> 8)
            if number != 7 or masklen > 120:
                shown += f".{word & 0xFF}"
        else:
            shown += f"{':' if shown else ''}{word:x}"
    return shown


def _counted_zeros(words: Sequence[int]) -> tuple[int, int]:
    """As abbrev() counts: a run that is not the longest so far is taken on into the next one."""
    start = zeros = counted_start = counted = 0
    for number, word in enumerate(words):
        if word == 0:
            if counted == 0:
                counted_start = number
            counted += 1
        elif counted > zeros:
            start, zeros, counted = counted_start, counted, 0
    if counted > zeros:
        start, zeros = counted_start, counted
    return start, zeros


def _counts_as_ipv4(octets: bytes, zeros: int) -> bool:
    if zeros == 5:
        return octets[10] == 0xFF and octets[11] == 0xFF
    return zeros == 6 or (zeros == 7 and octets[14] != 0 and octets[15] != 1)
