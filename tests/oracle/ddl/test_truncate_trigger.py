"""With the triggers that `init` writes, who hears of no TRUNCATE has the rows of the source.

The judge is a native subscription whose publication publishes no truncates.
"""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from gateway.commands.init import init
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import current_lsn

pytestmark = pytest.mark.postgres

ODD = '"Odd ""na\'me %s"'
TREE = """
CREATE SCHEMA "s.1";
CREATE TABLE parent (id int PRIMARY KEY, self int);
CREATE TABLE child (id int PRIMARY KEY, parent int);
CREATE TABLE one (id int PRIMARY KEY, other int);
CREATE TABLE other (id int PRIMARY KEY, one int);
CREATE TABLE "s.1".tree (id int, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE first PARTITION OF "s.1".tree FOR VALUES IN (1);
CREATE TABLE second PARTITION OF "s.1".tree FOR VALUES IN (2) PARTITION BY LIST (part);
CREATE TABLE leaf PARTITION OF second FOR VALUES IN (2);
CREATE TABLE of_leaf (id int PRIMARY KEY, leaf int);
CREATE TABLE "Odd ""na'me %s" (id int PRIMARY KEY);
"""
DEFAULT = 'CREATE TABLE rest PARTITION OF "s.1".tree DEFAULT;'
KEYS = """
ALTER TABLE parent ADD FOREIGN KEY (self) REFERENCES parent ON DELETE RESTRICT;
ALTER TABLE child ADD FOREIGN KEY (parent) REFERENCES parent DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE one ADD CONSTRAINT same FOREIGN KEY (other) REFERENCES other
    DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE other ADD CONSTRAINT same FOREIGN KEY (one) REFERENCES one ON DELETE RESTRICT;
ALTER TABLE of_leaf ADD FOREIGN KEY (leaf, id) REFERENCES leaf (id, part);
CREATE PUBLICATION n FOR ALL TABLES
    WITH (publish = 'insert, update, delete', publish_via_partition_root = true);
"""
TABLES = ("parent", "child", "one", "other", '"s.1".tree', "of_leaf", ODD)
FILLED = f"""
INSERT INTO parent SELECT n, greatest(n - 1, 1) FROM generate_series(1, 9) AS n;
INSERT INTO child SELECT n, n FROM generate_series(1, 9) AS n;
INSERT INTO one SELECT n FROM generate_series(1, 9) AS n;
INSERT INTO other SELECT n, n FROM generate_series(1, 9) AS n;
UPDATE one SET other = id;
INSERT INTO "s.1".tree SELECT n, n % 2 + 1 FROM generate_series(1, 9) AS n;
INSERT INTO of_leaf VALUES (2, 1);
INSERT INTO {ODD} SELECT n FROM generate_series(1, 9) AS n;
"""
TRUNCATES = (
    "TRUNCATE parent, child",
    "TRUNCATE parent CASCADE",
    "BEGIN; INSERT INTO parent VALUES (0); SET CONSTRAINTS ALL DEFERRED; TRUNCATE parent CASCADE;"
    "INSERT INTO child VALUES (1, 1); INSERT INTO parent VALUES (1, 1); COMMIT",
    "TRUNCATE one CASCADE",
    f"TRUNCATE {ODD} RESTART IDENTITY",
    "TRUNCATE first",
    "TRUNCATE leaf CASCADE",
    'TRUNCATE "s.1".tree CASCADE',
    'CREATE TABLE later PARTITION OF "s.1".tree FOR VALUES IN (3);'
    'INSERT INTO "s.1".tree VALUES (30, 3); TRUNCATE "s.1".tree, of_leaf',
    "BEGIN; TRUNCATE child; ROLLBACK",
    "SET session_replication_role = replica; TRUNCATE child; RESET session_replication_role",
)


def test_rows_of_a_truncate_are_deleted_before_it(
    database: Database, make_database: DatabaseFactory, tmp_path: Path
) -> None:
    with database.connect() as connection:
        connection.execute((TREE + KEYS).encode())
        assert init(database.dsn, tmp_path) == 0
        connection.execute((tmp_path / "truncate-triggers.sql").read_bytes())
        native = NativeSubscription(database, make_database, TREE + DEFAULT, ["n"])
        for truncate in TRUNCATES:
            connection.execute(b"SET session_replication_role = replica")
            for table in TABLES:
                connection.execute(f"DELETE FROM {table}".encode())
            connection.execute(b"RESET session_replication_role")
            connection.execute(FILLED.encode())
            connection.execute(truncate.encode())
            native.wait_until_applied(current_lsn(connection))
            expected = {t: connection.execute(f"TABLE {t}".encode()).fetchall() for t in TABLES}

            with native.database.connect() as judge:
                found = {t: judge.execute(f"TABLE {t}".encode()).fetchall() for t in TABLES}

            assert {t: sorted(rows) for t, rows in found.items()} == {
                t: sorted(rows) for t, rows in expected.items()
            }, truncate


def test_a_truncate_whose_rows_cannot_all_be_deleted_fails(
    database: Database, tmp_path: Path
) -> None:
    role = f"{database.name}_other"
    with database.connect() as connection:
        connection.execute(
            f"""
            CREATE TABLE kept (id int PRIMARY KEY); CREATE TABLE hidden (id int PRIMARY KEY);
            CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
            CREATE TRIGGER keep BEFORE DELETE ON kept FOR EACH ROW EXECUTE FUNCTION keep();
            ALTER TABLE hidden ENABLE ROW LEVEL SECURITY;
            INSERT INTO kept VALUES (1); INSERT INTO hidden VALUES (1);
            CREATE ROLE {role}; GRANT TRUNCATE ON kept, hidden TO {role};
            GRANT SELECT, DELETE ON hidden TO {role};
            """.encode()
        )
        init(database.dsn, tmp_path)
        connection.execute((tmp_path / "truncate-triggers.sql").read_bytes())

        def refused(statement: str, message: str) -> None:
            with pytest.raises(psycopg.Error, match=message):
                connection.execute(statement.encode())
            connection.execute("ROLLBACK; RESET ROLE")

        for level in ("REPEATABLE READ", "SERIALIZABLE"):
            begin = f"BEGIN ISOLATION LEVEL {level}"
            refused(f"{begin}; TRUNCATE hidden", "a TRUNCATE of public.hidden has to be READ COMM")
        refused("TRUNCATE kept", "rows that a TRUNCATE of public.kept removes cannot be deleted")
        refused(f"SET ROLE {role}; TRUNCATE kept", "permission denied for table kept")
        refused(f"SET ROLE {role}; TRUNCATE hidden", "row security may hide rows that a TRUNCATE")
        connection.execute("TRUNCATE hidden")
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())
