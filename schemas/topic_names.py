"""Parts of topic names: PostgreSQL's identifiers, escaped, as docs/envelope.md has them."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["topic_identifier", "topic_part"]

_UNFIT: Final = re.compile(r"-x|[^A-Za-z0-9_-]")
_WRITTEN: Final = re.compile(r"-x002Dx|-x((?!D[89A-F]..-)(?:10|[1-9A-F])?[0-9A-F]{4})-")
"""Escapes that `topic_part` writes; others, of half a character, are left as they are."""


def topic_part(identifier: str) -> str:
    """Return an identifier as one of the dot-separated parts of a topic name.

    A character outside ``[A-Za-z0-9_-]`` becomes ``-xHHHH-``, the code point in upper-case
    hexadecimal, at least four digits; a literal ``-x`` becomes ``-x002Dx``. Two identifiers never
    become one part. The result is also safe in a path, and between backticks.
    """
    return _UNFIT.sub(_escaped, identifier)


def _escaped(match: re.Match[str]) -> str:
    return "-x002Dx" if match[0] == "-x" else f"-x{ord(match[0]):04X}-"


def topic_identifier(part: str) -> str:
    """Return the identifier that `topic_part` has made `part` of.

    Any text is accepted, since a topic or a marker of somebody else's may name what no gateway
    writes; dots separate parts and stay.
    """
    return _WRITTEN.sub(lambda match: chr(int(match[1], 16)) if match[1] else "-x", part)
