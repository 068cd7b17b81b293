"""A small model of what a walsender sends, for tests of the assembler."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import (
    Begin,
    BeginPrepare,
    Commit,
    CommitPrepared,
    Insert,
    Prepare,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    RollbackPrepared,
    StreamCommit,
    StreamPrepare,
)
from gateway.transactions import Assembler, Event, Transaction
from tests.support.models.pgoutput_encode import xlogdata


def begin(xid: int, commit_lsn: int) -> bytes:
    return xlogdata(Begin(Lsn(commit_lsn), 1000 + xid, xid))


def commit(xid: int, commit_lsn: int) -> bytes:
    return xlogdata(Commit(0, Lsn(commit_lsn), Lsn(commit_lsn + 8), 1000 + xid))


def stream_commit(xid: int, commit_lsn: int) -> bytes:
    return xlogdata(StreamCommit(xid, 0, Lsn(commit_lsn), Lsn(commit_lsn + 8), 1000 + xid))


def begin_prepare(xid: int, prepare_lsn: int, gid: str) -> bytes:
    return xlogdata(BeginPrepare(Lsn(prepare_lsn), Lsn(prepare_lsn + 8), 500, xid, gid))


def prepare(xid: int, prepare_lsn: int, gid: str) -> bytes:
    return xlogdata(Prepare(0, Lsn(prepare_lsn), Lsn(prepare_lsn + 8), 500, xid, gid))


def stream_prepare(xid: int, prepare_lsn: int, gid: str) -> bytes:
    return xlogdata(StreamPrepare(0, Lsn(prepare_lsn), Lsn(prepare_lsn + 8), 500, xid, gid))


def commit_prepared(xid: int, commit_lsn: int, gid: str) -> bytes:
    return xlogdata(CommitPrepared(0, Lsn(commit_lsn), Lsn(commit_lsn + 8), 1000 + xid, xid, gid))


def rollback_prepared(xid: int, prepare_lsn: int, end_lsn: int, gid: str) -> bytes:
    message = RollbackPrepared(0, Lsn(prepare_lsn + 8), Lsn(end_lsn), 500, 900, xid, gid)
    return xlogdata(message)


def relation(oid: int = 1, *, xid: int | None = None) -> bytes:
    columns = (RelationColumn(True, "a", 23, -1),)
    return xlogdata(Relation(oid, "s", "t", ReplicaIdentity.DEFAULT, columns, xid))


def insert(value: int, *, xid: int | None = None) -> bytes:
    return xlogdata(Insert(1, (b"%d" % value,), xid))


def frames_of(transaction: Transaction) -> list[bytes]:
    """Return all its frames and release it."""
    frames = [frame for chunk in transaction.frames() for frame in chunk]
    transaction.release()
    return frames


def push_in_pieces(
    assembler: Assembler, frames: Sequence[bytes], sizes: Iterable[int]
) -> list[Event]:
    """Push `frames` in pieces of `sizes`, and the rest at once."""
    events: list[Event] = []
    position = 0
    for size in sizes:
        events += assembler.push(frames[position : position + size])
        position += size
    return events + assembler.push(frames[position:])
