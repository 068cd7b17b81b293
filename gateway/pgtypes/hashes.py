"""The hash functions of integers, by which rows can be dealt out (``hashint8(id) % 4 = 0``).

Of the built-in hash functions only these give the same on every machine and in every encoding of
the database: those of longer values depend on the order of the server's bytes.

Source: src/common/hashfn.c (Bob Jenkins's lookup3), src/backend/access/hash/hashfunc.c.
"""

from __future__ import annotations

from typing import Final

__all__ = ["hash_bigint", "hash_bigint_extended", "hash_integer", "hash_integer_extended"]

_WORD: Final = 0xFFFFFFFF
_START: Final = (0x9E3779B9 + 4 + 3923095) & _WORD
_FINAL: Final = ((2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24))
"""Which of the three words is changed by which, and by how far that is rotated."""
_MIX: Final = ((0, 2, 4, 1), (1, 0, 6, 2), (2, 1, 8, 0), (0, 2, 16, 1), (1, 0, 19, 2), (2, 1, 4, 0))


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & _WORD


def _finish(words: list[int], value: int) -> None:
    words[0] = (words[0] + value) & _WORD
    for changed, by, bits in _FINAL:
        words[changed] = ((words[changed] ^ words[by]) - _rotated(words[by], bits)) & _WORD


def _signed(value: int, width: int) -> int:
    return value - (1 << width) if value >> (width - 1) else value


def hash_integer(value: int) -> int:
    """The hash of a smallint, an integer or an oid."""
    words = [_START] * 3
    _finish(words, value & _WORD)
    return _signed(words[2], 32)


def hash_integer_extended(value: int, seed: int) -> int:
    """The 64-bit hash of a smallint, an integer or an oid."""
    words = [_START] * 3
    if seed:
        words[0] = (words[0] + (seed >> 32 & _WORD)) & _WORD
        words[1] = (words[1] + (seed & _WORD)) & _WORD
        for changed, by, bits, other in _MIX:
            words[changed] = ((words[changed] - words[by]) & _WORD) ^ _rotated(words[by], bits)
            words[by] = (words[by] + words[other]) & _WORD
    _finish(words, value & _WORD)
    return _signed(words[1] << 32 | words[2], 64)


def _folded(value: int) -> int:
    """A bigint as 32 bits, so that the hash of one that is an integer is the integer's."""
    high = value >> 32
    return (value ^ (high if value >= 0 else ~high)) & _WORD


def hash_bigint(value: int) -> int:
    """The hash of a bigint."""
    return hash_integer(_folded(value))


def hash_bigint_extended(value: int, seed: int) -> int:
    """The 64-bit hash of a bigint."""
    return hash_integer_extended(_folded(value), seed)
