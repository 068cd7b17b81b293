r"""Lines of COPY in text format.

COPY ends each row with a newline and separates columns by tabs; both, and the backslash, are
escaped inside values, and NULL is ``\N``. A line without a backslash only needs to be split.

Source: PostgreSQL manual, COPY, "Text Format"; CopyAttributeOutText in copyto.c;
CopyReadAttributesText in copyfromparse.c.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

from gateway.pgoutput.messages import ColumnValue

__all__ = ["CopiedRow", "CopyRow", "Row", "key_of_line", "row_of", "split_copy_line"]

CopyRow: TypeAlias = list[bytes | None]
"""One row: its columns' text as the output functions write it, in UTF-8; None is NULL."""

Row: TypeAlias = Sequence[ColumnValue]

CopiedRow: TypeAlias = Row | bytes
"""A row, or the line that COPY has written of it, with its newline: most are never split here."""

_ESCAPE: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_CONTROL: Final = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def split_copy_line(line: bytes) -> CopyRow:
    r"""Split one line of COPY text format, without its newline, into columns.

    Source: CopyReadAttributesText, for what COPY writes; ``\.`` cannot occur inside such a row.
    """
    if b"\\" not in line:
        return list(line.split(b"\t"))
    return [
        None if field == rb"\N" else _ESCAPE.sub(_unescape, field) if b"\\" in field else field
        for field in line.split(b"\t")
    ]


def row_of(copied: CopiedRow) -> Row:
    """Return a row's columns."""
    return split_copy_line(copied[:-1]) if isinstance(copied, bytes) else copied


def key_of_line(line: bytes, positions: Sequence[int], width: int) -> tuple[bytes | None, ...]:
    """Return some columns of a line.

    Args:
        line: With its newline.
        positions: Positions of the columns.
        width: Least number of columns: one more than the greatest of `positions`.
    """
    if b"\\" in line:
        row = split_copy_line(line[:-1])
        return tuple([row[position] for position in positions])
    fields = line[:-1].split(b"\t", width)
    return tuple([fields[position] for position in positions])


def _unescape(match: re.Match[bytes]) -> bytes:
    hexadecimal, octal, character = match.groups()
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    if octal is not None:
        return bytes((int(octal, 8) & 0xFF,))
    return _CONTROL.get(character, character)
