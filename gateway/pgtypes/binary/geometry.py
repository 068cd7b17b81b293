"""Points and other geometric types; coordinates print as double precision does.

Source: geo_ops.c.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from gateway.pgtypes.binary.floats import double_text
from gateway.pgtypes.binary.info import ToText

__all__ = ["GEOMETRY"]

_COUNT: Final = Struct("!i")


def _doubles(count: int, pattern: bytes) -> ToText:
    unpack = Struct(f"!{count}d").unpack

    def to_text(data: bytes) -> bytes:
        return pattern % tuple([double_text(value) for value in unpack(data)])

    return to_text


def _points(data: bytes) -> bytes:
    """Convert a count and this many points, to be separated by commas."""
    (count,) = _COUNT.unpack_from(data)
    values = Struct(f"!{2 * count}d").unpack(data[4:]) if count >= 0 else ()
    if count <= 0:
        raise ValueError("no points")
    shown = [double_text(value) for value in values]
    return b",".join([b"(%b,%b)" % pair for pair in zip(shown[::2], shown[1::2], strict=True)])


def path(data: bytes) -> bytes:
    """Closed paths in round brackets, open ones in square ones."""
    return (b"(%b)" if data[0] else b"[%b]") % _points(data[1:])


def polygon(data: bytes) -> bytes:
    """Always closed."""
    return b"(%b)" % _points(data)


GEOMETRY: Final[dict[tuple[str, str], ToText]] = {
    ("point_out", "point_send"): _doubles(2, b"(%b,%b)"),
    ("lseg_out", "lseg_send"): _doubles(4, b"[(%b,%b),(%b,%b)]"),
    ("box_out", "box_send"): _doubles(4, b"(%b,%b),(%b,%b)"),
    ("line_out", "line_send"): _doubles(3, b"{%b,%b,%b}"),
    ("circle_out", "circle_send"): _doubles(3, b"<(%b,%b),%b>"),
    ("path_out", "path_send"): path,
    ("poly_out", "poly_send"): polygon,
}
"""Output and send function -> conversion."""
