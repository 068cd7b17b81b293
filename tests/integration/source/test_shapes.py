"""What the catalog shows after each kind of DDL, and whether that means other values."""

from __future__ import annotations

import pytest

from gateway.definitions.tables.shape import read_shape, unseen_change, write_shape
from gateway.source.catalog.shape_queries import shapes_digest
from gateway.source.catalog.tables import read_shaped_tables
from tests.support.backends.servers import Database
from tests.support.gateway.scene import value_of

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.parametrize("postgres_major", [16, 18], indirect=True),
]

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE inner_pair AS (x int, m mood);
CREATE TYPE pair AS (x int, i inner_pair);
CREATE DOMAIN moods AS mood[];
CREATE DOMAIN number AS int;
CREATE COLLATION folded (provider = libc, locale = 'C');
UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'folded';
CREATE TABLE t (id int PRIMARY KEY, a int, b varchar(10), n number, ms moods, p pair,
    f text COLLATE folded, hidden int, z int);
INSERT INTO t (id, a, n) VALUES (1, 5, 5);
CREATE TABLE tree (id int PRIMARY KEY, a int) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF tree FOR VALUES FROM (0) TO (10);
CREATE TABLE high PARTITION OF tree FOR VALUES FROM (10) TO (20);
INSERT INTO tree VALUES (1, 1), (11, 11);
"""
# These servers have no ICU, and no collation of libc is nondeterministic: the catalog says it is.
PUBLISHED = ("id", "a", "b", "n", "ms", "p", "f", "z", "new")
HARMLESS = (
    "VACUUM FULL t",
    "CLUSTER t USING t_pkey",
    "TRUNCATE t",
    "ALTER TABLE t SET LOGGED",
    "ALTER TABLE t ALTER a SET NOT NULL",
    "ALTER TABLE t ALTER a SET DEFAULT 7; VACUUM FULL t",
    "ALTER TABLE t ALTER a SET STATISTICS 7; VACUUM FULL t",
    "ALTER TABLE t ALTER b TYPE varchar(20)",
    "ALTER TABLE t ADD new int DEFAULT 7",
    "ALTER TABLE t ADD new int; VACUUM FULL t",
    # Natively the rows of before have NULL in it.
    "ALTER TABLE t ADD new int GENERATED ALWAYS AS (a + 1) STORED",
    "ALTER TABLE t RENAME a TO new",
    "ALTER TABLE t DROP a",
    "ALTER TABLE t DROP a; ALTER TABLE t ADD a text",
    "ALTER TABLE t DROP hidden; ALTER TABLE t ADD hidden int",
    "ALTER TABLE t ALTER hidden TYPE bigint USING hidden * 2",
    "ALTER TYPE mood ADD VALUE 'glad'",
    "ALTER TYPE mood ADD VALUE 'glad' BEFORE 'sad'",
    "ALTER TYPE pair RENAME ATTRIBUTE x TO y",
    "ALTER DOMAIN number ADD CHECK (value > 0)",
    "ALTER DOMAIN number SET DEFAULT 5",
    "CREATE INDEX ON t (a); ANALYZE t; GRANT SELECT ON t TO PUBLIC",
    "ALTER COLLATION folded REFRESH VERSION",
    "CREATE TABLE middle PARTITION OF tree FOR VALUES FROM (20) TO (30)",
    "TRUNCATE low",
    "ALTER TABLE tree ALTER a SET NOT NULL; TRUNCATE low",
    "ALTER TABLE tree DETACH PARTITION low",
)
OTHER_VALUES = {
    "ALTER TABLE t DROP z; ALTER TABLE t ADD z int": "column z was dropped and added again",
    "ALTER TABLE t DROP a; ALTER TABLE t ADD a int": "column a was dropped and added again",
    "ALTER TABLE t ALTER a TYPE bigint USING a * 2": "column a was given another type",
    "ALTER TABLE t ALTER a TYPE int USING a + 1": "column a was given other values",
    "ALTER TABLE t ADD new float8 DEFAULT random()": "column new has computed values",
    # VACUUM FULL forgets that the default was the same for all rows: copied without need.
    "ALTER TABLE t ADD new int DEFAULT 7; VACUUM FULL t": "column new has computed values",
    "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'": "the type of column ms was altered",
    "ALTER TYPE pair ADD ATTRIBUTE y date CASCADE": "the type of column p was altered",
    "ALTER TYPE inner_pair DROP ATTRIBUTE x": "the type of column p was altered",
    "ALTER TYPE inner_pair ADD ATTRIBUTE y date": "the type of column p was altered",
    "UPDATE pg_collation SET collversion = 'old' WHERE collname = 'folded'": "of column f",
    "ALTER TABLE tree ALTER a TYPE int USING a + 1": "column a was given other values",
    "ALTER TABLE tree ALTER a TYPE bigint": "column a was given another type",
}


def test_ddl_that_gives_rows_other_values_is_told_from_all_other(database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        for ddl in (*HARMLESS, *OTHER_VALUES):
            name = "tree" if "tree" in ddl or "low" in ddl else "t"
            oid = int(value_of(connection, f"SELECT '{name}'::regclass::oid::bigint"))
            before = read_shaped_tables(connection, [oid])[oid]
            digest = shapes_digest(connection, [oid])
            assert shapes_digest(connection, [oid]) == digest
            for statement in ddl.split("; "):
                connection.execute(statement.encode())
            after = read_shaped_tables(connection, [oid])[oid]
            kept = read_shape(write_shape(before.shape))
            assert kept == before.shape
            found = unseen_change(before.columns, kept, after.columns, after.shape, PUBLISHED)
            if ddl in HARMLESS:
                assert found is None, ddl
            else:
                assert found is not None, ddl
                assert OTHER_VALUES[ddl] in found, ddl
                assert shapes_digest(connection, [oid]) != digest, ddl
            connection.execute(
                "DROP TABLE t, tree; DROP TABLE IF EXISTS low; DROP TYPE pair, inner_pair;"
                "DROP DOMAIN moods, number; DROP TYPE mood; DROP COLLATION folded"
            )
            connection.execute(TABLES.encode())
