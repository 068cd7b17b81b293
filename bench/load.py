"""The load: one seven-column table, and changes of it of which every count is known beforehand.

The counts come from arithmetic on the ids alone, by nothing that the gateway is made of: they are
what the records in Kafka are held against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg

__all__ = ["CHANGES_PER_TRANSACTION", "SELECTED", "Expected", "Load", "make_rows"]

_INSERTS: Final = 83
_UPDATES: Final = 12
_DELETES: Final = 5
CHANGES_PER_TRANSACTION: Final = _INSERTS + _UPDATES + _DELETES

SELECTED: Final = 100
"""One id in so many passes the selective filter. 83 has no factor in common with it, so that the
share is the same of the inserts, the updates and the deletes."""

_TABLE: Final = """
CREATE TABLE orders (
    id bigint PRIMARY KEY, name text, note text, quantity integer, price numeric(10,2),
    changed_at timestamptz, active boolean
)
"""

_ROWS: Final = """
INSERT INTO orders
SELECT id, 'customer number ' || id, 'a note of some forty characters, row ' || id, id % 1000,
       (id * 31 % 10000000) / 100.0, timestamptz '2024-01-01 00:00+00' + id * interval '1.037 ms',
       id % 3 <> 0
FROM generate_series({first}, {last}) id
"""


def make_rows(connection: psycopg.Connection[Any], rows: int) -> None:
    """Make the table, with ids from 1 to `rows`."""
    connection.execute(_TABLE)
    connection.execute(_ROWS.format(first=1, last=rows))


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


class Load:
    """Some transactions of a hundred changes each: 83 inserts, 12 updates, 5 deletes.

    Transaction n inserts ids 83n+1 to 83n+83; of the ids that the one before it has inserted, it
    updates the first twelve and deletes the last five. Keys never change, so no old tuple is sent
    with an update.

    Args:
        changes: How many; a multiple of `CHANGES_PER_TRANSACTION`.
    """

    def __init__(self, changes: int) -> None:
        self.transactions = changes // CHANGES_PER_TRANSACTION
        self.changes = self.transactions * CHANGES_PER_TRANSACTION

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Make the table, with the rows that the first transaction needs."""
        make_rows(connection, _INSERTS)

    def write(self, connection: psycopg.Connection[Any]) -> str:
        """Write all transactions; the position behind the last.

        One more follows that position, so that whoever reads up to it sees that it was passed.
        """
        self._write(connection, 1, self.transactions)
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        self._write(connection, self.transactions + 1, self.transactions + 1)
        return str(row[0])

    def expected(self, passes: Callable[[int], bool]) -> Expected:
        """What a subscription must see whose filter depends on the id alone."""
        firsts = [n * _INSERTS + 1 for n in range(1, self.transactions + 1)]
        return Expected(
            inserts=sum(passes(i) for f in firsts for i in range(f, f + _INSERTS)),
            updates=sum(passes(i - _INSERTS) for f in firsts for i in range(f, f + _UPDATES)),
            deletes=sum(passes(i - _DELETES) for f in firsts for i in range(f, f + _DELETES)),
        )

    def _write(self, connection: psycopg.Connection[Any], first: int, last: int) -> None:
        """Run the transactions `first` to `last` in the server: the client would be slower."""
        rows = _ROWS.format(first=f"n * {_INSERTS} + 1", last=f"(n + 1) * {_INSERTS}")
        connection.execute(
            f"""
            DO $$ BEGIN
                FOR n IN {first} .. {last} LOOP
                    {rows};
                    UPDATE orders SET note = 'changed by transaction ' || n,
                        quantity = quantity + 1, changed_at = changed_at + interval '1 day'
                    WHERE id BETWEEN (n - 1) * {_INSERTS} + 1 AND (n - 1) * {_INSERTS} + {_UPDATES};
                    DELETE FROM orders
                    WHERE id BETWEEN n * {_INSERTS} - {_DELETES - 1} AND n * {_INSERTS};
                    COMMIT;
                END LOOP;
            END $$
            """
        )
