"""The order in which tables of sub-selects are read, when one of them cannot be placed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gateway.copy import Chunk, ChunkRequest, Snapshot
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
        pass

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


def read_in_order(tables: Sequence[InnerTable], void: int, most: int = 6) -> list[int]:
    """Read tables, one of which can never be placed; the OIDs in the order of their reads."""
    reads = SetReads(tables, open_reader=lambda _: Reader(), wake=lambda: None, retry_s=0.01)
    reads.start()
    seen: list[int] = []
    try:
        while len(seen) < most:
            due = wait_until(lambda: reads.due(LSN), 10, "a table to be read")
            assert due is not None
            found = due[0]
            seen.append(found.table.oid)
            if found.table.oid == void:
                reads.read_again()
            else:
                reads.placed()
    finally:
        reads.close()
    return seen


def test_a_table_that_can_never_be_placed_keeps_no_other_from_being_read() -> None:
    tables = [inner(table(oid, f"t{oid}", TWO_COLUMNS)) for oid in (1, 2, 3)]

    assert read_in_order(tables, void=1) == [1, 2, 3, 1, 1, 1]


def test_a_table_that_can_never_be_placed_is_read_less_and_less_often() -> None:
    began = time.monotonic()

    assert read_in_order([inner(table(1, "t1", TWO_COLUMNS))], void=1, most=8) == [1] * 8
    assert time.monotonic() - began >= 0.01 * (2**7 - 1), "each pause is twice the last one"
