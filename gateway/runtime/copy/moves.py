"""Moves while the stream goes on: what is unsettled is asked for, and answers are placed.

The threads that read are in `gateway.runtime.copy.move_readers`; `gateway.subselects.moves` decides
which rows are asked for, and which go out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

from gateway.copy import Snapshot
from gateway.core.lsn import Lsn
from gateway.core.records import Record
from gateway.pgoutput.messages import ReplicaIdentity
from gateway.routing.build.followed_tables import FollowedTables, OuterRows
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.routing.row.moved_rows import MovedRows
from gateway.routing.row.transaction_state import TransactionState
from gateway.runtime.copy.move_readers import MoveReaders, ReadFailure
from gateway.runtime.wait_log import LockNotices
from gateway.source.copy.chunk_reader import ChunkSource
from gateway.source.copy.errors import TableLocked
from gateway.subselects.moves.reads import MoveChunk, MoveRequest

__all__ = ["Moves"]


class Moves:
    """Moves of all outer tables, for the loop.

    Args:
        followed: Outer tables and what is known of them.
        routes: Routes of the plan.
        readers: Threads that read.
    """

    def __init__(
        self, followed: FollowedTables, routes: RelationRoutes, readers: MoveReaders
    ) -> None:
        self._tables = followed.following.moves
        self._readers = readers
        self._sources = {oid: _source(rows) for oid, rows in followed.outer.items()}
        self._routes = {
            oid: MovedRows(
                routes.copy_route(rows.copies, rows.key),
                full=rows.table.replica_identity is ReplicaIdentity.FULL,
            )
            for oid, rows in followed.outer.items()
        }
        self._newest: Snapshot | None = None
        self._order = deque(self._tables)  # the one that is asked about next comes first
        self._out: Counter[int] = Counter()
        self._locked: set[int] = set()
        self._note_lock = LockNotices()
        for moves in self._tables.values():
            moves.release_all()

    @property
    def unsettled(self) -> bool:
        """Whether rows are still to be read, or were read and nobody needs them any more.

        Their snapshot would keep changes from being forgotten.
        """
        return self._readers.is_asked or any(moves.has_reads for moves in self._tables.values())

    def go_on(self) -> list[ReadFailure]:
        """Ask for what is unsettled, and forget changes that all answers to come see.

        Returns:
            Questions that cannot be answered, because of their tables. Tables that are locked are
            asked for again.
        """
        failures = []
        for failure in self._readers.pop_failures():
            table = failure.source.table
            self._out[table.oid] -= 1
            self._tables[table.oid].release(failure.request)
            if isinstance(failure.error, TableLocked):
                self._locked.add(table.oid)
                self._note_lock(table, failure.error)
            else:
                failures.append(failure)
        if not failures:
            self._ask()
        if any(moves.unseen for moves in self._tables.values()):
            self._readers.want_snapshot()
            self._forget()
        return failures

    def _ask(self) -> None:
        """Ask about one table after the other, so that none takes all the room for itself."""
        passed = 0
        while self._readers.has_room and passed < len(self._order):
            oid = self._order[0]
            self._order.rotate(-1)
            if (request := self._request(oid)) is None:
                passed += 1
            else:
                passed = 0
                self._out[oid] += 1
                self._readers.ask(self._sources[oid], request)

    def _request(self, oid: int) -> MoveRequest | None:
        """Return what to ask about a table; one that was locked takes one thread at most."""
        moves = self._tables[oid]
        if not moves.has_reads or (oid in self._locked and self._out[oid]):
            return None
        return moves.request()

    def _forget(self) -> None:
        floors = self._readers.floors()
        if floors is None or floors[0] is self._newest:
            return
        self._newest = floors[0]
        for moves in self._tables.values():
            moves.forget(floors)

    def due(self, until: Lsn) -> tuple[ChunkSource, MoveChunk] | None:
        """Return an answer whose position has been reached; it is placed next."""
        due = self._readers.due(until)
        if due is not None:
            oid = due[0].table.oid
            self._out[oid] -= 1
            self._locked.discard(oid)
        return due

    def place(
        self,
        source: ChunkSource,
        chunk: MoveChunk,
        lsn: Lsn,
        transaction: TransactionState,
    ) -> Iterator[list[Record]]:
        """Yield the records of an answer, at `lsn`."""
        moves = self._tables[source.table.oid]
        route = self._routes[source.table.oid]
        yield from route.publish(moves.place(chunk), lsn, transaction)


def _source(rows: OuterRows) -> ChunkSource:
    masked = any(copy.masked_as for copy in rows.copies)
    return ChunkSource(rows.table, rows.columns, rows.key, masked=masked)
