"""A model of a source with three tables: transactions, their log, and what snapshots see of them.

Transactions commit one after the other and become visible in another order, as far as row locks let
them. Columns that decide are in the replica identity; `doc` may be TOASTed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from random import Random

from gateway.copy import Snapshot
from gateway.pgoutput.messages import UNCHANGED, ColumnValue
from gateway.subselects.formula import Plain, Value
from tests.support.models.subselect_tables import (
    CITIES,
    COLUMNS,
    CUSTOMERS,
    ORDERS,
    Change,
    Tables,
    draw_row,
)
from tests.support.models.subselects import Row

NAMES = COLUMNS[ORDERS]
DOC = NAMES.index("doc")
FIRST_XID = (1 << 32) - 3  # so that the 32 bits of the stream start again
TupleRow = tuple[ColumnValue, ...]


@dataclass(frozen=True)
class OrderView:
    """A row of the outer table as filters see it."""

    row: Sequence[ColumnValue]

    def plain(self, plain: Plain) -> bool:
        return self.row[NAMES.index(plain.text)] == b"t"

    def text(self, column: str) -> bytes | None:
        return self.value((column,))[0]

    def value(self, columns: tuple[str, ...]) -> Value:
        found = [self.row[NAMES.index(column)] for column in columns]
        assert UNCHANGED not in found
        return tuple(value for value in found if value is None or isinstance(value, bytes))


def as_tuple(row: Row) -> TupleRow:
    return tuple(row[name] for name in NAMES)


@dataclass
class Transaction:
    xid: int
    changes: list[Change] = field(default_factory=list)


class Source:
    """All three tables; `log` is what the stream has.

    Attributes:
        full: Whether old rows are logged in full.
        key: Positions of the key's columns, which are not NULL, in a row of orders.
        standby: Whether snapshots are those of a standby, which do not name what runs.
    """

    def __init__(
        self, random: Random, key: Collection[int], *, full: bool, standby: bool = False
    ) -> None:
        self.random = random
        self.full = full
        self.key = key
        self.standby = standby
        self.values = random.randint(1, 3)  # few: slices of many rows
        self.tables = Tables.draw(random, self.values)
        orders = self.tables.rows[ORDERS]
        # Mostly changes of orders, or of what decides about them.
        inner = random.randint(1, 3)
        self.often = (*(CITIES, CUSTOMERS) * inner, *(ORDERS,) * 3)
        self.tables.rows[ORDERS] = {number: self._keyed(row) for number, row in orders.items()}
        self.start = {table: dict(rows) for table, rows in self.tables.rows.items()}
        self.log: list[Transaction] = []
        self.hidden: set[int] = set()
        self.next_xid = FIRST_XID

    def commit(self) -> None:
        """One transaction of one to three changes to rows that nobody else holds."""
        locked = self._locked()
        transaction = Transaction(self.next_xid)
        self.next_xid += 1
        for _ in range(self.random.randint(1, 3)):
            table = self.random.choice(self.often)
            is_locked = any(table == held for held, _ in locked)
            if self.random.random() < 0.03 and not is_locked:
                self.tables.rows[table].clear()
                transaction.changes.append(Change(table, None, None))
                continue
            numbers = range(7 if table == ORDERS else 3)
            keys = [key for key in numbers if not {(table, key), (table, None)} & locked]
            if keys:
                transaction.changes.append(self._change(table, self.random.choice(keys), locked))
        self.log.append(transaction)
        if self.random.random() < 0.5:
            self.hidden.add(transaction.xid)

    def _change(self, table: int, key: int, locked: set[tuple[int, int | None]]) -> Change:
        random, rows = self.random, self.tables.rows[table]
        old = rows.pop(key, None)
        if old is not None and random.random() < 0.2:
            return Change(table, old, None)
        new = dict(draw_row(random, table, key, self.values))
        if table == ORDERS and old is not None:
            for name in NAMES[1:]:
                if random.random() < (0.7 if name == "doc" else 0.4):
                    new[name] = old[name]
            free = [k for k in range(7) if k not in rows and k != key and (table, k) not in locked]
            if free and random.random() < 0.25:
                key = random.choice(free)
                new["id"] = b"%d" % key
        rows[key] = self._keyed(new) if table == ORDERS else new
        return Change(table, old, rows[key])

    def _keyed(self, row: Row) -> Row:
        return {
            name: b"0" if value is None and number in self.key else value
            for number, (name, value) in enumerate(row.items())
        }

    def _locked(self) -> set[tuple[int, int | None]]:
        """Rows that a transaction has changed which is not visible yet; None for a whole table."""
        found: set[tuple[int, int | None]] = set()
        for transaction in self.log:
            if transaction.xid in self.hidden:
                for table, old, new in transaction.changes:
                    rows = [row for row in (old, new) if row is not None]
                    found |= {(table, self._number(table, row)) for row in rows} or {(table, None)}
        return found

    def _number(self, table: int, row: Row) -> int | None:
        if table != ORDERS:
            return None  # inner rows are read by nobody here: their table is held
        assert row["id"] is not None
        return int(row["id"])

    def appear(self) -> None:
        """One transaction becomes visible."""
        if self.hidden:
            self.hidden.discard(self.random.choice(sorted(self.hidden)))

    @property
    def insert_lsn(self) -> int:
        return len(self.log)

    def snapshot(self) -> tuple[Snapshot, dict[int, dict[int, Row]]]:
        """A snapshot, and the rows of each table that it sees."""
        low = min(self.hidden, default=self.next_xid)
        text = f"{low}:{self.next_xid}:{','.join(map(str, sorted(self.hidden)))}"
        found = Snapshot.parse(text, in_recovery=self.standby)
        return found, self.rows_at(len(self.log), self.hidden)

    def rows_at(self, position: int, without: Collection[int] = ()) -> dict[int, dict[int, Row]]:
        """Rows of all tables at a position; those of inner tables have other numbers there."""
        found = {table: dict(rows) for table, rows in self.start.items()}
        for transaction in self.log[:position]:
            if transaction.xid in without:
                continue
            for table, old, new in transaction.changes:
                rows = found[table]
                if old is None and new is None:
                    rows.clear()
                    continue
                if old is not None:
                    del rows[next(number for number, row in rows.items() if row == old)]
                if new is not None:
                    number = int(new["id"] or 0) if table == ORDERS else max(rows, default=0) + 1
                    rows[number] = new
        return found

    def logged(self, change: Change) -> tuple[str, TupleRow | None, TupleRow | None]:
        """A change of orders as the stream has it: i, u, d or t, the old and the new row."""
        old = None if change.old is None else as_tuple(change.old)
        new = None if change.new is None else as_tuple(change.new)
        if new is None:
            if old is None:
                return "t", None, None
            return "d", old if self.full else (*old[:DOC], None), None
        if old is None:
            return "i", None, new
        sent = (*new[:DOC], UNCHANGED if new[DOC] == old[DOC] else new[DOC])
        if self.full:
            return "u", old, sent
        return "u", None if new[:DOC] == old[:DOC] else (*old[:DOC], None), sent
