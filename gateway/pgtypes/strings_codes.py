r"""Text and codes: characters and their numbers, quoting, ``unistr``, the ASCII rules for case.

Source: src/backend/utils/adt/oracle_compat.c, quote.c, varlena.c, formatting.c.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "char_to_text",
    "character",
    "code_point",
    "digits",
    "initial_capitals",
    "quote_literal",
    "quote_nullable",
    "text_to_char",
    "to_name",
    "unistr",
]

_NAME_BYTES: Final = 63
_SURROGATES: Final = range(0xD800, 0xE000)
_WORD: Final = re.compile(rb"[0-9A-Za-z]+")
_UNICODE_ESCAPE: Final = re.compile(
    r"\\(?:(\\)|([0-9A-Fa-f]{4})|u([0-9A-Fa-f]{4})|\+([0-9A-Fa-f]{6})|U([0-9A-Fa-f]{8})|)"
)
_OCTAL: Final = re.compile(rb"\\[0-7]{3}")
_INVALID_PAIR: Final = "invalid Unicode surrogate pair"


def code_point(value: bytes) -> int:
    """The number of the first character, 0 when there is none."""
    return ord(value.decode()[0]) if value else 0


def character(code: int, *, major: int | None = None) -> bytes:
    """The character with a number; `major` is the server's version, None is the newest.

    Raises:
        EvaluationError: there is none.
    """
    if code < 0:
        if major == 14:
            raise EvaluationError("requested character too large for encoding")
        raise EvaluationError("character number must be positive")
    if code == 0:
        raise EvaluationError("null character not permitted")
    if code > 0x10FFFF:
        raise EvaluationError("requested character too large for encoding")
    if code in _SURROGATES:
        raise EvaluationError("requested character not valid for encoding")
    return chr(code).encode()


def digits(value: int, *, bits: int, base: str) -> bytes:
    """The two's complement of `value` in `bits` bits; `base` is Python's letter for it."""
    return format(value & (1 << bits) - 1, base).encode()


def initial_capitals(value: bytes) -> bytes:
    """The first letter of each word in upper case, the others in lower case; ASCII only."""
    return _WORD.sub(lambda match: match[0][:1].upper() + match[0][1:].lower(), value)


def quote_literal(value: bytes) -> bytes:
    """`value` as a literal of SQL."""
    quoted = b"'" + value.replace(b"\\", b"\\\\").replace(b"'", b"''") + b"'"
    return b"E" + quoted if b"\\" in value else quoted


def quote_nullable(value: bytes | None) -> bytes:
    """`value` as a literal of SQL, NULL being the word."""
    return b"NULL" if value is None else quote_literal(value)


def to_name(value: bytes) -> bytes:
    """Cast to ``name``: cut to 63 bytes, between characters."""
    end = min(len(value), _NAME_BYTES)
    while end < len(value) and value[end] & 0xC0 == 0x80:
        end -= 1
    return value[:end]


def char_to_text(value: bytes) -> bytes:
    r"""Cast ``"char"`` to text: nothing for a zero, ``\ooo`` for a byte that is not ASCII.

    Before PostgreSQL 16 such a byte was taken as it is.
    """
    if value[0] > 0x7F:
        return f"\\{value[0]:03o}".encode()
    return value if value[0] else b""


def text_to_char(value: bytes) -> bytes:
    r"""Cast text to ``"char"``: what ``\ooo`` stands for, or else the first byte.

    Before PostgreSQL 16 it was the first byte always.
    """
    if _OCTAL.fullmatch(value):
        return bytes((int(value[1:], 8) & 0xFF,))
    return value[:1] or b"\0"


def unistr(value: bytes) -> bytes:
    r"""Replace ``\XXXX``, ``\+XXXXXX``, ``\uXXXX``, ``\UXXXXXXXX`` and ``\\``.

    Raises:
        EvaluationError: another escape, or a code point that is none.
    """
    out: list[str] = []
    text, at, first = value.decode(), 0, 0
    while at < len(text):
        match = _UNICODE_ESCAPE.match(text, at)
        if match is None:
            if first:
                raise EvaluationError(_INVALID_PAIR)
            out.append(text[at])
            at += 1
            continue
        digits = match[2] or match[3] or match[4] or match[5]
        if match[1]:
            if first:
                raise EvaluationError(_INVALID_PAIR)
            out.append("\\")
        elif digits is None:
            raise EvaluationError("invalid Unicode escape")
        else:
            first = _escaped(int(digits, 16), first, out)
        at = match.end()
    if first:
        raise EvaluationError(_INVALID_PAIR)
    return "".join(out).encode()


def _escaped(code: int, first: int, out: list[str]) -> int:
    """Take in one escaped code point; the first half of a surrogate pair is what is left open."""
    if not 0 < code <= 0x10FFFF:
        raise EvaluationError("invalid Unicode code point")
    second_half = 0xDC00 <= code < 0xE000
    if bool(first) != second_half:
        raise EvaluationError(_INVALID_PAIR)
    if first:
        out.append(chr(0x10000 + ((first & 0x3FF) << 10) + (code & 0x3FF)))
        return 0
    if code in _SURROGATES:
        return code
    out.append(chr(code))
    return 0
