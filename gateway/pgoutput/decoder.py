"""Decoder of pgoutput messages. No I/O, no clock, no logging.

The protocol needs one bit of memory: between Stream Start and Stream Stop each data message
carries a leading xid. `Decoder` holds that bit; everything else is a function of the bytes.
It is the readable reference against which the hot path is tested.

Source: src/backend/replication/logical/proto.c (PostgreSQL 18); which message belongs to which
version: manual, "Logical Replication Message Formats".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from gateway.core.errors import ProtocolError
from gateway.core.lsn import Lsn
from gateway.pgoutput import letters
from gateway.pgoutput.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldTuple,
    OldTupleKind,
    Origin,
    Prepare,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
    Truncate,
    TupleData,
    Type,
    Update,
)
from gateway.pgoutput.tuples import split_tuple

__all__ = ["DATA_TAGS", "Decoder", "decode_message"]

DATA_TAGS: Final = b"RYIUDTM"
"""Tags of the messages that carry an xid inside a stream block."""

_U8: Final = Struct("!B")
_U16: Final = Struct("!H")
_U32: Final = Struct("!I")
_I32: Final = Struct("!i")
_U64: Final = Struct("!Q")

# Runs of fixed fields: LSNs unsigned, times signed, xids unsigned.
_BEGIN: Final = Struct("!QqI")
_COMMIT: Final = Struct("!QQq")
_PREPARE: Final = Struct("!QQqI")
_ROLLBACK_PREPARED: Final = Struct("!QQqqI")
_ABORT_INFO: Final = Struct("!Qq")

_TRANSACTIONAL: Final = 1
_CASCADE: Final = 1
_RESTART_IDENTITY: Final = 2
_IS_KEY: Final = 1
_NEW: Final = ord(letters.TUPLE_NEW)
_BLOCKS: Final = (b"S", b"E")  # Stream Start, Stream Stop


class _Reader:
    """Cursor over one message. Every read checks bounds; errors name the offset."""

    __slots__ = ("data", "position", "start")

    def __init__(self, data: bytes, start: int) -> None:
        self.data = data
        self.start = start
        self.position = start + 1  # after the tag

    def unpack(self, fields: Struct) -> tuple[Any, ...]:
        end = self.position + fields.size
        if end > len(self.data):
            left = len(self.data) - self.position
            raise self.error(f"needs {fields.size} more bytes, has {left}")
        values = fields.unpack_from(self.data, self.position)
        self.position = end
        return values

    def u8(self) -> int:
        return int(self.unpack(_U8)[0])

    def u16(self) -> int:
        return int(self.unpack(_U16)[0])

    def u32(self) -> int:
        return int(self.unpack(_U32)[0])

    def i32(self) -> int:
        return int(self.unpack(_I32)[0])

    def lsn(self) -> Lsn:
        return Lsn(self.unpack(_U64)[0])

    def read(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self.data):
            raise self.error(f"needs {size} more bytes, has {len(self.data) - self.position}")
        chunk = self.data[self.position : end]
        self.position = end
        return chunk

    def string(self) -> str:
        """Read a null-terminated string; the walsender's client_encoding is UTF8."""
        end = self.data.find(b"\0", self.position)
        if end < 0:
            raise self.error("a string has no terminating NUL")
        try:
            text = self.data[self.position : end].decode()
        except UnicodeDecodeError:
            raise self.error("a string is not UTF-8") from None
        self.position = end + 1
        return text

    def namespace(self) -> str:
        return self.string() or "pg_catalog"

    def flags(self, known: int) -> int:
        if (value := self.u8()) & ~known:
            self.position -= 1
            raise self.error(f"unknown flags 0x{value:02x}")
        return value

    def tuple_data(self) -> TupleData:
        values, self.position = split_tuple(self.data, self.position)
        return tuple(values)

    def finish(self) -> None:
        if left := len(self.data) - self.position:
            raise self.error(f"{left} bytes left over")

    def error(self, reason: str) -> ProtocolError:
        tag = self.data[self.start : self.start + 1]
        return ProtocolError(reason, tag=tag, offset=self.position - self.start)


def _begin(r: _Reader) -> Begin:
    final_lsn, commit_time, xid = r.unpack(_BEGIN)
    return Begin(final_lsn=final_lsn, commit_time=commit_time, xid=xid)


def _commit(r: _Reader) -> Commit:
    flags = r.flags(0)
    commit_lsn, end_lsn, commit_time = r.unpack(_COMMIT)
    return Commit(flags, commit_lsn=commit_lsn, end_lsn=end_lsn, commit_time=commit_time)


def _origin(r: _Reader) -> Origin:
    return Origin(r.lsn(), r.string())


def _message(r: _Reader, xid: int | None) -> LogicalMessage:
    transactional = bool(r.flags(_TRANSACTIONAL))
    lsn, prefix = r.lsn(), r.string()
    return LogicalMessage(transactional, lsn, prefix, content=r.read(r.u32()), xid=xid)


def _relation(r: _Reader, xid: int | None) -> Relation:
    relation_oid, namespace, name = r.u32(), r.namespace(), r.string()
    try:
        identity = ReplicaIdentity(chr(letter := r.u8()))
    except ValueError:
        r.position -= 1
        raise r.error(f"unknown replica identity {bytes([letter])!r}") from None
    columns = tuple(_column(r) for _ in range(r.u16()))
    return Relation(relation_oid, namespace, name, identity, columns, xid)


def _column(r: _Reader) -> RelationColumn:
    is_key = bool(r.flags(_IS_KEY))
    return RelationColumn(is_key, name=r.string(), type_oid=r.u32(), type_modifier=r.i32())


def _type(r: _Reader, xid: int | None) -> Type:
    return Type(r.u32(), r.namespace(), r.string(), xid)


def _insert(r: _Reader, xid: int | None) -> Insert:
    return Insert(r.u32(), _new_tuple(r, r.u8()), xid)


def _update(r: _Reader, xid: int | None) -> Update:
    relation_oid, kind, old = r.u32(), r.u8(), None
    if kind in b"KO":
        old = _old_tuple(r, kind)
        kind = r.u8()
    return Update(relation_oid, old, _new_tuple(r, kind), xid)


def _delete(r: _Reader, xid: int | None) -> Delete:
    return Delete(r.u32(), _old_tuple(r, r.u8()), xid)


def _new_tuple(r: _Reader, kind: int) -> TupleData:
    if kind != _NEW:
        r.position -= 1
        raise r.error(f"expected a new tuple (N), found {bytes([kind])!r}")
    return r.tuple_data()


def _old_tuple(r: _Reader, kind: int) -> OldTuple:
    if kind not in b"KO":
        r.position -= 1
        raise r.error(f"expected an old tuple (K or O), found {bytes([kind])!r}")
    return OldTuple(OldTupleKind(chr(kind)), r.tuple_data())


def _truncate(r: _Reader, xid: int | None) -> Truncate:
    count, options = r.u32(), r.flags(_CASCADE | _RESTART_IDENTITY)
    # The count is not trusted with an allocation: the bytes must be there.
    oids = Struct(f"!{count}I") if count * 4 <= len(r.data) - r.position else None
    if oids is None:
        raise r.error(f"needs {count} relation OIDs, has {len(r.data) - r.position} bytes")
    return Truncate(
        cascade=bool(options & _CASCADE),
        restart_identity=bool(options & _RESTART_IDENTITY),
        relation_oids=r.unpack(oids),
        xid=xid,
    )


def _stream_start(r: _Reader) -> StreamStart:
    xid, first_segment = r.u32(), r.flags(1)
    return StreamStart(xid, first_segment=bool(first_segment))


def _stream_stop(_: _Reader) -> StreamStop:
    return StreamStop()


def _stream_commit(r: _Reader) -> StreamCommit:
    xid, flags = r.u32(), r.flags(0)
    commit_lsn, end_lsn, commit_time = r.unpack(_COMMIT)
    return StreamCommit(xid, flags, commit_lsn=commit_lsn, end_lsn=end_lsn, commit_time=commit_time)


def _stream_abort(r: _Reader) -> StreamAbort:
    return StreamAbort(r.u32(), r.u32())


def _stream_abort_parallel(r: _Reader) -> StreamAbort:
    xid, subxid = r.u32(), r.u32()
    abort_lsn, abort_time = r.unpack(_ABORT_INFO)
    return StreamAbort(xid, subxid, abort_lsn=abort_lsn, abort_time=abort_time)


def _prepared(r: _Reader) -> dict[str, Any]:
    """Read the fields that Begin Prepare, Prepare and Stream Prepare share."""
    prepare_lsn, end_lsn, prepare_time, xid = r.unpack(_PREPARE)
    return {
        "prepare_lsn": prepare_lsn,
        "end_lsn": end_lsn,
        "prepare_time": prepare_time,
        "xid": xid,
        "gid": r.string(),
    }


def _begin_prepare(r: _Reader) -> BeginPrepare:
    return BeginPrepare(**_prepared(r))


def _prepare(r: _Reader) -> Prepare:
    return Prepare(r.flags(0), **_prepared(r))


def _stream_prepare(r: _Reader) -> StreamPrepare:
    return StreamPrepare(r.flags(0), **_prepared(r))


def _commit_prepared(r: _Reader) -> CommitPrepared:
    flags = r.flags(0)
    commit_lsn, end_lsn, commit_time, xid = r.unpack(_PREPARE)
    return CommitPrepared(
        flags,
        commit_lsn=commit_lsn,
        end_lsn=end_lsn,
        commit_time=commit_time,
        xid=xid,
        gid=r.string(),
    )


def _rollback_prepared(r: _Reader) -> RollbackPrepared:
    flags = r.flags(0)
    prepare_end_lsn, rollback_end_lsn, prepare_time, rollback_time, xid = r.unpack(
        _ROLLBACK_PREPARED
    )
    return RollbackPrepared(
        flags,
        prepare_end_lsn=prepare_end_lsn,
        rollback_end_lsn=rollback_end_lsn,
        prepare_time=prepare_time,
        rollback_time=rollback_time,
        xid=xid,
        gid=r.string(),
    )


_ReadData: TypeAlias = Callable[[_Reader, int | None], Message]
_ReadControl: TypeAlias = Callable[[_Reader], Message]

_DATA: Final[Mapping[bytes, _ReadData]] = MappingProxyType(
    {
        b"R": _relation,
        b"Y": _type,
        letters.TAG_INSERT.encode(): _insert,
        letters.TAG_UPDATE.encode(): _update,
        letters.TAG_DELETE.encode(): _delete,
        b"T": _truncate,
        b"M": _message,
    }
)
_CONTROL_1: Final[Mapping[bytes, _ReadControl]] = MappingProxyType(
    {letters.TAG_BEGIN.encode(): _begin, letters.TAG_COMMIT.encode(): _commit, b"O": _origin}
)
_CONTROL_2: Final[Mapping[bytes, _ReadControl]] = MappingProxyType(
    {
        **_CONTROL_1,
        b"S": _stream_start,
        b"E": _stream_stop,
        b"c": _stream_commit,
        b"A": _stream_abort,
    }
)
_CONTROL_3: Final[Mapping[bytes, _ReadControl]] = MappingProxyType(
    {
        **_CONTROL_2,
        b"b": _begin_prepare,
        b"P": _prepare,
        b"K": _commit_prepared,
        b"r": _rollback_prepared,
        b"p": _stream_prepare,
    }
)
_CONTROL_PARALLEL: Final[Mapping[bytes, _ReadControl]] = MappingProxyType(
    {**_CONTROL_3, b"A": _stream_abort_parallel}
)
_CONTROL: Final = MappingProxyType({1: _CONTROL_1, 2: _CONTROL_2, 3: _CONTROL_3, 4: _CONTROL_3})


def decode_message(data: bytes, position: int = 0, *, streamed: bool) -> Message:
    """Decode the data message (tag in `DATA_TAGS`) that fills `data` from `position` on.

    Args:
        data: Message, or whole XLogData frame.
        position: Index of the tag; 25 (`XLOGDATA_HEADER`) in a frame.
        streamed: Whether the message comes from a stream block and has an xid after its tag.

    Raises:
        ProtocolError: another tag, a short message, a wrong field, or bytes left over.
    """
    reader, tag = _Reader(data, position), data[position : position + 1]
    if (read := _DATA.get(tag)) is None:
        raise _no_such_message(tag, "data message")
    message = read(reader, reader.u32() if streamed else None)
    reader.finish()
    return message


class Decoder:
    """Decoder of one replication stream, in order.

    Args:
        version: Protocol version (``proto_version``), 1 to 4. A message that the version does not
            have is an error.
        parallel_streaming: ``streaming = parallel`` (version 4): Stream Abort has LSN and time.

    Attributes:
        in_stream: Whether a stream block is open, so that data messages carry an xid.

    Raises:
        ValueError: no such version, or parallel streaming below version 4.
    """

    __slots__ = ("_control", "_version", "in_stream")

    def __init__(self, version: int = 1, *, parallel_streaming: bool = False) -> None:
        if version not in _CONTROL:
            raise ValueError(f"protocol versions are 1 to 4, not {version}")
        if parallel_streaming and version < 4:
            raise ValueError("streaming = parallel needs protocol version 4")
        self._version = version
        self._control = _CONTROL_PARALLEL if parallel_streaming else _CONTROL[version]
        self.in_stream = False

    def decode(self, data: bytes, position: int = 0) -> Message:
        """Decode the message that fills `data` from `position` on.

        After an error the decoder is as it was before.

        Raises:
            ProtocolError: unknown tag, short message, wrong field, or bytes left over.
        """
        tag = data[position : position + 1]
        if tag in _DATA:
            return decode_message(data, position, streamed=self.in_stream)
        if (read := self._control.get(tag)) is None:
            raise _no_such_message(tag, f"message of protocol version {self._version}")
        reader = _Reader(data, position)
        message = read(reader)
        reader.finish()
        if tag in _BLOCKS:
            self.in_stream = tag == b"S"
        return message


def _no_such_message(tag: bytes, expected: str) -> ProtocolError:
    reason = f"not a {expected}" if tag else "empty message"
    return ProtocolError(reason, tag=tag, offset=0)
