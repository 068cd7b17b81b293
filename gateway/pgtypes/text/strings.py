"""text, varchar, bpchar, name and bytea as the bytes that the server sends (UTF-8).

Source: src/backend/utils/adt/varchar.c, varlena.c, like.c, like_match.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from gateway.core.errors import ValueFormatError
from gateway.pgtypes.errors import EvaluationError

__all__ = [
    "compile_like",
    "match_like",
    "parse_bytea",
    "to_bpchar",
    "to_varchar",
    "trim_blanks",
]

_ESCAPED_BYTEA = re.compile(rb"(?:[^\\]|\\\\|\\[0-3][0-7]{2})*", re.DOTALL)
_BYTEA_ESCAPE = re.compile(rb"\\(\\|[0-7]{3})")
_CHARACTER: Final = rb"[\x00-\x7f\xc0-\xff][\x80-\xbf]*"
_BACKSLASH: Final = 0x5C
_PERCENT: Final = 0x25
_UNDERSCORE: Final = 0x5F
_ESCAPE_AT_END: Final = "LIKE pattern must not end with escape character"


def trim_blanks(value: bytes) -> bytes:
    """Drop trailing blanks: what bpchar compares, and becomes when cast to text."""
    return value.rstrip(b" ")


def parse_bytea(text: bytes) -> bytes:
    r"""Read bytea in its hex (``\x...``) or escape format.

    Raises:
        ValueFormatError: neither.
    """
    if text[:2] == b"\\x":
        try:
            return bytes.fromhex(text[2:].decode("ascii"))
        except ValueError:
            raise ValueFormatError("a value does not read as bytea") from None
    if _ESCAPED_BYTEA.fullmatch(text) is None:
        raise ValueFormatError("a value does not read as bytea")

    def unescape(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        return escape if escape == b"\\" else bytes([int(escape, 8)])

    return _BYTEA_ESCAPE.sub(unescape, text)


def to_varchar(value: bytes, typmod: int) -> bytes:
    """Cast to ``varchar(n)``, cutting what is too long; `typmod` is n + 4, or -1."""
    return value if typmod < 4 else _clip(value, typmod - 4)


def to_bpchar(value: bytes, typmod: int) -> bytes:
    """Cast to ``char(n)``, cutting or padding with blanks; `typmod` is n + 4, or -1."""
    if typmod < 4:
        return value
    size = typmod - 4
    length = len(value.decode())
    return _clip(value, size) if length > size else value + b" " * (size - length)


def _clip(value: bytes, size: int) -> bytes:
    return value.decode()[:size].encode() if len(value) > size else value


def match_like(text: bytes, pattern: bytes) -> bool:
    """``text LIKE pattern``: a walk over both that meets everything in MatchText()'s order.

    Only the last ``%`` has to be gone back to: when the text after it ends without a match, an
    earlier one cannot help (LIKE_ABORT).

    Raises:
        EvaluationError: the walk meets a backslash at the end of the pattern.
    """
    t = p = 0
    star_p = star_t = -1
    first = b""
    while True:
        while t < len(text) and p < len(pattern):
            c = pattern[p]
            if c == _PERCENT:
                p, t, enough = _skip_wildcards(pattern, p, text, t)
                if p == len(pattern) or not enough:
                    return enough
                first = _literal_at(pattern, p)
                t = text.find(first, t)
                if t < 0:
                    return False
                star_p, star_t = p, t
            elif c == _UNDERSCORE:
                t = _next_character(text, t)
                p += 1
            else:
                literal = _literal_at(pattern, p)
                if literal[0] != text[t]:
                    break
                t += 1
                p += 2 if c == _BACKSLASH else 1
        else:
            if t == len(text):
                return not pattern[p:].strip(b"%")
        if star_p < 0:
            return False
        star_t = t = text.find(first, _next_character(text, star_t))
        p = star_p
        if t < 0:
            return False


def _literal_at(pattern: bytes, p: int) -> bytes:
    """The byte that has to match at `p`, which may be written with an escape."""
    if pattern[p] == _BACKSLASH:
        p += 1
        if p == len(pattern):
            raise EvaluationError(_ESCAPE_AT_END)
    return pattern[p : p + 1]


def _skip_wildcards(pattern: bytes, p: int, text: bytes, t: int) -> tuple[int, int, bool]:
    """Return where pattern and text continue after the wildcards at `p`; False if too short."""
    while p < len(pattern) and pattern[p] in (_PERCENT, _UNDERSCORE):
        if pattern[p] == _UNDERSCORE:
            if t >= len(text):
                return p, t, False
            t = _next_character(text, t)
        p += 1
    return p, t, True


def _next_character(text: bytes, at: int) -> int:
    at += 1
    while at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def compile_like(pattern: bytes) -> Callable[[bytes], bool]:
    """Prepare `pattern` for many texts; the result equals `match_like`."""
    pieces = _split_like(pattern)
    if pieces is None:
        return lambda text: match_like(text, pattern)
    simple = all(isinstance(part, bytes) for piece in pieces for part in piece)
    literals = [b"".join(part for part in piece if isinstance(part, bytes)) for piece in pieces]
    if simple and len(pieces) == 1:
        return literals[0].__eq__
    if simple and len(pieces) == 2 and not literals[1]:
        prefix = literals[0]
        return lambda text: text.startswith(prefix)
    if simple and len(pieces) == 2 and not literals[0]:
        suffix = literals[1]
        return lambda text: text.endswith(suffix)
    if simple and len(pieces) == 3 and not literals[0] and not literals[2]:
        inner = literals[1]
        return lambda text: inner in text
    first, *others = [b"".join(map(_as_regex, piece)) for piece in pieces]
    if not others:
        expression = first
    else:
        # The first match of the piece after a % is as good as any later one, so the regular
        # expression never has to go back: atomic groups keep its cost linear per %.
        jumps = b"".join(b"(?>.*?" + piece + b")" for piece in others[:-1] if piece)
        expression = first + jumps + b".*" + others[-1]
    matches = re.compile(expression, re.DOTALL).fullmatch
    return lambda text: matches(text) is not None


def _as_regex(part: bytes | None) -> bytes:
    return _CHARACTER if part is None else re.escape(part)


def _split_like(pattern: bytes) -> list[list[bytes | None]] | None:
    """The pieces between the ``%``: literals, and None for ``_``. None: ends with an escape."""
    pieces: list[list[bytes | None]] = [[]]
    at = 0
    while at < len(pattern):
        c = pattern[at]
        if c == _PERCENT:
            pieces.append([])
        elif c == _UNDERSCORE:
            pieces[-1].append(None)
        else:
            if c == _BACKSLASH:
                at += 1
                if at == len(pattern):
                    return None
            pieces[-1].append(pattern[at : at + 1])
        at += 1
    return pieces
