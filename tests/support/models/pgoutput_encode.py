"""Messages -> pgoutput bytes, for tests: the mirror image of the decoder, written on its own.

Field for field as the ``logicalrep_write_*`` functions of PostgreSQL 18's proto.c write them
(``pq_sendbyte`` is `_byte`, ``pq_sendint32`` is `_int32`, ...), so that decode of encode is a test
of the decoder against the server's side, not against itself.
"""

from __future__ import annotations

from struct import pack
from typing import assert_never

from gateway.pgoutput.messages import (
    Begin,
    BeginPrepare,
    BinaryValue,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldTuple,
    Origin,
    Prepare,
    Relation,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TupleData,
    Type,
    Unchanged,
    Update,
)


def encode_message(message: Message) -> bytes:
    """Write one message as the server does."""
    match message:
        case Insert() | Update() | Delete():
            return _row(message)
        case Truncate() | LogicalMessage() | Relation() | Type():
            return _other_data(message)
        case Begin() | Commit() | Origin():
            return _plain(message)
        case StreamStart() | StreamStop() | StreamCommit() | StreamAbort():
            return _stream(message)
        case BeginPrepare() | Prepare() | CommitPrepared() | RollbackPrepared() | StreamPrepare():
            return _two_phase(message)
        case _:
            assert_never(message)


def xlogdata(message: Message | bytes, *, wal_start: int = 0, wal_end: int = 0) -> bytes:
    """Write the frame that carries `message`."""
    payload = message if isinstance(message, bytes) else encode_message(message)
    return b"w" + _int64(wal_start) + _int64(wal_end) + _time(0) + payload


def keepalive(wal_end: int, *, send_time: int = 0, reply_requested: bool = False) -> bytes:
    """Write a keepalive frame."""
    return b"k" + _int64(wal_end) + _time(send_time) + _byte(reply_requested)


def encode_tuple(columns: TupleData) -> bytes:
    """Write a TupleData."""
    return _int16(len(columns)) + b"".join(map(_column, columns))


def _column(value: bytes | Unchanged | None) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, Unchanged):
        return b"u"
    kind = b"b" if isinstance(value, BinaryValue) else b"t"
    return kind + _int32(len(value)) + value


def _row(message: Insert | Update | Delete) -> bytes:
    relation = _xid(message.xid) + _int32(message.relation_oid)
    match message:
        case Insert():
            return b"I" + relation + b"N" + encode_tuple(message.new)
        case Update():
            old = b"" if message.old is None else _old(message.old)
            return b"U" + relation + old + b"N" + encode_tuple(message.new)
        case Delete():
            return b"D" + relation + _old(message.old)


def _old(old: OldTuple) -> bytes:
    return old.kind.value.encode() + encode_tuple(old.columns)


def _other_data(message: Truncate | LogicalMessage | Relation | Type) -> bytes:
    xid = _xid(message.xid)
    match message:
        case Truncate(relation_oids=oids):
            flags = (1 if message.cascade else 0) | (2 if message.restart_identity else 0)
            return b"T" + xid + _int32(len(oids)) + _byte(flags) + b"".join(map(_int32, oids))
        case LogicalMessage():
            head = _byte(message.transactional) + _int64(message.lsn) + _string(message.prefix)
            return b"M" + xid + head + _int32(len(message.content)) + message.content
        case Relation():
            head = _int32(message.relation_oid) + _namespace(message.namespace)
            head += _string(message.name) + message.replica_identity.value.encode()
            columns = b"".join(
                _byte(c.is_key) + _string(c.name) + _int32(c.type_oid) + pack(">i", c.type_modifier)
                for c in message.columns
            )
            return b"R" + xid + head + _int16(len(message.columns)) + columns
        case Type():
            names = _namespace(message.namespace) + _string(message.name)
            return b"Y" + xid + _int32(message.type_oid) + names


def _plain(message: Begin | Commit | Origin) -> bytes:
    match message:
        case Begin():
            fields = _int64(message.final_lsn) + _time(message.commit_time)
            return b"B" + fields + _int32(message.xid)
        case Commit():
            fields = _byte(message.flags) + _int64(message.commit_lsn) + _int64(message.end_lsn)
            return b"C" + fields + _time(message.commit_time)
        case Origin():
            return b"O" + _int64(message.origin_lsn) + _string(message.name)


def _stream(message: StreamStart | StreamStop | StreamCommit | StreamAbort) -> bytes:
    match message:
        case StreamStart():
            return b"S" + _int32(message.xid) + _byte(message.first_segment)
        case StreamStop():
            return b"E"
        case StreamCommit():
            fields = _int32(message.xid) + _byte(message.flags) + _int64(message.commit_lsn)
            return b"c" + fields + _int64(message.end_lsn) + _time(message.commit_time)
        case StreamAbort():
            fields = _int32(message.xid) + _int32(message.subxid)
            if message.abort_lsn is not None and message.abort_time is not None:
                fields += _int64(message.abort_lsn) + _time(message.abort_time)
            return b"A" + fields


def _two_phase(
    message: BeginPrepare | Prepare | CommitPrepared | RollbackPrepared | StreamPrepare,
) -> bytes:
    tail = _int32(message.xid) + _string(message.gid)
    match message:
        case BeginPrepare():
            fields = _int64(message.prepare_lsn) + _int64(message.end_lsn)
            return b"b" + fields + _time(message.prepare_time) + tail
        case Prepare() | StreamPrepare():
            tag = b"P" if isinstance(message, Prepare) else b"p"
            fields = _byte(message.flags) + _int64(message.prepare_lsn) + _int64(message.end_lsn)
            return tag + fields + _time(message.prepare_time) + tail
        case CommitPrepared():
            fields = _byte(message.flags) + _int64(message.commit_lsn) + _int64(message.end_lsn)
            return b"K" + fields + _time(message.commit_time) + tail
        case RollbackPrepared():
            fields = _byte(message.flags) + _int64(message.prepare_end_lsn)
            fields += _int64(message.rollback_end_lsn) + _time(message.prepare_time)
            return b"r" + fields + _time(message.rollback_time) + tail


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else _int32(xid)


def _namespace(name: str) -> bytes:
    return _string("" if name == "pg_catalog" else name)


def _string(text: str) -> bytes:
    return text.encode() + b"\0"


def _byte(value: int) -> bytes:
    return pack(">B", value)


def _int16(value: int) -> bytes:
    return pack(">H", value)


def _int32(value: int) -> bytes:
    return pack(">I", value)


def _int64(value: int) -> bytes:
    return pack(">Q", value)


def _time(value: int) -> bytes:
    return pack(">q", value)
