"""macaddr and macaddr8: MAC addresses.

A value is its text, six or eight groups of two lower-case hex digits with colons between them:
that sorts as the address.

Source: src/backend/utils/adt/mac.c, mac8.c.
"""

from __future__ import annotations

from gateway.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "parse_macaddr",
    "parse_macaddr8",
    "set_7th_bit",
    "to_macaddr",
    "to_macaddr8",
    "truncate",
]


def parse_macaddr(text: bytes) -> bytes:
    """Read a macaddr as its output function prints it.

    Raises:
        ValueFormatError: not six groups.
    """
    return _checked(text, 6, "macaddr")


def parse_macaddr8(text: bytes) -> bytes:
    """Read a macaddr8 as its output function prints it.

    Raises:
        ValueFormatError: not eight groups.
    """
    return _checked(text, 8, "macaddr8")


def _checked(text: bytes, groups: int, name: str) -> bytes:
    try:
        good = len(text) == 3 * groups - 1 and _text(_octets(text)) == text
    except ValueError:
        good = False
    if not good:
        raise ValueFormatError(f"a value does not read as {name}")
    return text


def _octets(value: bytes) -> bytes:
    return bytes.fromhex(value.decode("ascii").replace(":", " "))


def _text(octets: bytes) -> bytes:
    return octets.hex(":").encode()


def bitwise_not(value: bytes) -> bytes:
    """``~``."""
    return _text(bytes(0xFF ^ octet for octet in _octets(value)))


def bitwise_and(left: bytes, right: bytes) -> bytes:
    """``&``, of two of the same type."""
    return _text(bytes(a & b for a, b in zip(_octets(left), _octets(right), strict=True)))


def bitwise_or(left: bytes, right: bytes) -> bytes:
    """``|``, of two of the same type."""
    return _text(bytes(a | b for a, b in zip(_octets(left), _octets(right), strict=True)))


def truncate(value: bytes) -> bytes:
    """trunc(): the first three groups, which are the manufacturer's."""
    return value[:8] + b":00" * ((len(value) - 8) // 3)


def set_7th_bit(value: bytes) -> bytes:
    """macaddr8_set7bit(): for use in an IPv6 address."""
    return b"%02x" % (int(value[:2], 16) | 2) + value[2:]


def to_macaddr8(value: bytes) -> bytes:
    """Cast macaddr to macaddr8: FF and FE in the middle."""
    return value[:8] + b":ff:fe" + value[8:]


def to_macaddr(value: bytes) -> bytes:
    """Cast macaddr8 to macaddr.

    Raises:
        EvaluationError: FF and FE are not in the middle.
    """
    if value[9:14] != b"ff:fe":
        raise EvaluationError("macaddr8 data out of range to convert to macaddr")
    return value[:8] + value[14:]
