"""Tables to copy, and a workload that changes them at every key while they are copied."""

from __future__ import annotations

import random
from threading import Event

import psycopg

from tests.support.backends.servers import Database

TABLES = """
CREATE TABLE numbers (id int PRIMARY KEY, n int, large text);
ALTER TABLE numbers ALTER COLUMN large SET STORAGE EXTERNAL;
CREATE TABLE words (word text NOT NULL, n numeric(12, 2) NOT NULL, large text);
ALTER TABLE words ALTER COLUMN large SET STORAGE EXTERNAL;
CREATE UNIQUE INDEX words_key ON words (n DESC, word COLLATE "C");
ALTER TABLE words REPLICA IDENTITY USING INDEX words_key;
CREATE TABLE whole (id int PRIMARY KEY, n int, large text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE bag (id int, n int);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE tree (id int PRIMARY KEY, n int, large text) PARTITION BY RANGE (id);
CREATE TABLE tree_low PARTITION OF tree FOR VALUES FROM (MINVALUE) TO ({middle});
CREATE TABLE tree_high (large text, n int, id int NOT NULL);
ALTER TABLE tree ATTACH PARTITION tree_high FOR VALUES FROM ({middle}) TO (MAXVALUE);
"""

# Without the large values: a row that enters a filter by a change of its key comes without them, as
# natively, unless it is copied afterwards; and the two need not copy it at the same moment.
PUBLICATIONS = """
CREATE PUBLICATION p_all FOR TABLE numbers, words, whole, bag;
CREATE PUBLICATION p_some FOR TABLE numbers (id, n) WHERE (id % 3 <> 0),
    words (word, n) WHERE (n < 50),
    whole WHERE (n % 2 = 0 OR id < 100), bag WHERE (n > 3);
CREATE PUBLICATION p_root FOR TABLE tree WHERE (id % 5 <> 0)
    WITH (publish_via_partition_root = true);
"""

ALL = ("numbers", "words", "whole", "bag")
SOME = {"numbers": 2, "words": 2, "whole": 3, "bag": 2}
"""The tables of `p_some`, and how many of their columns it publishes."""

_EXPECTED = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,  # the row was moved to another partition meanwhile
)


class CopyLoad:
    """Rows at first, and then changes of all of them; the same seed makes the same statements.

    Args:
        rows: Number of rows of each table; those without a plain key have a tenth.
    """

    def __init__(self, database: Database, seed: int, rows: int) -> None:
        self._database = database
        self._seed = seed
        self._rows = rows
        self.tables = TABLES.format(middle=rows // 2)
        self.transactions = 0

    def fill(self, connection: psycopg.Connection) -> None:
        """Make the rows."""
        large = "CASE WHEN i % 97 = 0 THEN repeat(md5(i::text), 80) ELSE md5(i::text) END"
        for statement, rows in (
            (f"INSERT INTO numbers SELECT 2 * i, i, {large}", self._rows),
            (f"INSERT INTO words SELECT chr(65 + i % 58) || i, i % 100, {large}", self._rows // 2),
            (f"INSERT INTO whole SELECT 2 * i, i, {large}", self._rows // 10),
            ("INSERT INTO bag SELECT i % 500, i % 10", self._rows // 10),
            (f"INSERT INTO tree SELECT 2 * i, i, {large}", self._rows // 2),
        ):
            connection.execute(f"{statement} FROM generate_series(1, {rows}) AS i".encode())

    def change(self, worker: int, stop: Event) -> None:
        """Run transactions until told to stop."""
        pick = random.Random(self._seed * 100 + worker)
        with self._database.connect() as connection:
            while not stop.wait(0.002):
                try:
                    with connection.transaction():
                        for _ in range(pick.randint(1, 4)):
                            self._statement(connection, pick)
                except _EXPECTED:
                    pass  # rolled back as a whole: that is part of the workload
                self.transactions += 1
                stop.wait(0.002)

    def _statement(self, connection: psycopg.Connection, pick: random.Random) -> None:
        table = pick.choice(("numbers", "numbers", "words", "whole", "bag", "tree"))
        kind = pick.random()
        if table == "words":
            where = "(n, word) = (SELECT n, word FROM words WHERE n = %(a)s LIMIT 1)"
            key, new = where, "n = n + 17.50, word = upper(word)"
            values = "chr(65 + %(a)s %% 58) || %(b)s, %(a)s %% 100, 'x'"
        else:
            key, new = "id = %(a)s", "id = %(b)s"
            values = "%(b)s, 1" if table == "bag" else "%(b)s, 1, repeat('new', %(a)s %% 1200)"
        a, b = (pick.randint(1, 2 * self._size(table)) for _ in range(2))
        if kind < 0.25:
            statement = f"INSERT INTO {table} VALUES ({values})"
        elif kind < 0.5:
            statement = f"UPDATE {table} SET n = n + 1 WHERE {key}"
        elif kind < 0.8:
            statement = f"UPDATE {table} SET {new} WHERE {key}"
        else:
            statement = f"DELETE FROM {table} WHERE {key}"
        connection.execute(statement.encode(), {"a": a % 100 if table == "words" else a, "b": b})

    def _size(self, table: str) -> int:
        return {"numbers": self._rows, "words": self._rows // 2, "tree": self._rows // 2}.get(
            table, 500 if table == "bag" else self._rows // 10
        )
