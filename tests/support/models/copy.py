"""A model of a source server: transactions, what snapshots see of them, and the log of commits."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gateway.copy import Snapshot
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.rowfilter import fill_unchanged

Row = tuple[ColumnValue, ...]  # key, a number, a value that may be TOASTed
Op = tuple[str, Row | None, Row | None]  # i, u, d, t; old row with its key, new row
FIRST_XID = (1 << 32) - 3  # so that the 32 bits of the stream start again


def line(row: Row) -> bytes:
    """The line that COPY writes of a row."""
    texts = [b"\\N" if value is None else value for value in row]
    assert all(isinstance(text, bytes) for text in texts)
    return b"\t".join(text for text in texts if isinstance(text, bytes)) + b"\n"


def number(row: Row) -> int:
    assert isinstance(row[0], bytes)
    return int(row[0])


@dataclass
class Transaction:
    xid: int
    ops: list[Op]
    commit_lsn: int = 0


class Server:
    """Rows by key; `log` is what the stream has, in commit order."""

    def __init__(self, random: Random, *, full: bool) -> None:
        self.random = random
        self.keys = random.randint(3, 12)
        self.full = full
        self.next_xid = FIRST_XID
        self.base: dict[int, Row] = {
            key: (b"%d" % key, b"0", b"big %d" % key) for key in range(0, self.keys, 2)
        }
        self.running: list[Transaction] = []
        self.log: list[Transaction] = []
        self.hidden: set[int] = set()  # committed, and not yet visible
        self.rows: dict[int, Row] = dict(self.base)
        self.written = 0

    def locked(self) -> set[int]:
        """Keys that a transaction that has not ended has touched."""
        open_ = [*self.running, *(t for t in self.log if t.xid in self.hidden)]
        touched = {number(row) for t in open_ for _, *rows in t.ops for row in rows if row}
        truncated = any(op == "t" for t in open_ for op, *_ in t.ops)
        return set(range(self.keys)) if truncated else touched

    def begin(self) -> None:
        """A transaction that changes one to three rows nobody else is changing."""
        transaction = Transaction(self.next_xid, [])
        self.next_xid += 1
        locked = self.locked()
        state = {key: row for key, row in self.rows.items() if key not in locked}
        free = [key for key in range(self.keys) if key not in locked and key not in self.rows]
        if not locked and self.random.random() < 0.1:
            transaction.ops.append(("t", None, None))
            free, state = list(range(self.keys)), {}
        for _ in range(self.random.randint(1, 3)):
            self.change(transaction, state, free)
        self.running.append(transaction)

    def change(self, transaction: Transaction, state: dict[int, Row], free: list[int]) -> None:
        self.written += 1
        kind = self.random.choice("iuudkkk")
        value = b"%d" % self.written
        if kind == "i" and free:
            key = free.pop(self.random.randrange(len(free)))
            state[key] = (b"%d" % key, value, b"big " + value)
            transaction.ops.append(("i", None, state[key]))
        elif kind in "udk" and state:
            key = self.random.choice(list(state))
            row = state.pop(key)
            old = row if self.full else (row[0], None, None)
            if kind == "d":
                free.append(key)
                transaction.ops.append(("d", old, None))
                return
            if kind == "k" and free:
                free.append(key)
                key = free.pop(self.random.randrange(len(free) - 1))
            large = row[2] if self.random.random() < 0.7 else b"big " + value
            state[key] = (b"%d" % key, value, large)
            sent = (b"%d" % key, value, UNCHANGED if large == row[2] else large)
            moved = self.full or row[0] != sent[0]
            transaction.ops.append(("u", old if moved else None, sent))

    def commit(self) -> None:
        if self.running:
            transaction = self.running.pop(self.random.randrange(len(self.running)))
            transaction.commit_lsn = 10 * (len(self.log) + 1)
            self.log.append(transaction)
            self.hidden.add(transaction.xid)
            apply(self.rows, transaction)
            if self.random.random() < 0.6:
                self.hidden.discard(transaction.xid)

    def appear(self) -> None:
        if self.hidden:
            self.hidden.discard(self.random.choice(sorted(self.hidden)))

    @property
    def insert_lsn(self) -> int:
        return 10 * (len(self.log) + 1)

    def snapshot(self) -> tuple[Snapshot, dict[int, Row]]:
        running = {*(t.xid for t in self.running), *self.hidden}
        low = min(running, default=self.next_xid)
        text = f"{low}:{self.next_xid}:{','.join(map(str, sorted(running)))}"
        state = dict(self.base)
        for transaction in self.log:
            if transaction.xid not in self.hidden:
                apply(state, transaction)
        return Snapshot.parse(text), state


def apply(state: dict[int, Row], transaction: Transaction) -> None:
    for op, old, new in transaction.ops:
        if op == "t":
            state.clear()
            continue
        before = state.pop(number(old or new or ())) if op != "i" else None
        if new is not None:
            state[number(new)] = new if before is None else tuple(fill_unchanged(before, new))
