"""Admission of transactions: which are routed, and which LSN may be confirmed.

Nothing is routed that Kafka has already, and nothing that ends after the loop's end. Whether Kafka
has a transaction is decided at the commit, by its end; the slot sends some again after a restart.
"""

from __future__ import annotations

from enum import Enum

from gateway.core.lsn import Lsn
from gateway.core.watermark import Watermark
from gateway.runtime.loop.history_check import HistoryCheck
from gateway.runtime.loop.transaction_queue import Item, end_of
from gateway.transactions import (
    CommitWithoutRows,
    PreparedTransaction,
    RolledBack,
    Series,
    StandaloneMessage,
    Transaction,
)
from gateway.transactions.holds import PrepareHolds

__all__ = ["Admission", "Disposition"]


class Disposition(Enum):
    """Treatment of an event of the stream."""

    QUEUE = "to be routed"
    KNOWN = "in Kafka already; only the relations that it announces are new"
    BEYOND = "ends after the loop's end"
    SPLIT = "a series whose transactions are judged one by one"


class Admission:
    """Admission of the events of one stream, from its beginning.

    Args:
        watermark: Watermark in Kafka; a stream that does not continue its history is refused.
        confirmed_lsn: The slot's position at the stream's start; None: the slot is new.

    Attributes:
        received_lsn: Everything that commits before it has been received.
    """

    def __init__(self, watermark: Watermark, confirmed_lsn: Lsn | None) -> None:
        self._history = HistoryCheck(watermark, confirmed_lsn)
        self._holds = PrepareHolds()
        self._started_at = self.received_lsn = watermark.end_lsn

    def judge(self, event: Item | Series, limit: Lsn | None) -> Disposition:
        """Return what is done with the next event of the stream.

        Args:
            event: An event that is no keepalive.
            limit: LSN where the loop ends, or None.

        Raises:
            SlotError: the stream does not continue what Kafka has.
            FatalError: the rows of a transaction that Kafka does not have are not sent again.
        """
        end_lsn = end_of(event)
        beyond = limit is not None and end_lsn > limit
        match event:
            case Series():
                # Its first transaction stands for all where none needs a decision of its own.
                begins_at = event.commit_lsn
                if (
                    beyond
                    or begins_at <= self._started_at
                    or not self._history.begins_after(begins_at)
                ):
                    return Disposition.SPLIT
                self.advance(end_lsn)
            case Transaction():
                self._history.check(event)
                self.received_lsn = max(self.received_lsn, end_lsn)
                if event.gid is not None:
                    self._holds.commit(event.gid, event.xid, event.end_lsn)
            case PreparedTransaction():
                self._history.reach(end_lsn)
                self._holds.prepare(event.gid, event.xid, event.prepare_lsn)
            case RolledBack():
                self._history.reach(end_lsn)
                self._holds.roll_back(event.gid, event.xid)
            case StandaloneMessage():
                self._history.reach(event.message.lsn)
        if beyond:
            return Disposition.BEYOND
        if end_lsn <= self._started_at:
            return Disposition.KNOWN
        if isinstance(event, CommitWithoutRows):
            raise event.error()
        return Disposition.QUEUE

    def advance(self, lsn: Lsn) -> None:
        """Note that everything that ends at or before `lsn` has been received.

        Raises:
            SlotError: as `judge`.
        """
        self._history.reach(lsn)
        self.received_lsn = max(self.received_lsn, lsn)

    def flush_lsn(self, durable: Lsn) -> Lsn:
        """Return the LSN until which everything that this server has sent is in Kafka.

        Args:
            durable: Everything that ends at or before it is in Kafka.
        """
        return min(self._holds.flush_lsn(durable), self._history.reached_lsn)
