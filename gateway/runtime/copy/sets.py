"""Sets of sub-selects while the stream goes on: their tables are read, and what was read is placed.

The thread that reads is in `gateway.runtime.copy.set_reads`; `gateway.subselects.following` decides
which tables are read, and what the sets are then. A table whose owner makes another read necessary
again and again is read less and less often; the others do not wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from gateway.copy import Chunk, row_of
from gateway.core.background import OnWait
from gateway.core.lsn import Lsn, format_lsn
from gateway.observe import event
from gateway.routing.build.followed_tables import FollowedTables, InnerTable
from gateway.routing.build.relation_routes import RelationRoutes
from gateway.runtime.copy.pauses import Pauses
from gateway.runtime.copy.set_reads import SetReads
from gateway.source.copy.chunk_reader import ChunkReader
from gateway.source.copy.errors import TableUnreadable

__all__ = ["Sets"]

_LOG: Final = logging.getLogger(__name__)
_DISAGREES: Final = "a table of sub-selects is read again: it has lost rows that its sets lack"


class Sets:
    """Sets of all inner tables, for the loop.

    Args:
        followed: Inner tables and what is known of them.
        routes: Routes of the plan.
        open_reader: Opens a connection; its argument is called during waits.
        wake: Wakes the loop.
        retry_s: Pause before a connection is opened again.
        again_s: First pause before a table is read once more.
    """

    def __init__(
        self,
        followed: FollowedTables,
        routes: RelationRoutes,
        *,
        open_reader: Callable[[OnWait], ChunkReader],
        wake: Callable[[], None],
        retry_s: float,
        again_s: float,
    ) -> None:
        self._followed = followed
        self._following = followed.following
        self._routes = routes
        self._reads = SetReads(open_reader=open_reader, wake=wake, retry_s=retry_s)
        self._pauses = Pauses(again_s)

    def start(self) -> None:
        """Read all tables of sets that are not built or stale."""
        self._read(self._following.unread.begin_reads())

    def close(self) -> None:
        """Stop the thread, and wait until it has ended."""
        self._reads.close()

    @property
    def unfinished(self) -> bool:
        """Whether tables are still to be read."""
        return bool(self._following.unread.tables)

    @property
    def altered(self) -> bool:
        """Whether a table has changed since the plan was made."""
        return self._reads.altered

    def awaited(self) -> Lsn | None:
        """Return the position of what waits to be placed."""
        return self._reads.awaited()

    def go_on(self) -> list[tuple[InnerTable, TableUnreadable]]:
        """Let stale tables be read, and forget changes that all reads to come see.

        Returns:
            Tables that cannot be read, with the errors.
        """
        for oid in self._following.pop_disagreed():
            event(_LOG, logging.WARNING, _DISAGREES, relation=self._followed.inner[oid].table)
        if (seen := self._reads.pop_snapshot()) is not None:
            self._following.forget(seen)
        if awaiting := self._following.unread.awaiting:
            self._read(
                oid
                for oid in awaiting
                if not self._reads.is_reading(oid) and self._pauses.is_over(oid)
            )
        unreadable = []
        while self._reads.unreadable:
            unreadable.append(self._reads.unreadable.pop())
        return unreadable

    def _read(self, oids: Iterable[int]) -> None:
        if found := sorted(oids):
            for oid in found:
                self._following.unread.begin_read(oid)
                self._pauses.begin(oid)
            self._reads.read(self._followed.inner[oid] for oid in found)

    def due(self, until: Lsn) -> tuple[InnerTable, Chunk] | None:
        """Return what is placed now; a read that cannot be placed is made again."""
        read = self._reads.due(until)
        if read is None or self._following.may_place(read[0].table.oid, read[1].snapshot):
            return read
        self._following.unread.void_reads(read[0].table.oid)
        self._end(read[0].table.oid)
        return None

    def place(self, inner: InnerTable, chunk: Chunk, lsn: Lsn) -> Iterator[None]:
        """Build the sets of a table, at `lsn`; exhaust it before anything else happens to them."""
        oid = inner.table.oid
        views = (inner.views.of(row_of(row)) for row in chunk.rows)
        yield from self._following.place_table(oid, chunk.snapshot, views)
        with self._routes.by_oid.answering():
            self._following.finish_table(oid)
        self._end(oid)
        if not self._following.unread.awaits(oid):
            event(
                _LOG,
                logging.INFO,
                "sets of sub-selects built",
                relation=inner.table,
                sets=len(inner.subselects),
                lsn=format_lsn(lsn),
            )

    def _end(self, oid: int) -> None:
        self._reads.placed()
        self._pauses.end(oid)
