"""Filling of batches: routes queued transactions, and places rows of copies between them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final

from gateway.core.lsn import Lsn
from gateway.core.records import Record
from gateway.observe import Counters, event, report_ignored, report_quarantined
from gateway.runtime.loop.group_commit import GroupCommit
from gateway.runtime.loop.transaction_queue import TransactionQueue, end_of
from gateway.runtime.ports import Copier, TransactionRouter
from gateway.transactions import StandaloneMessage, Transaction

__all__ = ["BatchFiller"]

_LOG: Final = logging.getLogger(__name__)
_MOST_S: Final = 0.5
"""Duration of a call after which no other piece is begun."""


class BatchFiller:
    """Moves records from `queue` and `copier` to `commits`, a piece at a time.

    A transaction without a record can take long: a DDL message makes the router read the catalog.
    A full queue of them would keep the loop from committing for minutes.
    """

    def __init__(
        self,
        queue: TransactionQueue,
        router: TransactionRouter,
        commits: GroupCommit,
        counters: Counters,
        copier: Copier | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._router = router
        self._commits = commits
        self._counters = counters
        self._copier = copier
        self._clock = clock
        self._routing: Iterator[list[Record]] | None = None
        self._ahead: list[Record] | None = None  # its next piece, where that has been asked for
        self._routed: Transaction | None = None
        self._placing: Iterator[list[Record]] | None = None
        self._copies_wait = False  # for room in the batch, if there are any

    @property
    def routing(self) -> bool:
        """Whether a transaction is being routed."""
        return self._routing is not None

    @property
    def placing(self) -> bool:
        """Whether rows of a copy are going out."""
        return self._placing is not None

    @property
    def commit_time(self) -> int | None:
        """Commit time of the transaction that is being routed; None between transactions."""
        return None if self._routed is None else self._routed.commit_time

    def fill(self, enough: int, received_lsn: Lsn, *, draining: bool) -> bool:
        """Add records until the batch is full or has `enough`, or there is nothing to route.

        It stops after a while in any case.

        Args:
            enough: Number of records in the batch.
            received_lsn: LSN before which every commit has been received.
            draining: Whether no more rows of copies are placed.

        Returns:
            Whether it stopped because all rows of a placement have gone out.
        """
        stop_at = self._clock() + _MOST_S
        while not self._commits.is_full and self._clock() < stop_at:
            if self._placing is None and self._routing is None and not draining:
                self._place(received_lsn)
            if self._placing is not None:
                records = next(self._placing, None)
                if records is None:
                    self._placing = None
                    return True
                self._commits.add_copied(records)
                if not records:
                    return False  # sets are being built, which takes time
            elif not self._route():
                return False
            if self._commits.records >= enough:
                return False
        return False

    def has_work(self, *, draining: bool) -> bool:
        """Whether `fill` has something to do now."""
        routable = self.routing or bool(self._queue)
        routable = routable and self._router.awaits is None
        if (routable or self.placing) and not self._commits.is_full:
            return True
        return self._copies_wait and self.accepts_copies(draining=draining)

    def accepts_copies(self, *, draining: bool) -> bool:
        """Whether the copier is asked now; its edge must not be waited for when it is not."""
        free = not (draining or self.routing or self.placing or self._commits.is_full)
        return free and self._commits.room_for_copies > 0

    def _place(self, received_lsn: Lsn) -> None:
        """Begin with rows of a copy whose place is here: after what is routed, before the queue."""
        if self._copier is None:
            return
        room = self._commits.room_for_copies
        self._copies_wait = room <= 0
        if self._copies_wait:
            return
        until = self._queue.next_lsn or received_lsn
        placement = self._copier.place(self._commits.routed_lsn, until, room)
        if placement is not None:
            self._placing = placement.records
            self._commits.reach(placement.lsn)

    def _route(self) -> bool:
        """Add a piece of the next transaction; return whether there was anything to route now."""
        if self._routing is None:
            if not self._queue:
                return False
            if self._route_series():
                return True
            item = self._queue.pop()
            if not isinstance(item, Transaction):
                if isinstance(item, StandaloneMessage):
                    self._commits.add(self._router.route_standalone(item))
                else:
                    self._commits.add(self._router.mark(item))
                self._commits.reach(end_of(item))
                return True
            self._routed = item
            self._commits.begin(item)
            self._routing = self._router.route(item)
        records = self._ahead or next(self._routing, None)
        self._ahead = None
        if records is None:
            self._finish_transaction()
            return True
        if self._router.awaits is not None:
            self._commits.add([], whole=False)  # sets are those of its end by now
            return False
        self._commits.add(records, whole=False)
        self._look_ahead(self._routing)
        return True

    def _route_series(self) -> bool:
        """Route a series of short transactions at once, unless rows of copies may come between."""
        series = self._queue.series
        if series is None or (self._copier is not None and self._copier.unfinished):
            return False
        commit_time = series.commit_time
        routed = self._router.route_series(series, self._commits.room)
        if routed is None:
            return False
        self._queue.settle(series)
        self._commits.add_series(routed, commit_time)
        self._count(routed.transactions)
        return True

    def _look_ahead(self, routing: Iterator[list[Record]]) -> None:
        """Finish the transaction when a full batch ends with its last piece.

        A batch is committed when it is whole. A full one would otherwise never be that while more
        waits, and Kafka's transaction would go on, and be kept for sending it again, as long as the
        stream has something to give.
        """
        if not self._commits.is_full:
            return
        self._ahead = next(routing, None)
        if self._ahead is None:
            self._finish_transaction()

    def _finish_transaction(self) -> None:
        assert self._routed is not None
        self._commits.finish(self._routed)
        self._routed.release()
        self._routing = self._routed = None
        self._count(1)

    def _count(self, transactions: int) -> None:
        """Count transactions, and report their lost values and quarantined changes."""
        self._counters.transactions += transactions
        for table, rows in self._router.pop_lost_values().items():
            self._counters.lost_values += rows
            event(
                _LOG,
                logging.WARNING,
                "rows entered a filter without their large values, which are NULL downstream as "
                "in a native subscription; REPLICA IDENTITY FULL keeps them",
                relation=table,
                rows=rows,
            )
        report_quarantined(_LOG, self._counters, self._router.pop_quarantined())
        report_ignored(_LOG, self._counters, self._router.pop_ignored())
