"""Text of an hstore: its keys and values.

Source: hstore_out in contrib/hstore/hstore_io.c.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["hstore_pairs"]

_QUOTED: Final = rb'"((?:[^"\\]++|\\.)*+)"'
_PAIR: Final = re.compile(_QUOTED + rb"=>(?:NULL|" + _QUOTED + rb")(, |\Z)", re.DOTALL)
_ESCAPED: Final = re.compile(rb"\\(.)", re.DOTALL)


def hstore_pairs(text: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the pairs of an hstore in the order of its text; None is NULL.

    Raises:
        ValueError: the extension does not print such text.
    """
    at, more = 0, text != b""
    while more:
        if (found := _PAIR.match(text, at)) is None:
            raise ValueError("not an hstore")
        key, value, after = found.groups()
        yield _plain(key), None if value is None else _plain(value)
        at, more = found.end(), after != b""


def _plain(quoted: bytes) -> bytes:
    return _ESCAPED.sub(rb"\1", quoted) if b"\\" in quoted else quoted
