"""Check of large stream messages before Python copies them.

libpq keeps a received message in its buffer and hands out a copy of it; the frame is a third one.
Any role can emit a logical message of a gigabyte, and most are for other consumers: such a message
becomes a frame without its content, which is dropped where all messages of its prefix are.

Source: PostgreSQL manual, "Logical Replication Message Formats", Message.
"""

from __future__ import annotations

from collections.abc import Container
from struct import Struct
from typing import Final

from gateway.pgoutput.frames import XLOGDATA_HEADER

__all__ = ["LARGE", "frame_of"]

LARGE: Final = 1 << 20
"""Size from which a message is checked."""

_MESSAGE: Final = ord("M")
_LSN_AND_FLAGS: Final = 9
_XID: Final = 4
_MOST_OF_A_PREFIX: Final = 1 << 10
_LENGTH: Final = Struct("!I")


def frame_of(view: memoryview, wanted: Container[bytes]) -> bytes:
    """Return a received message as a frame: whole, or a logical message without its content.

    Args:
        view: Buffer of libpq.
        wanted: Prefixes of logical messages whose content is needed.
    """
    if view[XLOGDATA_HEADER] == _MESSAGE:
        # In a streamed transaction an xid stands first, which a frame alone does not say. A message
        # that reads both ways, then with the second part of its prefix, is unwanted both ways.
        readings = [
            reading
            for start in (XLOGDATA_HEADER + 1, XLOGDATA_HEADER + 1 + _XID)
            if (reading := _prefix_and_end(view, start)) is not None
        ]
        ends = {end for _, end in readings}
        if len(ends) == 1 and not any(prefix in wanted for prefix, _ in readings):
            return bytes(view[: ends.pop()]) + _LENGTH.pack(0)
    return bytes(view)


def _prefix_and_end(view: memoryview, flags_at: int) -> tuple[bytes, int] | None:
    """Return prefix and offset of the content's length, if a message reads from `flags_at`."""
    begin = flags_at + _LSN_AND_FLAGS
    prefix, end, _ = bytes(view[begin : begin + _MOST_OF_A_PREFIX]).partition(b"\0")
    at = begin + len(prefix) + 1
    if not end or at + _LENGTH.size > len(view):
        return None
    (length,) = _LENGTH.unpack_from(view, at)
    return (prefix, at) if at + _LENGTH.size + length == len(view) else None
