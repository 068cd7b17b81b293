"""Queue of complete transactions waiting to be routed, in commit order."""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from gateway.core.lsn import Lsn
from gateway.transactions import (
    PreparedTransaction,
    RolledBack,
    Series,
    StandaloneMessage,
    Transaction,
)

__all__ = ["Item", "TransactionQueue", "end_of", "position_of"]

Item: TypeAlias = Transaction | StandaloneMessage | PreparedTransaction | RolledBack


class TransactionQueue:
    """First in, first out.

    Attributes:
        memory: Number of bytes that wait in memory.
    """

    def __init__(self) -> None:
        self._items: deque[Item | Series] = deque()
        self.memory = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    def __len__(self) -> int:
        return sum(len(item) if isinstance(item, Series) else 1 for item in self._items)

    @property
    def series(self) -> Series | None:
        """The series that is next, or None; call `settle` after routing part of it."""
        item = self._items[0] if self._items else None
        return item if isinstance(item, Series) else None

    @property
    def next_lsn(self) -> Lsn | None:
        """LSN before which every commit has been popped; None if the queue is empty."""
        return position_of(self._items[0]) if self._items else None

    @property
    def oldest(self) -> int | None:
        """Commit time, at the source, of the first transaction that waits."""
        waiting = (item for item in self._items if isinstance(item, Transaction | Series))
        return next((item.commit_time for item in waiting), None)

    def append(self, item: Item | Series) -> None:
        """Append the next item of the stream."""
        self._items.append(item)
        match item:
            case Transaction() | Series():
                self.memory += item.memory

    def pop(self) -> Item:
        """Remove and return the item that is routed next."""
        item = self._items[0]
        if isinstance(item, Series):
            transaction = item.pop()
            self.settle(item)
            return transaction
        self._items.popleft()
        if isinstance(item, Transaction):
            self.memory -= item.memory
        return item

    def settle(self, series: Series) -> None:
        """Remove the series that is next if nothing of it is left."""
        if not series:
            self._items.popleft()
            self.memory -= series.memory

    def drop_after(self, lsn: Lsn) -> bool:
        """Remove the items that end after `lsn`; return whether there were any."""
        kept: list[Item] = []
        dropped = False
        while self._items:
            item = self.pop()
            if end_of(item) <= lsn:
                kept.append(item)
                continue
            dropped = True
            if isinstance(item, Transaction):
                item.release()
        for item in kept:
            self.append(item)
        return dropped


def end_of(item: Item | Series) -> Lsn:
    """Return the end LSN; the byte after its position serves as that of a standalone message."""
    return Lsn(item.message.lsn + 1) if isinstance(item, StandaloneMessage) else item.end_lsn


def position_of(item: Item | Series) -> Lsn:
    """Return the LSN before which everything ahead of `item` in the stream commits."""
    match item:
        case Transaction() | Series():
            return item.commit_lsn
        case StandaloneMessage():
            return item.message.lsn
        case PreparedTransaction():
            return item.prepare_lsn
        case RolledBack():
            return item.prepare_end_lsn
