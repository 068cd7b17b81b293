"""WAL positions: unsigned 64-bit integers with PostgreSQL's text form ``X/X``.

A bare `Lsn` does not say which position it is; names do: ``start_lsn``, ``commit_lsn``,
``end_lsn``, ``flush_lsn``.
"""

from __future__ import annotations

import re
from typing import Final, NewType

__all__ = ["ZERO_LSN", "Lsn", "format_lsn", "header_lsn", "parse_lsn"]

Lsn = NewType("Lsn", int)

ZERO_LSN: Final = Lsn(0)

_TEXT: Final = re.compile(r"\A([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})\Z")


def parse_lsn(text: str) -> Lsn:
    """Parse an LSN such as ``16/B374D848``.

    Raises:
        ValueError: `text` is not a WAL position.

    Source: pg_lsn_in_internal in PostgreSQL's pg_lsn.c.
    """
    if (match := _TEXT.match(text.strip())) is None:
        raise ValueError(f"not a WAL position (expected for example 16/B374D848): {text!r}")
    return Lsn(int(match[1], 16) << 32 | int(match[2], 16))


def format_lsn(lsn: int) -> str:
    """Format an LSN as PostgreSQL prints it: upper case, no padding."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def header_lsn(lsn: int) -> bytes:
    """Format an LSN for record headers: ``XXXXXXXX/XXXXXXXX``, which sorts as text."""
    return b"%08X/%08X" % (lsn >> 32, lsn & 0xFFFFFFFF)
