"""Frames inside CopyData while a walsender streams: XLogData, keepalive, status update.

A frame is the payload of one CopyData message. Integers are big-endian; LSNs are unsigned,
times are signed microseconds since 2000-01-01 00:00 UTC.

Source: manual, "Streaming Replication Protocol", START_REPLICATION; XLogSendLogical,
WalSndKeepalive and ProcessStandbyReplyMessage in PostgreSQL's walsender.c.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn
from gateway.pgoutput import letters

__all__ = [
    "KEEPALIVE_TAG",
    "XLOGDATA_HEADER",
    "XLOGDATA_TAG",
    "Keepalive",
    "decode_keepalive",
    "message_error",
    "oid_position",
    "read_begin",
    "read_commit",
    "wal_start",
]

XLOGDATA_TAG: Final = ord(letters.FRAME_XLOGDATA)
_XLOGDATA: Final = letters.FRAME_XLOGDATA.encode()
_BEGIN_TAG: Final = letters.TAG_BEGIN.encode()
_COMMIT_TAG: Final = letters.TAG_COMMIT.encode()
KEEPALIVE_TAG: Final = ord("k")

XLOGDATA_HEADER: Final = 25
"""Size of the header of XLogData (tag, wal_start, wal_end, send time), and so the index in a frame
of the tag of its pgoutput message."""

_LSN: Final = Struct("!Q")
_BEGIN: Final = Struct("!c24xcQqI")
_COMMIT: Final = Struct("!c24xcBQQq")
_KEEPALIVE: Final = Struct("!cQqB")


@dataclass(frozen=True, slots=True)
class Keepalive:
    """The server is alive and has read WAL until `wal_end`. Wire tag ``k``.

    `reply_requested`: the server ends the connection soon if it gets no status update.
    """

    wal_end: Lsn
    send_time: int
    reply_requested: bool


def decode_keepalive(frame: bytes) -> Keepalive:
    """Parse a keepalive frame.

    Raises:
        ProtocolError: it is not exactly one keepalive.
    """
    if len(frame) != _KEEPALIVE.size:
        raise ProtocolError(
            f"a keepalive has {_KEEPALIVE.size} bytes, this one {len(frame)}",
            tag=frame[:1],
            offset=min(len(frame), _KEEPALIVE.size),
        )
    tag, wal_end, send_time, reply = _KEEPALIVE.unpack(frame)
    if tag != b"k":
        raise ProtocolError("not a keepalive", tag=tag, offset=0)
    if reply > 1:
        raise ProtocolError(f"reply requested must be 0 or 1, not {reply}", tag=tag, offset=17)
    return Keepalive(Lsn(wal_end), send_time, reply == 1)


def read_begin(frame: bytes) -> tuple[int, int, int] | None:
    """Return commit LSN, commit time and xid of a Begin frame, or None.

    Each transaction has one Begin and one Commit, so these two are read in one step; faults of a
    frame that only looks like one are left to `gateway.pgoutput.decoder`.
    """
    if len(frame) != _BEGIN.size:
        return None
    kind, tag, final_lsn, commit_time, xid = _BEGIN.unpack(frame)
    return (final_lsn, commit_time, xid) if kind == _XLOGDATA and tag == _BEGIN_TAG else None


def read_commit(frame: bytes) -> tuple[int, int, int] | None:
    """Return commit LSN, end LSN and commit time of a Commit frame, or None."""
    if len(frame) != _COMMIT.size:
        return None
    kind, tag, flags, commit_lsn, end_lsn, commit_time = _COMMIT.unpack(frame)
    if kind != _XLOGDATA or tag != _COMMIT_TAG or flags:
        return None
    return commit_lsn, end_lsn, commit_time


def oid_position(*, streamed: bool) -> int:
    """Return where the relation's OID is in the XLogData frame of an Insert, Update or Delete.

    In a streamed transaction the xid is before it.
    """
    return XLOGDATA_HEADER + (5 if streamed else 1)


def wal_start(frame: bytes) -> Lsn:
    """Return where the data of an XLogData frame starts in the WAL.

    Raises:
        ProtocolError: the frame is shorter than its header.
    """
    if len(frame) < XLOGDATA_HEADER:
        raise ProtocolError("the header of XLogData is cut", tag=frame[:1], offset=len(frame))
    return Lsn(_LSN.unpack_from(frame, 1)[0])


def message_error(data: bytes, position: int, reason: str) -> ProtocolError:
    """Return the error for a pgoutput message alone in `data` or after a frame header.

    Tag and offset refer to the message: the frame header is not counted.
    """
    start = XLOGDATA_HEADER if data[:1] == b"w" and len(data) > XLOGDATA_HEADER else 0
    return ProtocolError(reason, tag=data[start : start + 1], offset=max(position - start, 0))
