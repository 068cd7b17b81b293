"""Tables of sub-selects that are read again and again, and the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from gateway.copy import Chunk, ChunkRequest, Snapshot
from gateway.core.errors import TransientError
from gateway.core.lsn import Lsn
from gateway.definitions.model import Table
from gateway.routing.build.followed_tables import InnerTable
from gateway.runtime.copy.set_reads import SetReads
from gateway.source.copy.chunk_reader import ChunkReader, ChunkSource
from gateway.subselects.views import TableViews
from tests.support.gateway.routing_scene import TWO_COLUMNS, table
from tests.support.run.waiting import wait_until

SNAPSHOT = Snapshot(10, 10, frozenset())
LSN = Lsn(100)


class Reader(ChunkReader):
    """Has empty tables, and no server."""

    def __init__(self) -> None:
        self.awaited_xid: int | None = None

    def wait_for(self, before: int | None) -> None:
        self.awaited_xid = before

    def awaited(self) -> None:
        return None

    def snapshot(self) -> Snapshot:
        return SNAPSHOT

    def new_xid(self) -> None:
        return None

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def read(self, source: ChunkSource, request: ChunkRequest, limit: int) -> Chunk:
        return Chunk(request, [], SNAPSHOT, LSN, None, True, 0)


def inner(shown: Table) -> InnerTable:
    return InnerTable(shown, ("a", "b"), (), TableViews(shown, ("a", "b"), ()))


@contextmanager
def reading(reader: Reader) -> Iterator[SetReads]:
    reads = SetReads(open_reader=lambda _: reader, wake=lambda: None, retry_s=0.01)
    try:
        yield reads
    finally:
        reads.close()


def next_read(reads: SetReads) -> int:
    """Return the OID of the table that is read next, once it is; it can be placed then."""
    due = wait_until(lambda: reads.due(LSN), 10, "a table to be read")
    assert due is not None
    return due[0].table.oid


TABLES = [inner(table(oid, f"t{oid}", TWO_COLUMNS)) for oid in (1, 2, 3)]


def test_a_table_that_is_read_again_keeps_no_other_from_being_read() -> None:
    seen: list[int] = []
    with reading(Reader()) as reads:
        reads.read(TABLES)
        while len(seen) < 6:
            seen.append(oid := next_read(reads))
            reads.placed()
            assert not reads.is_reading(oid)
            if oid == 1:
                reads.read(TABLES[:1])  # also when the thread has nothing else to do

    assert seen == [1, 2, 3, 1, 1, 1]


class Rewritten(Reader):
    """Cannot read the first table, which is rewritten each time."""

    def read(self, source: ChunkSource, request: ChunkRequest, limit: int) -> Chunk:
        if source.table.oid == 1:
            raise TransientError("it was rewritten while a chunk was read")
        return super().read(source, request, limit)


def test_a_table_that_is_rewritten_during_each_read_keeps_no_other_from_being_read() -> None:
    with reading(Rewritten()) as reads:
        reads.read(TABLES)
        assert next_read(reads) == 2
        reads.placed()
        assert next_read(reads) == 3
        assert reads.is_reading(1)


class Busy(Reader):
    """Has a transaction that runs for ever, from when the second table is to be read."""

    is_busy = False

    def snapshot(self) -> Snapshot:
        return replace(SNAPSHOT, xmax=20) if self.is_busy else SNAPSHOT


def test_a_table_that_waits_for_a_transaction_keeps_no_other_from_being_read() -> None:
    reader = Busy()
    with reading(reader) as reads:
        reads.read(TABLES[:1])
        assert next_read(reads) == 1
        reader.is_busy = True
        reads.read(TABLES[1:2])
        reads.placed()
        wait_until(lambda: reader.awaited_xid, 10, "the gate of the second one")
        reader.is_busy = False
        reads.read(TABLES[2:])
        assert next_read(reads) == 3
        assert reads.is_reading(2)
