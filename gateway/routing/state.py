"""What the records of one transaction share while it is routed."""

from __future__ import annotations

from collections import Counter

from gateway.envelope.envelope import TransactionContext
from gateway.envelope.headers import HeaderMaker
from gateway.errors import UnfitKind

__all__ = ["CollectionOrder", "TransactionState"]


class TransactionState:
    """What the records of one transaction share, and its counters.

    Attributes:
        lost_values: Rows per table of which a value was neither in the stream nor in the old tuple.
        quarantined: Records for the error topic, per table and kind.
    """

    __slots__ = (
        "context",
        "has_origin",
        "headers",
        "insert_op",
        "lost_values",
        "quarantined",
        "seq",
        "total_order",
    )

    def __init__(self, context: TransactionContext, headers: HeaderMaker) -> None:
        self.context = context
        self.headers = headers
        self.has_origin = context.origin is not None
        self.insert_op = b"c" if context.snapshot == "false" else b"r"
        self.seq = 0
        self.total_order = 0
        self.lost_values: dict[str, int] = {}
        self.quarantined: Counter[tuple[str, UnfitKind]] = Counter()


class CollectionOrder:
    """``data_collection_order`` of one published table within the transaction.

    Attributes:
        before: Row changes in transactions before this one.
    """

    __slots__ = ("before", "count", "transaction")

    def __init__(self) -> None:
        self.transaction: TransactionState | None = None
        self.count = 0
        self.before = 0

    def advance(self, transaction: TransactionState) -> None:
        """Count one more change of the table."""
        if self.transaction is not transaction:
            self.transaction = transaction
            self.before += self.count
            self.count = 0
        self.count += 1

    def truncate(self, transaction: TransactionState) -> None:
        """Count a TRUNCATE, which has its number and is no row."""
        self.advance(transaction)
        self.before -= 1

    @property
    def rows(self) -> int:
        """Row changes in all."""
        return self.before + self.count
