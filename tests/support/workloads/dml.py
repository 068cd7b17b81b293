"""A random but repeatable workload on tables of every replica identity, for comparisons."""

from __future__ import annotations

import random
from typing import Any

import psycopg

TABLES = """
CREATE TABLE keyed (a int PRIMARY KEY, b int, c text);
CREATE TABLE filtered (a int, b int, c text, PRIMARY KEY (a, b));
CREATE TABLE whole (a int PRIMARY KEY, b int, c text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE bag (a int, b int, c text);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE indexed (a int, b int NOT NULL, c text);
CREATE UNIQUE INDEX indexed_b ON indexed (b);
ALTER TABLE indexed REPLICA IDENTITY USING INDEX indexed_b;
CREATE TABLE toasted (a int PRIMARY KEY, b int, c text);
ALTER TABLE toasted ALTER COLUMN c SET STORAGE EXTERNAL;
CREATE TABLE appended (a int, b int, c text);
CREATE TABLE parted (a int PRIMARY KEY, b int, c text) PARTITION BY RANGE (a);
CREATE TABLE parted_low PARTITION OF parted FOR VALUES FROM (MINVALUE) TO (10);
CREATE TABLE parted_high (c text, b int, a int NOT NULL);
ALTER TABLE parted ATTACH PARTITION parted_high FOR VALUES FROM (10) TO (MAXVALUE);
"""

# Publications of one table that publish different operations leave rows at a native subscriber that
# the next INSERT collides with, and it stops: here they differ in TRUNCATE only.
PUBLICATIONS = """
CREATE PUBLICATION pa FOR TABLE keyed, filtered WHERE (b > 4 AND a < 15), toasted;
CREATE PUBLICATION pb FOR TABLE whole WHERE (b > 4 OR c = 'x'), bag WHERE (b IS DISTINCT FROM 3),
    indexed WHERE (b % 3 <> 0);
CREATE PUBLICATION pc FOR TABLE filtered WHERE (b = 1) WITH (publish = 'insert, update, delete');
CREATE PUBLICATION pd FOR TABLE appended WHERE (c LIKE 'a%') WITH (publish = 'insert, truncate');
CREATE PUBLICATION pe FOR TABLE parted WHERE (a BETWEEN 3 AND 17)
    WITH (publish_via_partition_root = true);
CREATE PUBLICATION pf FOR TABLE parted_high WHERE (a > 12), parted_low;
"""

FIRST = ("pa", "pb", "pc", "pd", "pe")
SECOND = ("pf", "pa")

# The pieces of TOASTed text are long and incompressible enough to be stored apart.
_TEXTS = ("x", "ab", "", None, "añb", "tab\there", "back\\slash", "a" * 3000, "b" * 2500)


class Workload:
    """Runs statements of one seed; the same seed gives the same statements."""

    def __init__(self, connection: psycopg.Connection[Any], seed: int) -> None:
        self._connection = connection
        self._random = random.Random(seed)

    def run(self, transactions: int) -> None:
        """Run so many transactions; some are rolled back, some have savepoints."""
        for _ in range(transactions):
            try:
                with self._connection.transaction() as transaction:
                    for _ in range(self._random.randint(1, 6)):
                        self._statement_or_savepoint()
                    if self._random.random() < 0.1:
                        raise psycopg.Rollback(transaction)
            except psycopg.errors.UniqueViolation:
                pass  # rolled back as a whole: that is part of the workload

    def _statement_or_savepoint(self) -> None:
        if self._random.random() > 0.15:
            self._statement()
            return
        with self._connection.transaction() as savepoint:
            self._statement()
            if self._random.random() < 0.5:
                raise psycopg.Rollback(savepoint)

    def _statement(self) -> None:
        pick = self._random
        table = pick.choice(
            ("keyed", "filtered", "whole", "bag", "indexed", "toasted", "appended", "parted")
        )
        a, b, text = pick.randint(0, 20), pick.randint(0, 9), pick.choice(_TEXTS)
        kind = pick.random()
        if kind < 0.02:
            self._execute(f"TRUNCATE {table}")
        elif kind < 0.5:
            conflict = "" if table in ("bag", "appended") else " ON CONFLICT DO NOTHING"
            self._execute(
                f"INSERT INTO {table} (a, b, c) VALUES (%s, %s, %s){conflict}", a, b, text
            )
        elif table == "appended":
            pass  # without an identity it takes no UPDATE and no DELETE
        elif kind < 0.65:
            self._execute(f"UPDATE {table} SET b = %s WHERE a = %s", b, a)
        elif kind < 0.75:
            self._execute(f"UPDATE {table} SET a = %s WHERE a = %s", pick.randint(0, 20), a)
        elif kind < 0.85:
            self._execute(f"UPDATE {table} SET c = %s WHERE a = %s", text, a)
        elif kind < 0.88:
            self._execute(f"UPDATE {table} SET a = a + 100 WHERE a = %s", a)
        else:
            self._execute(f"DELETE FROM {table} WHERE a = %s", a)

    def _execute(self, statement: str, *parameters: object) -> None:
        self._connection.execute(statement.encode(), parameters)
