"""A live walsender, with streaming while the transactions run: what comes out equals the table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.core.descriptors import wait_readable
from gateway.core.lsn import Lsn, format_lsn, parse_lsn
from gateway.pgoutput.decoder import decode_message
from gateway.pgoutput.frames import XLOGDATA_HEADER
from gateway.pgoutput.messages import Insert, Message, Relation
from gateway.source.stream.connection import ReplicationConnection
from gateway.transactions import Assembler, Event, Transaction
from tests.support.backends.servers import Connection, Database
from tests.support.run.majors import alternating

pytestmark = [
    pytest.mark.postgres,
    alternating(__name__, 16, 18),
]


class Stream:
    """A walsender that streams every change at once, and the assembler behind it."""

    def __init__(self, database: Database, spool: Path) -> None:
        self.sql: Connection = database.connect()
        name = database.name
        self.sql.execute("CREATE TABLE t1 (a int PRIMARY KEY, b text)")
        self.sql.execute("CREATE PUBLICATION p FOR ALL TABLES")
        self.sql.execute(f"ALTER DATABASE {name} SET debug_logical_replication_streaming=immediate")
        self.sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        self._database = database
        self._spool = spool
        self.frames: list[bytes] = []
        self._connect()

    @property
    def has_open_transactions(self) -> bool:
        return self._assembler.has_open_transactions

    def _connect(self) -> None:
        self._source = ReplicationConnection(self._database.dsn)
        self._source.start(self._database.name, ["p"], version=4, streaming="parallel")
        self._assembler = Assembler(
            version=4, parallel_streaming=True, max_buffer_bytes=300, spool_directory=self._spool
        )

    def confirm_and_reconnect(self, flush_lsn: Lsn) -> None:
        """Confirm a position, wait until the slot has it, and start again."""
        query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots"
        query += " WHERE slot_name = %s"
        deadline = time.monotonic() + 120
        confirmed = False
        while not confirmed:
            assert time.monotonic() < deadline, "the slot has not moved"
            self._source.send_feedback(flush_lsn, reply_requested=True)
            wait_readable([self._source.fileno()], 0.5)
            self._source.receive(100)
            row = self.sql.execute(query, (format_lsn(flush_lsn), self._database.name)).fetchone()
            confirmed = row is not None and row[0] is True
        self._assembler.close()
        self._source.close()
        query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND active"
        while self.sql.execute(query, (self._database.name,)).fetchone() != (0,):
            assert time.monotonic() < deadline, "the old walsender has not ended"
        self._connect()

    def until(self, message: bytes, *, seconds: float = 120) -> list[Event]:
        """Receive until a message with this tag has come."""
        events: list[Event] = []
        deadline = time.monotonic() + seconds
        while True:
            frames = self._source.receive(100)
            self.frames += frames
            events += self._assembler.push(frames)
            tags = [f[XLOGDATA_HEADER : XLOGDATA_HEADER + 1] for f in frames if f[:1] == b"w"]
            if message in tags:
                return events
            assert time.monotonic() < deadline, f"{message!r} has not come"
            if not frames:
                wait_readable([self._source.fileno()], 0.5)

    def close(self) -> None:
        self._assembler.close()
        self._source.close()
        self.sql.close()


@pytest.fixture
def stream(database: Database, tmp_path: Path) -> Iterator[Stream]:
    opened = Stream(database, tmp_path)
    yield opened
    opened.close()


def messages_of(transaction: Transaction) -> list[Message]:
    messages = [
        decode_message(frame, XLOGDATA_HEADER, streamed=transaction.streamed)
        for chunk in transaction.frames()
        for frame in chunk
    ]
    transaction.release()
    return messages


def transactions(events: list[Event]) -> list[Transaction]:
    return [event for event in events if isinstance(event, Transaction)]


def test_ddl_that_is_rolled_back_in_a_streamed_transaction_leaves_no_row(
    stream: Stream, database: Database
) -> None:
    run = stream.sql.execute
    run("BEGIN")
    run("INSERT INTO t1 VALUES (1, 'kept')")
    run("SAVEPOINT s")
    run("ALTER TABLE t1 ADD c int DEFAULT 9")
    run("INSERT INTO t1 VALUES (2, 'gone', 3)")
    with database.connect() as other:
        other.execute("CHECKPOINT")  # flushes the WAL, so that it is sent before the rollback
    before_abort = stream.until(b"I")
    while not any(b"gone" in frame for frame in stream.frames):
        before_abort += stream.until(b"I")

    run("ROLLBACK TO s")
    run("INSERT INTO t1 VALUES (3, 'kept')")
    run("COMMIT")
    (transaction,) = transactions(before_abort + stream.until(b"c"))

    widths: dict[int, int] = {}
    rows = []
    for message in messages_of(transaction):
        if isinstance(message, Relation):
            widths[message.relation_oid] = len(message.columns)
        elif isinstance(message, Insert):
            assert len(message.new) == widths[message.relation_oid] == 2
            rows.append(message.new)
    assert rows == [(b"1", b"kept"), (b"3", b"kept")]
    assert 3 in {len(m.columns) for m in map(_any_relation, stream.frames) if m is not None}


def _any_relation(frame: bytes) -> Relation | None:
    if frame[:1] != b"w" or frame[XLOGDATA_HEADER : XLOGDATA_HEADER + 1] != b"R":
        return None
    message = decode_message(frame, XLOGDATA_HEADER, streamed=True)
    return message if isinstance(message, Relation) else None


def test_interleaved_transactions_come_in_commit_order(stream: Stream, database: Database) -> None:
    with database.connect() as other:
        stream.sql.execute("BEGIN")
        other.execute("BEGIN")
        for value in range(4):
            stream.sql.execute("INSERT INTO t1 VALUES (%s, 'first')", (value,))
            other.execute("INSERT INTO t1 VALUES (%s, 'second')", (100 + value,))
        after_rows = parse_lsn(_text(other, "SELECT pg_current_wal_insert_lsn()::text"))
        other.execute("COMMIT")
        stream.sql.execute("COMMIT")
        rows = other.execute("SELECT a::text, b FROM t1").fetchall()

    events = stream.until(b"c")
    while len(transactions(events)) < 2:
        events += stream.until(b"c")

    second, first = transactions(events)
    assert after_rows <= second.commit_lsn < second.end_lsn <= first.commit_lsn
    got: dict[object, object] = {}
    for transaction, word in ((second, b"second"), (first, b"first")):
        assert transaction.streamed
        inserts = [m.new for m in messages_of(transaction) if isinstance(m, Insert)]
        assert {new[1] for new in inserts} == {word}
        got |= {new[0]: new[1] for new in inserts}
    assert got == {str(a).encode(): str(b).encode() for a, b in rows}


def _text(connection: Connection, query: str) -> str:
    row = connection.execute(query).fetchone()
    assert row is not None
    return str(row[0])


def test_streamed_transaction_is_sent_again_after_its_position_was_confirmed(
    stream: Stream, database: Database
) -> None:
    stream.sql.execute("BEGIN")
    stream.sql.execute("INSERT INTO t1 VALUES (1, 'before')")
    with database.connect() as other:
        other.execute("CHECKPOINT")
        stream.until(b"E")
        reached = parse_lsn(_text(other, "SELECT pg_current_wal_flush_lsn()::text"))
        assert not stream.has_open_transactions
        stream.confirm_and_reconnect(reached)
    stream.sql.execute("INSERT INTO t1 VALUES (2, 'after')")
    stream.sql.execute("COMMIT")

    (transaction,) = transactions(stream.until(b"c"))

    inserts = [m.new for m in messages_of(transaction) if isinstance(m, Insert)]
    assert inserts == [(b"1", b"before"), (b"2", b"after")]
