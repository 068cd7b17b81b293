"""The load: one table, and changes of it of which every count is known beforehand.

The counts come from arithmetic on the ids alone, by nothing that the gateway is made of: they are
what the records in Kafka are held against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg

__all__ = ["CHANGES_PER_TRANSACTION", "SELECTED", "Expected", "Load", "Shape", "make_rows"]

SELECTED: Final = 100
"""One id in so many passes the selective filter. 83 has no factor in common with it, so that the
share is the same of the inserts, the updates and the deletes."""

_SEVEN: Final = 7
_TABLE: Final = """
CREATE TABLE orders (
    id bigint, name text, note text, quantity integer, price numeric(10,2),
    changed_at timestamptz, active boolean{more}, PRIMARY KEY ({key})
)
"""

_ROWS: Final = """
INSERT INTO orders
SELECT id, {name}, 'a note of some forty characters, row ' || id, id % 1000,
       (id * 31 % 10000000) / 100.0, timestamptz '2024-01-01 00:00+00' + id * interval '1.037 ms',
       id % 3 <> 0{more}
FROM generate_series({first}, {last}) id
"""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a load is made of.

    Attributes:
        inserts, updates, deletes: Changes of each transaction.
        columns: Of the table; those beyond seven are text.
        regions: How many values the second column has; 0: a name of each row's own. Where there
            are regions, that column is in the key.
        region_rows: So many rows one behind the other are of one region.
        at_once: All changes are inserts of one transaction; the three numbers are 0.
    """

    inserts: int = 83
    updates: int = 12
    deletes: int = 5
    columns: int = _SEVEN
    regions: int = 0
    region_rows: int = 1
    at_once: bool = False

    @property
    def changes(self) -> int:
        """Changes of a transaction."""
        return self.inserts + self.updates + self.deletes

    def region(self, number: int) -> Callable[[int], bool]:
        """Return whether an id is of a region, for each id."""
        return lambda i: (i - 1) // self.region_rows % self.regions == number


CHANGES_PER_TRANSACTION: Final = Shape().changes


def make_rows(connection: psycopg.Connection[Any], rows: int, shape: Shape = Shape()) -> None:
    """Make the table, with ids from 1 to `rows`."""
    extra = range(_SEVEN, shape.columns)
    more, key = "".join(f", c{n} text" for n in extra), "id, name" if shape.regions else "id"
    connection.execute(_TABLE.format(more=more, key=key).encode())
    if rows:
        connection.execute(_insert(shape, "1", str(rows)).encode())


def _insert(shape: Shape, first: str, last: str) -> str:
    name = "'customer number ' || id"
    if shape.regions:
        name = f"'region ' || (id - 1) / {shape.region_rows} % {shape.regions}"
    more = "".join(f", 'value ' || id * {n}" for n in range(_SEVEN, shape.columns))
    return _ROWS.format(name=name, more=more, first=first, last=last)


@dataclass(frozen=True, slots=True)
class Expected:
    """Records that one subscription has to have of the stream, by ``op``."""

    inserts: int
    updates: int
    deletes: int

    @property
    def changes(self) -> int:
        """Row changes."""
        return self.inserts + self.updates + self.deletes

    def by_op(self) -> dict[str, int]:
        """By the header ``op``; each ``d`` has a tombstone behind it, which repeats its headers."""
        counts = {"c": self.inserts, "u": self.updates, "d": 2 * self.deletes}
        return {op: count for op, count in counts.items() if count}


def _position(connection: psycopg.Connection[Any]) -> str:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    assert row is not None
    return str(row[0])


class Load:
    """Transactions of so many inserts, updates and deletes each, by default 83, 12 and 5.

    Transaction n inserts the ids behind those that the one before it has inserted; of these, it
    updates the first and deletes the last ones. Where nothing is inserted, the rows are there from
    the beginning, as if transactions had inserted as many as each changes. Keys never change, so no
    old tuple is sent with an update.

    Attributes:
        early: How many of the transactions, the first tenth, warm up what is measured.

    Args:
        changes: How many; as many as make whole transactions, at least one.
    """

    def __init__(self, changes: int, shape: Shape = Shape()) -> None:
        self.shape = shape
        if shape.at_once:
            self.transactions, self.changes = 1, changes
        else:
            self.transactions = max(1, changes // shape.changes)
            self.changes = self.transactions * shape.changes
        self.early = 0 if shape.at_once else self.transactions // 10
        # Ids that belong to a transaction: what it inserts, or what the next one changes.
        self._step = shape.inserts or shape.updates + shape.deletes

    @property
    def late_changes(self) -> int:
        """The changes of all transactions but the early ones."""
        return self.changes - self.early * self.shape.changes

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Make the table, with the rows that the transactions need."""
        shape = self.shape
        if shape.at_once:
            make_rows(connection, 0, shape)
        elif shape.inserts:
            make_rows(connection, self._step, shape)
        else:
            make_rows(connection, self._step * (self.transactions + 1), shape)

    def write(self, connection: psycopg.Connection[Any]) -> tuple[str, str]:
        """Write all transactions; the positions behind the first `early` and behind the last.

        One more transaction follows the last position, so that whoever reads up to it sees that it
        was passed.
        """
        if self.shape.at_once:
            early = _position(connection)
            connection.execute(_insert(self.shape, "1", str(self.changes)).encode())
            end = _position(connection)
            last = str(self.changes + 1)
            connection.execute(_insert(self.shape, last, last).encode())
        else:
            self._write(connection, 1, self.early)
            early = _position(connection)
            self._write(connection, self.early + 1, self.transactions)
            end = _position(connection)
            self._write(connection, self.transactions + 1, self.transactions + 1)
        return early, end

    def expected(self, passes: Callable[[int], bool]) -> Expected:
        """What a subscription must see whose filter depends on the id alone."""
        shape, step = self.shape, self._step
        if shape.at_once:
            return Expected(sum(passes(i) for i in range(1, self.changes + 1)), 0, 0)
        firsts = [n * step + 1 for n in range(1, self.transactions + 1)]
        before = [first - step for first in firsts]
        return Expected(
            inserts=sum(passes(i) for f in firsts for i in range(f, f + shape.inserts)),
            updates=sum(passes(i) for f in before for i in range(f, f + shape.updates)),
            deletes=sum(passes(i) for f in firsts for i in range(f - shape.deletes, f)),
        )

    def _write(self, connection: psycopg.Connection[Any], first: int, last: int) -> None:
        """Run the transactions `first` to `last` in the server: the client would be slower."""
        shape, step = self.shape, self._step
        statements = []
        if shape.inserts:
            statements.append(_insert(shape, f"n * {step} + 1", f"(n + 1) * {step}"))
        if shape.updates:
            statements.append(
                f"""UPDATE orders SET note = 'changed by transaction ' || n,
                    quantity = quantity + 1, changed_at = changed_at + interval '1 day'
                WHERE id BETWEEN (n - 1) * {step} + 1 AND (n - 1) * {step} + {shape.updates}"""
            )
        if shape.deletes:
            statements.append(
                f"""DELETE FROM orders
                WHERE id BETWEEN n * {step} - {shape.deletes - 1} AND n * {step}"""
            )
        body = "; ".join(statements)
        connection.execute(
            f"""
            DO $$ BEGIN
                FOR n IN {first} .. {last} LOOP
                    {body};
                    COMMIT;
                END LOOP;
            END $$
            """.encode()
        )
