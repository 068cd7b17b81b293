"""State shared by the records of one transaction while it is routed."""

from __future__ import annotations

from gateway._speedups.layouts import Shared
from gateway.core.errors import UnfitKind
from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.routing.row.counters import TopicCounter
from gateway.subselects.following import FollowedTransaction

__all__ = ["CollectionOrder", "TransactionState"]


class TransactionState:
    """Values shared by the records of one transaction, and its counters.

    Attributes:
        insert_op: Operation of an inserted row: ``c``, or ``r`` for the rows of a copy.
        large: Whether the frame of the current change is so large that single values are checked.
        seq: Number of the last change, see `gateway.routing.row.relation_route`.
        total_order: Number of changes so far, as `seq`, with one for each UPDATE.
        lost_values: Number of rows, by table, with a value that was neither sent nor in the old
            tuple.
        quarantined: Number of records for the error topic, by table and kind.
        touched: Counters of the topics of its records; some may be repeated or have no records.
        followed: Its effect on sets of sub-selects; None if no filter has one.
    """

    __slots__ = (
        "_shared",
        "context",
        "followed",
        "has_origin",
        "headers",
        "insert_op",
        "large",
        "lost_values",
        "quarantined",
        "seq",
        "total_order",
        "touched",
    )

    def __init__(self, context: TransactionContext, headers: HeaderMaker) -> None:
        self.context = context
        self.headers = headers
        self.has_origin = context.origin is not None
        self.insert_op = b"c" if context.snapshot == "false" else b"r"
        self.large = False
        self.seq = 0
        self.total_order = 0
        self.lost_values: dict[str, int] = {}
        self.quarantined: dict[tuple[str, UnfitKind], int] = {}
        self.touched: list[TopicCounter] = []
        self.followed: FollowedTransaction | None = None
        self._shared: Shared | None = None

    @property
    def shared(self) -> Shared:
        """Values shared by all its records, for `gateway.routing.row.native`; requires an xid."""
        if self._shared is None:
            context = self.context
            assert context.xid is not None
            self._shared = Shared(
                context.gateway_part,
                context.xid,
                context.commit_lsn,
                context.commit_ms,
                context.ts_ms,
                None if context.origin is None else context.origin.encode(),
                self.headers.shared,
                self.has_origin,
            )
        return self._shared


class CollectionOrder:
    """``data_collection_order`` of one published table within the transaction.

    Attributes:
        before: Number of row changes in earlier transactions.
    """

    __slots__ = ("before", "count", "transaction")

    def __init__(self) -> None:
        self.transaction: TransactionState | None = None
        self.count = 0
        self.before = 0

    def advance(self, transaction: TransactionState) -> None:
        """Count a change of the table."""
        self.enter(transaction)
        self.count += 1

    def enter(self, transaction: TransactionState) -> None:
        """Restart at 0 if the last count was for another transaction."""
        if self.transaction is not transaction:
            self.transaction = transaction
            self.before += self.count
            self.count = 0

    def add(self, changes: int) -> None:
        """Count changes of finished transactions."""
        self.transaction = None
        self.before += self.count + changes
        self.count = 0

    def truncate(self, transaction: TransactionState) -> None:
        """Count a TRUNCATE, which gets a number but is no row change."""
        self.advance(transaction)
        self.before -= 1

    @property
    def rows(self) -> int:
        """Total number of row changes."""
        return self.before + self.count
