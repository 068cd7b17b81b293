"""Assembly of raw frames into committed transactions, in commit order. Pure but for the spool."""

from gateway.transactions.assembler import Assembler
from gateway.transactions.events import (
    CommitWithoutRows,
    Event,
    KeepaliveEvent,
    PreparedTransaction,
    RolledBack,
    Series,
    StandaloneMessage,
    Transaction,
)

__all__ = [
    "Assembler",
    "CommitWithoutRows",
    "Event",
    "KeepaliveEvent",
    "PreparedTransaction",
    "RolledBack",
    "Series",
    "StandaloneMessage",
    "Transaction",
]
