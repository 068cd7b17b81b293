"""Large messages of the stream, before they are copied."""

from __future__ import annotations

from struct import pack

import pytest

from gateway.source.stream.large_messages import frame_of

HEADER = b"w" + bytes(24)


def message(prefix: bytes, content: bytes, *, xid: bytes = b"") -> bytes:
    """A frame of a logical message, of a streamed transaction where there is an `xid`."""
    said = pack("!BQ", 1, 77) + prefix + b"\0" + pack("!I", len(content)) + content
    return HEADER + b"M" + xid + said


@pytest.mark.parametrize("xid", [b"", pack("!I", 7), bytes(4)])
def test_an_unwanted_message_comes_without_its_content(xid: bytes) -> None:
    whole = message(b"other", b"x" * 5000, xid=xid)

    assert frame_of(memoryview(whole), {b"app"}) == message(b"other", b"", xid=xid)
    assert frame_of(memoryview(whole), {b"app", b"other"}) == whole


@pytest.mark.parametrize(
    "frame",
    [
        HEADER + b"I" + bytes(3000),
        HEADER + b"M" + bytes(3000),
        message(b"p" * 2000, b"x" * 3000),
        message(b"other", b"x" * 3000)[:-1],
        message(b"other", b"x" * 3000) + b"y",
    ],
)
def test_what_is_no_such_message_stays_whole(frame: bytes) -> None:
    assert frame_of(memoryview(frame), frozenset()) == frame
