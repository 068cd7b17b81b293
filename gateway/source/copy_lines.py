r"""Lines of COPY in text format.

COPY ends each row with a newline and separates columns by tabs; both, and the backslash, are
escaped inside values, and NULL is ``\N``. So a line without a backslash is split and done.

Source: PostgreSQL manual, COPY, "Text Format"; CopyAttributeOutText in copyto.c;
CopyReadAttributesText in copyfromparse.c.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["CopyRow", "split_copy_line"]

CopyRow = list[bytes | None]
"""One row: its columns' text as the output functions write it, in UTF-8; None is NULL."""

_ESCAPE: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_CONTROL: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def split_copy_line(line: bytes) -> CopyRow:
    r"""Split one line of COPY text format, without its newline, into columns.

    Source: CopyReadAttributesText. What COPY writes is read exactly; ``\.`` cannot occur inside a
    row that COPY has written.
    """
    if b"\\" not in line:
        return list(line.split(b"\t"))
    return [
        None if field == rb"\N" else _ESCAPE.sub(_unescape, field) if b"\\" in field else field
        for field in line.split(b"\t")
    ]


def _unescape(match: re.Match[bytes]) -> bytes:
    hexadecimal, octal, character = match.groups()
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    if octal is not None:
        return bytes((int(octal, 8) & 0xFF,))
    return _CONTROL.get(character, character)
