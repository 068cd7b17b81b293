"""The simulated walsender: WAL decoded to frames, from the position of a slot on.

Source: SnapBuildXactNeedsSkip, DecodeCommit, DecodePrepare, DecodeAbort in PostgreSQL's snapbuild.c
and decode.c: a record is skipped if it begins before the position at which the stream was started;
pgoutput.c: the relation is announced once in a stream, and once in each streamed transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from gateway.core.lsn import Lsn
from gateway.pgoutput.messages import (
    Begin,
    BeginPrepare,
    CommitPrepared,
    Insert,
    LogicalMessage,
    Relation,
    RelationColumn,
    ReplicaIdentity,
    RollbackPrepared,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
)
from gateway.pgoutput.messages import Commit as CommitMessage
from gateway.pgoutput.messages import Prepare as PrepareMessage
from tests.support.models.pgoutput_encode import keepalive, xlogdata
from tests.support.simulation.wal import (
    Abort,
    Commit,
    Note,
    Prepare,
    RollBack,
    Row,
    SubAbort,
    Transaction,
    Wal,
)

__all__ = ["RELATION", "Walsender"]

RELATION: Final = 16384
_COLUMNS: Final = (RelationColumn(True, "a", 23, -1),)


class Walsender:
    """Decodes the WAL from its beginning, and sends what is not skipped.

    Args:
        start: Position at which the stream was started.
    """

    def __init__(self, wal: Wal, start: int, random: Random) -> None:
        self._wal = wal
        self._start = start
        self._random = random
        self._place = 0
        self._rows: dict[Transaction, list[Row]] = {}  # decoded and not sent
        self._blocks: dict[Transaction, set[int]] = {}  # streamed: xids of rows that were sent
        self._announced: set[Transaction | None] = set()
        self.sent = start

    @property
    def is_ahead(self) -> bool:
        """Whether everything has been read."""
        return self._place == len(self._wal.records)

    def read(self) -> list[bytes]:
        """Decode the next record; return the frames that it leads to."""
        record = self._wal.records[self._place]
        self._place += 1
        self.sent = max(self.sent, record.end)
        return list(self._decode(record))

    def keepalive(self, *, reply_requested: bool) -> bytes:
        """Return a keepalive with the position that has been read."""
        return keepalive(self.sent, reply_requested=reply_requested)

    def _decode(self, record: object) -> Iterator[bytes]:
        match record:
            case Row(transaction=transaction):
                self._rows.setdefault(transaction, []).append(record)
                if transaction.large and record.lsn >= self._start and self._random.random() < 0.4:
                    yield from self._block(transaction)
            case SubAbort(transaction=transaction, xid=xid):
                rows = self._rows.get(transaction, [])
                self._rows[transaction] = [row for row in rows if row.xid != xid]
                if xid in self._blocks.get(transaction, ()):
                    yield xlogdata(StreamAbort(transaction.xid, xid), wal_start=record.lsn)
            case Abort(transaction=transaction):
                self._rows.pop(transaction, None)
                if self._blocks.pop(transaction, None):
                    abort = StreamAbort(transaction.xid, transaction.xid)
                    yield xlogdata(abort, wal_start=record.lsn)
            case Prepare():
                yield from self._prepare(record)
            case Commit(transaction=transaction):
                if transaction.gid is None:
                    yield from self._commit(record)
                elif record.lsn >= self._start:
                    commit = CommitPrepared(
                        0,
                        Lsn(record.lsn),
                        Lsn(record.end),
                        record.time,
                        transaction.xid,
                        transaction.gid,
                    )
                    yield xlogdata(commit, wal_start=record.lsn)
            case RollBack():
                if record.lsn >= self._start:
                    yield self._roll_back(record)
            case Note(content=content) if content and record.lsn >= self._start:
                message = LogicalMessage(False, Lsn(record.lsn), "p", b"%d" % record.lsn)
                yield xlogdata(message, wal_start=record.lsn)

    def _commit(self, record: Commit) -> Iterator[bytes]:
        transaction = record.transaction
        rows = self._rows.pop(transaction, [])
        streamed = transaction in self._blocks
        if record.lsn < self._start or not (rows or streamed):
            return
        lsn, end = Lsn(record.lsn), Lsn(record.end)
        if streamed:
            yield from self._block(transaction, rows)
            del self._blocks[transaction]
            message = StreamCommit(transaction.xid, 0, lsn, end, record.time)
            yield xlogdata(message, wal_start=record.end)
            return
        yield xlogdata(Begin(lsn, record.time, transaction.xid), wal_start=rows[0].lsn)
        yield from self._inserts(None, rows)
        yield xlogdata(CommitMessage(0, lsn, end, record.time), wal_start=record.end)

    def _prepare(self, record: Prepare) -> Iterator[bytes]:
        transaction = record.transaction
        rows = self._rows.pop(transaction, [])
        if record.lsn < self._start:
            self._blocks.pop(transaction, None)
            return
        assert transaction.gid is not None
        lsn, end = Lsn(record.lsn), Lsn(record.end)
        if transaction in self._blocks:
            yield from self._block(transaction, rows)
            del self._blocks[transaction]
            streamed = StreamPrepare(0, lsn, end, record.time, transaction.xid, transaction.gid)
            yield xlogdata(streamed, wal_start=record.end)
            return
        begin = BeginPrepare(lsn, end, record.time, transaction.xid, transaction.gid)
        yield xlogdata(begin, wal_start=record.lsn)
        yield from self._inserts(None, rows)
        whole = PrepareMessage(0, lsn, end, record.time, transaction.xid, transaction.gid)
        yield xlogdata(whole, wal_start=record.end)

    def _roll_back(self, record: RollBack) -> bytes:
        transaction = record.transaction
        assert transaction.gid is not None
        message = RollbackPrepared(
            0,
            Lsn(record.prepare.end),
            Lsn(record.end),
            record.prepare.time,
            record.prepare.time + 1,
            transaction.xid,
            transaction.gid,
        )
        return xlogdata(message, wal_start=record.lsn)

    def _block(self, transaction: Transaction, rows: list[Row] | None = None) -> Iterator[bytes]:
        rows = self._rows.pop(transaction, []) if rows is None else rows
        if not rows:
            return
        first = transaction not in self._blocks
        self._blocks.setdefault(transaction, set()).update(row.xid for row in rows)
        yield xlogdata(StreamStart(transaction.xid, first), wal_start=rows[0].lsn)
        yield from self._inserts(transaction, rows)
        yield xlogdata(StreamStop(), wal_start=rows[-1].lsn)

    def _inserts(self, streamed: Transaction | None, rows: list[Row]) -> Iterator[bytes]:
        for row in rows:
            xid = None if streamed is None else row.xid
            if streamed not in self._announced:
                self._announced.add(streamed)
                yield xlogdata(
                    Relation(RELATION, "public", "t", ReplicaIdentity.DEFAULT, _COLUMNS, xid),
                    wal_start=row.lsn,
                )
            yield xlogdata(Insert(RELATION, (b"%010d" % row.value,), xid), wal_start=row.lsn)
