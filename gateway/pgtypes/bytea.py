"""Functions on bytea.

Source: src/backend/utils/adt/bytea.c, varlena.c, encode.c, cryptohashfuncs.c; src/common/base64.c.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from gateway.pgtypes.errors import EvaluationError
from gateway.pgtypes.strings import like_escape, match_like
from gateway.pgtypes.strings_parts import bounds

__all__ = [
    "DIGESTS",
    "bit_count",
    "crc32",
    "crc32c",
    "decode",
    "encode",
    "escape_like",
    "from_integer",
    "get_bit",
    "get_byte",
    "like",
    "md5",
    "overlay",
    "position",
    "reverse",
    "set_bit",
    "set_byte",
    "substring",
    "to_integer",
    "trim_both",
    "trim_left",
    "trim_right",
]

_OUT_OF_RANGE: Final = "index out of valid range"
_WHITE_SPACE: Final = b" \t\n\r"
_BASE64: Final = MappingProxyType(
    {
        code: place
        for place, code in enumerate(
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        )
    }
)
_LINE: Final = 57
"""Bytes in a full line of base64, which has 76 characters."""


def substring(value: bytes, start: int, size: int | None = None) -> bytes:
    """``substring(value FROM start FOR size)``, in bytes.

    Raises:
        EvaluationError: `size` is negative.
    """
    first, last = bounds(start, size)
    return value[first:last]


def overlay(value: bytes, new: bytes, start: int, size: int | None = None) -> bytes:
    """``overlay(value PLACING new FROM start FOR size)``, in bytes.

    Raises:
        EvaluationError: `start` is not positive, or the end is out of range.
    """
    if start <= 0:
        raise EvaluationError("negative substring length not allowed")
    end = start + (len(new) if size is None else size)
    if not -(2**31) <= end < 2**31:
        raise EvaluationError("integer out of range")
    return value[: start - 1] + new + value[max(end - 1, 0) :]


def position(value: bytes, part: bytes) -> int:
    """Where `part` is first found, from 1; 0 when it is not."""
    return value.find(part) + 1


def trim_both(value: bytes, taken: bytes) -> bytes:
    """Without any of the bytes `taken` at both ends."""
    return value.strip(taken)


def trim_left(value: bytes, taken: bytes) -> bytes:
    """Without any of the bytes `taken` at the start."""
    return value.lstrip(taken)


def trim_right(value: bytes, taken: bytes) -> bytes:
    """Without any of the bytes `taken` at the end."""
    return value.rstrip(taken)


def reverse(value: bytes) -> bytes:
    """From the last byte to the first."""
    return value[::-1]


def get_byte(value: bytes, index: int) -> int:
    """The byte at `index`, from 0.

    Raises:
        EvaluationError: there is none.
    """
    if not 0 <= index < len(value):
        raise EvaluationError(_OUT_OF_RANGE)
    return value[index]


def set_byte(value: bytes, index: int, new: int) -> bytes:
    """`value` with the low eight bits of `new` at `index`, from 0.

    Raises:
        EvaluationError: there is no such byte.
    """
    if not 0 <= index < len(value):
        raise EvaluationError(_OUT_OF_RANGE)
    return value[:index] + bytes((new & 0xFF,)) + value[index + 1 :]


def get_bit(value: bytes, index: int) -> int:
    """The bit at `index`, from the lowest of the first byte.

    Raises:
        EvaluationError: there is none.
    """
    if not 0 <= index < 8 * len(value):
        raise EvaluationError(_OUT_OF_RANGE)
    return value[index >> 3] >> (index & 7) & 1


def set_bit(value: bytes, index: int, new: int) -> bytes:
    """`value` with the bit `new` at `index`, from the lowest of the first byte.

    Raises:
        EvaluationError: there is no such bit, or `new` is none.
    """
    if not 0 <= index < 8 * len(value):
        raise EvaluationError(_OUT_OF_RANGE)
    if new not in (0, 1):
        raise EvaluationError("new bit must be 0 or 1")
    place, bit = index >> 3, 1 << (index & 7)
    return set_byte(value, place, value[place] | bit if new else value[place] & ~bit)


def bit_count(value: bytes) -> int:
    """How many bits are set."""
    return int.from_bytes(value, "big").bit_count()


def _as_text(value: bytes) -> bytes:
    """Each byte as a character, so that what matches characters of text matches bytes."""
    return value.decode("latin-1").encode()


def like(value: bytes, pattern: bytes) -> bool:
    """``value LIKE pattern``, in bytes.

    Raises:
        EvaluationError: the pattern ends with a backslash.
    """
    return match_like(_as_text(value), _as_text(pattern))


def escape_like(pattern: bytes, escape: bytes) -> bytes:
    """Rewrite `pattern` from the byte `escape` to a backslash.

    Raises:
        EvaluationError: `escape` is longer than one byte.
    """
    return like_escape(_as_text(pattern), _as_text(escape)).decode().encode("latin-1")


# Integers


def from_integer(value: int, *, size: int) -> bytes:
    """An integer of `size` bytes in network order."""
    return value.to_bytes(size, "big", signed=True)


def to_integer(value: bytes, *, size: int, name: str) -> int:
    """The integer that is in network order in up to `size` bytes.

    Raises:
        EvaluationError: there are more; `name` is the type's.
    """
    if len(value) > size:
        raise EvaluationError(f"{name} out of range")
    # Shorter values are not signed: they are bits of a zero.
    return int.from_bytes(value, "big", signed=len(value) == size)


# Check sums


def md5(value: bytes) -> bytes:
    """The MD5 hash as 32 hexadecimal digits."""
    return hashlib.md5(value, usedforsecurity=False).hexdigest().encode()


def _digest(name: str) -> Callable[[bytes], bytes]:
    return lambda value: hashlib.new(name, value).digest()


DIGESTS: Final[Mapping[str, Callable[[bytes], bytes]]] = MappingProxyType(
    {name: _digest(name) for name in ("sha224", "sha256", "sha384", "sha512")}
)
"""Hash functions to bytea."""


def crc32(value: bytes) -> int:
    """The CRC-32 of Ethernet."""
    return zlib.crc32(value)


def _castagnoli() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CASTAGNOLI: Final = _castagnoli()


def crc32c(value: bytes) -> int:
    """The CRC-32 of Castagnoli's polynomial."""
    found = 0xFFFFFFFF
    for byte in value:
        found = found >> 8 ^ _CASTAGNOLI[(found ^ byte) & 0xFF]
    return found ^ 0xFFFFFFFF


# Text formats


def encode(value: bytes, name: bytes) -> bytes:
    """Write `value` in the format `name`: base64, escape or hex, in any case.

    Raises:
        EvaluationError: there is no such format.
    """
    match name.lower():
        case b"hex":
            return value.hex().encode()
        case b"base64":
            lines = (value[at : at + _LINE] for at in range(0, len(value), _LINE))
            return b"".join(
                base64.b64encode(line) + (b"\n" if len(line) == _LINE else b"") for line in lines
            )
        case b"escape":
            return _NEEDS_ESCAPE.sub(_escaped, value)
    raise EvaluationError("unrecognized encoding")


def decode(text: bytes, name: bytes) -> bytes:
    """Read `text` in the format `name`: base64, escape or hex, in any case.

    Raises:
        EvaluationError: there is no such format, or `text` is not in it.
    """
    match name.lower():
        case b"hex":
            return _from_hex(text)
        case b"base64":
            return _from_base64(text)
        case b"escape":
            return _from_escape(text)
    raise EvaluationError("unrecognized encoding")


_NEEDS_ESCAPE: Final = re.compile(rb"[\x00\\\x80-\xff]")
_ESCAPE: Final = re.compile(rb"\\(\\|[0-3][0-7]{2}|)")


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"\\\\" if match[0] == b"\\" else f"\\{match[0][0]:03o}".encode()


def _unescaped(match: re.Match[bytes]) -> bytes:
    if not match[1]:
        raise EvaluationError("invalid input syntax for type bytea")
    return match[1] if match[1] == b"\\" else bytes((int(match[1], 8),))


def _from_escape(text: bytes) -> bytes:
    return _ESCAPE.sub(_unescaped, text)


def _hex_digit(code: int) -> int:
    try:
        return int(chr(code), 16) if code < 0x80 else int("", 16)
    except ValueError:
        raise EvaluationError("invalid hexadecimal digit") from None


def _from_hex(text: bytes) -> bytes:
    out, at = bytearray(), 0
    while at < len(text):
        if text[at] in _WHITE_SPACE:
            at += 1
            continue
        high = _hex_digit(text[at])
        if at + 1 == len(text):
            raise EvaluationError("invalid hexadecimal data: odd number of digits")
        out.append(high << 4 | _hex_digit(text[at + 1]))
        at += 2
    return bytes(out)


def _from_base64(text: bytes) -> bytes:
    out, group, count, kept = bytearray(), 0, 0, 3
    for code in text:
        if code in _WHITE_SPACE:
            continue
        if code == 0x3D:
            # The first = sets how many bytes this group, and any after it, have.
            if kept == 3:
                if count not in (2, 3):
                    raise EvaluationError('unexpected "=" while decoding base64 sequence')
                kept = count - 1
            bits = 0
        elif code in _BASE64:
            bits = _BASE64[code]
        else:
            raise EvaluationError("invalid symbol found while decoding base64 sequence")
        group, count = group << 6 | bits, count + 1
        if count == 4:
            out += group.to_bytes(3, "big")[:kept]
            group = count = 0
    if count:
        raise EvaluationError("invalid base64 end sequence")
    return bytes(out)
