"""The simulated server's WAL: what transactions of several sessions have written, in LSN order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final, TypeAlias

__all__ = [
    "Abort",
    "Commit",
    "Item",
    "Note",
    "Prepare",
    "RollBack",
    "Row",
    "SubAbort",
    "Transaction",
    "Wal",
    "WalRecord",
]


@dataclass(eq=False)
class Transaction:
    """A transaction of the source.

    Attributes:
        large: Whether the server streams it while it runs.
        subxid: Its open subtransaction, or None.
        rows: Its rows without those of aborted subtransactions.
    """

    xid: int
    large: bool
    subxid: int | None = None
    gid: str | None = None
    rows: list[Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A row that was inserted; `value` is unique. `xid` is that of the (sub)transaction."""

    lsn: int
    end: int
    transaction: Transaction
    xid: int
    value: int


@dataclass(frozen=True, slots=True, eq=False)
class SubAbort:
    """ROLLBACK TO SAVEPOINT."""

    lsn: int
    end: int
    transaction: Transaction
    xid: int


@dataclass(frozen=True, slots=True, eq=False)
class Abort:
    """ROLLBACK."""

    lsn: int
    end: int
    transaction: Transaction


@dataclass(frozen=True, slots=True, eq=False)
class Prepare:
    """PREPARE TRANSACTION."""

    lsn: int
    end: int
    transaction: Transaction
    time: int


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """COMMIT, or COMMIT PREPARED where the transaction has a gid."""

    lsn: int
    end: int
    transaction: Transaction
    time: int


@dataclass(frozen=True, slots=True, eq=False)
class RollBack:
    """ROLLBACK PREPARED of the transaction that was prepared by `prepare`."""

    lsn: int
    end: int
    transaction: Transaction
    prepare: Prepare


@dataclass(frozen=True, slots=True, eq=False)
class Note:
    """A non-transactional logical message, or WAL of another database if it has no content."""

    lsn: int
    end: int
    content: bytes


WalRecord: TypeAlias = Row | SubAbort | Abort | Prepare | Commit | RollBack | Note

Item: TypeAlias = tuple[str, int, tuple[int, ...]]
"""Item that a reader of Kafka gets for a WAL record: its kind, xid or LSN, and values."""

_FIRST_LSN: Final = 1000


class Wal:
    """WAL of one server, which its sessions append to.

    Attributes:
        records: All records, in LSN order.
        end: LSN after the last of them.
        running: Transactions that have not ended, without prepared ones.
        prepared: Transactions that are prepared and not resolved.
    """

    def __init__(self) -> None:
        self.records: list[WalRecord] = []
        self.end = _FIRST_LSN
        self.running: list[Transaction] = []
        self.prepared: list[Prepare] = []
        self._next_xid = 700
        self._values = count(1)
        self._gids = 0

    def copy(self) -> Wal:
        """Return the WAL of a backup: what is running is lost with the server's memory."""
        twin = Wal()
        twin.records, twin.end = list(self.records), self.end
        twin.prepared = list(self.prepared)
        twin._next_xid, twin._gids = self._next_xid, self._gids
        # Its rows are others even where its LSNs and xids are the same.
        twin._values = self._values
        return twin

    def crash(self) -> None:
        """End what is running, as a crash of the server does: without a record."""
        self.running.clear()

    def write(self, random: Random, now: int, *, finish: bool = False) -> None:
        """Let a session take one step; with `finish`, one that ends what is open."""
        if finish:
            self._finish(random, now)
            return
        choice = random.random()
        if choice < 0.08:
            self._append(Note(*self._span(random), b"" if random.random() < 0.5 else b"note"))
        elif choice < 0.14 and self.prepared:
            self._resolve(random, now)
        elif choice < 0.5 or not self.running:
            if len(self.running) < 4 and (not self.running or random.random() < 0.4):
                self.running.append(Transaction(self._xid(), random.random() < 0.3))
            self._row(random, random.choice(self.running))
        elif choice < 0.6:
            self._savepoint(random, random.choice(self.running))
        else:
            self._end(random, now, random.choice(self.running))

    def short_transaction(self, random: Random, now: int) -> None:
        """Commit a transaction of one row at once."""
        transaction = Transaction(self._xid(), False)
        self._row(random, transaction)
        self._append(Commit(*self._span(random), transaction, now))

    def _finish(self, random: Random, now: int) -> None:
        if self.running:
            self._end(random, now, self.running[0], prepare=False)
        elif self.prepared:
            self._resolve(random, now)

    def _row(self, random: Random, transaction: Transaction) -> None:
        xid = transaction.xid if transaction.subxid is None else transaction.subxid
        row = Row(*self._span(random), transaction, xid, next(self._values))
        transaction.rows.append(row)
        self._append(row)

    def _savepoint(self, random: Random, transaction: Transaction) -> None:
        if transaction.subxid is None:
            transaction.subxid = self._xid()
            self._row(random, transaction)
        elif random.random() < 0.5:
            xid, transaction.subxid = transaction.subxid, None
            transaction.rows = [row for row in transaction.rows if row.xid != xid]
            self._append(SubAbort(*self._span(random), transaction, xid))
        else:
            transaction.subxid = None

    def _end(
        self, random: Random, now: int, transaction: Transaction, *, prepare: bool = True
    ) -> None:
        self.running.remove(transaction)
        choice = random.random()
        if choice < 0.15:
            self._append(Abort(*self._span(random), transaction))
        elif choice < 0.35 and prepare and transaction.rows:
            # A gid is free again once it is resolved.
            self._gids += 1
            transaction.gid = f"g{self._gids % 3}"
            if any(p.transaction.gid == transaction.gid for p in self.prepared):
                transaction.gid = f"h{self._gids}"
            record = Prepare(*self._span(random), transaction, now)
            self.prepared.append(record)
            self._append(record)
        else:
            self._append(Commit(*self._span(random), transaction, now))

    def _resolve(self, random: Random, now: int) -> None:
        prepare = self.prepared.pop(random.randrange(len(self.prepared)))
        span = self._span(random)
        if random.random() < 0.6:
            self._append(Commit(*span, prepare.transaction, now))
        else:
            self._append(RollBack(*span, prepare.transaction, prepare))

    def _append(self, record: WalRecord) -> None:
        self.records.append(record)
        self.end = record.end

    def _span(self, random: Random) -> tuple[int, int]:
        """Return where a record begins and ends; a page header may lie before it."""
        start = self.end + (24 if random.random() < 0.1 else 0)
        return start, start + random.choice((8, 40, 104))

    def _xid(self) -> int:
        self._next_xid += 1
        return self._next_xid

    def items(self, since: int) -> Iterator[tuple[int, int, Item]]:
        """Yield what Kafka must have of the records from `since` on: begin, end, and the item."""
        for record in self.records:
            if record.lsn < since:
                continue
            match record:
                case Commit(transaction=transaction) if transaction.rows:
                    values = tuple(row.value for row in transaction.rows)
                    yield record.lsn, record.end, ("COMMIT", transaction.xid, values)
                case Prepare(transaction=transaction):
                    yield record.lsn, record.end, ("PREPARE", transaction.xid, ())
                case RollBack(transaction=transaction):
                    yield record.lsn, record.end, ("ROLLBACK", transaction.xid, ())
                case Note(content=content) if content:
                    yield record.lsn, record.lsn + 1, ("NOTE", record.lsn, ())
