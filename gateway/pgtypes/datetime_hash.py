"""The hash functions of dates, times and intervals.

Source: src/common/hashfn.c (hash_bytes_uint32 and its extended form), src/backend/access/hash/
hashfunc.c (hashint8).
"""

from __future__ import annotations

from typing import Final

from gateway.pgtypes.interval import Interval, as_int32, as_int64
from gateway.pgtypes.timeofday import TimeTz

__all__ = [
    "hash_int32",
    "hash_int32_extended",
    "hash_int64",
    "hash_int64_extended",
    "hash_interval",
    "hash_interval_extended",
    "hash_timetz",
    "hash_timetz_extended",
]

_MASK: Final = 0xFFFF_FFFF
_START: Final = (0x9E37_79B9 + 4 + 3_923_095) & _MASK


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    for first, second, third in ((4, 6, 8), (16, 19, 4)):
        a = (a - c & _MASK) ^ _rotated(c, first)
        c = c + b & _MASK
        b = (b - a & _MASK) ^ _rotated(a, second)
        a = a + c & _MASK
        c = (c - b & _MASK) ^ _rotated(b, third)
        b = b + a & _MASK
    return a, b, c


def _final(a: int, b: int, c: int) -> tuple[int, int]:
    """The two words of a 64-bit hash; the second is the 32-bit hash."""
    c = (c ^ b) - _rotated(b, 14) & _MASK
    a = (a ^ c) - _rotated(c, 11) & _MASK
    b = (b ^ a) - _rotated(a, 25) & _MASK
    c = (c ^ b) - _rotated(b, 16) & _MASK
    a = (a ^ c) - _rotated(c, 4) & _MASK
    b = (b ^ a) - _rotated(a, 14) & _MASK
    c = (c ^ b) - _rotated(b, 24) & _MASK
    return b, c


def _hash(word: int) -> int:
    return _final(_START + (word & _MASK) & _MASK, _START, _START)[1]


def _hash_extended(word: int, seed: int) -> int:
    a = b = c = _START
    if seed:
        a, b, c = _mixed(a + (seed >> 32) & _MASK, b + seed & _MASK, c)
    high, low = _final(a + (word & _MASK) & _MASK, b, c)
    return high << 32 | low


def _folded(value: int) -> int:
    """64 bits as 32, so that a number has the hash that it has in 32 bits."""
    high = value >> 32
    return (value ^ (high if value >= 0 else ~high)) & _MASK


def hash_int32(value: int) -> int:
    """The hash of a date, a 32-bit integer."""
    return as_int32(_hash(value))


def hash_int32_extended(value: int, seed: int) -> int:
    """The same with a seed, a 64-bit integer."""
    return as_int64(_hash_extended(value, seed))


def hash_int64(value: int) -> int:
    """The hash of a time or a timestamp (hashint8)."""
    return as_int32(_hash(_folded(value)))


def hash_int64_extended(value: int, seed: int) -> int:
    """The same with a seed."""
    return as_int64(_hash_extended(_folded(value), seed))


def hash_interval(value: Interval) -> int:
    """Equal intervals have equal hashes."""
    return hash_int64(as_int64(value.span))


def hash_interval_extended(value: Interval, seed: int) -> int:
    """The same with a seed."""
    return hash_int64_extended(as_int64(value.span), seed)


def hash_timetz(value: TimeTz) -> int:
    """The hash of the time and that of the zone, one over the other."""
    return as_int32(_hash(_folded(value.usecs)) ^ _hash(value.zone))


def hash_timetz_extended(value: TimeTz, seed: int) -> int:
    """The same with a seed."""
    time = _hash_extended(_folded(value.usecs), seed)
    return as_int64(time ^ _hash_extended(value.zone, seed))
