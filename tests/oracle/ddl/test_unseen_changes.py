"""Tables that change in ways that no Relation message tells, with the source as the judge."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from gateway.source.provisioning.event_trigger import INSTALL
from tests.oracle.ddl.test_changing_publications import published_to, started
from tests.oracle.ddl.test_leaving_tables import DEFINED, MakeScene, lagging
from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.run.majors import EVALUATED_ON
from tests.support.run.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE colour AS ENUM ('red');
CREATE TYPE pair AS (x int, y text);
CREATE TYPE triple AS (x int, y text, z date);
CREATE TABLE dropped (id int PRIMARY KEY, b text, a int);
CREATE TABLE renamed (m mood PRIMARY KEY, n int);
CREATE TABLE attributes (id int, p pair);
ALTER TABLE attributes REPLICA IDENTITY FULL;
CREATE TABLE narrowed (id int PRIMARY KEY, p triple);
CREATE TABLE doubled (id int PRIMARY KEY, c int);
CREATE TABLE added (id int PRIMARY KEY, c int);
CREATE TABLE moved (id int PRIMARY KEY, c int);
CREATE TABLE wider (id int PRIMARY KEY, c varchar(10), d colour);
INSERT INTO dropped VALUES (1, 'x', 1), (2, 'y', 2);
INSERT INTO renamed VALUES ('sad', 1), ('ok', 2);
INSERT INTO attributes VALUES (1, (1, 'a')), (2, (2, 'b'));
INSERT INTO narrowed VALUES (1, (1, 'a', '2026-01-01')), (2, NULL);
INSERT INTO doubled VALUES (1, 1), (2, 2);
INSERT INTO added VALUES (1, 1), (2, 2);
INSERT INTO moved VALUES (1, 1), (2, 2);
INSERT INTO wider VALUES (1, 'x', 'red');
CREATE PUBLICATION p FOR TABLE
    dropped, renamed, attributes, narrowed, doubled, added, moved, wider;
"""
CHANGED = {
    "dropped": "ALTER TABLE dropped DROP a; ALTER TABLE dropped ADD a int DEFAULT 8",
    "renamed": "ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",
    "attributes": "ALTER TYPE pair ADD ATTRIBUTE z date CASCADE",
    "narrowed": "ALTER TYPE triple DROP ATTRIBUTE y CASCADE",
    "doubled": "ALTER TABLE doubled ALTER c TYPE bigint USING c * 2",
    "added": "ALTER TABLE added ALTER c TYPE int USING c + 1",
}
AS_IT_WAS = {
    "moved": "VACUUM FULL moved; ALTER TABLE moved ALTER c SET NOT NULL",
    "wider": "ALTER TABLE wider ALTER c TYPE varchar(20); ALTER TYPE colour ADD VALUE 'blue'",
}
WRITES = (
    "INSERT INTO dropped VALUES (3, 'z', 30)",
    "UPDATE renamed SET n = 10 WHERE m = 'blue'",
    "DELETE FROM attributes WHERE id = 1",
    "INSERT INTO narrowed VALUES (3, (3, '2026-01-03'))",
    "UPDATE doubled SET c = c + 1 WHERE id = 1",
    "INSERT INTO added VALUES (3, 3)",
    "UPDATE moved SET c = 7 WHERE id = 1",
    "INSERT INTO wider VALUES (2, 'longer than ten', 'blue')",
)


@pytest.mark.parametrize("how", ["told", "watched"])
def test_what_the_stream_does_not_tell_is_copied_again(
    scene: MakeScene, database: Database, how: str
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLES} {INSTALL if how == 'told' else ''}".encode())
        interval = 0.0 if how == "told" else 0.2
        s = scene(DEFINED, definitions={"watch_interval_s": interval})
        process = started(s)
        with lagging(process) if how == "told" else nullcontext():
            for statements in (*CHANGED.values(), *AS_IT_WAS.values()):
                for statement in statements.split(";"):
                    connection.execute(statement.encode())
            for statement in WRITES:
                connection.execute(statement.encode())
        # The watch may look between two statements, and then again.
        wait_until(lambda: all(copies(s, t) >= 2 for t in CHANGED), 60, "second copies")
        wait_until(lambda: s.cli("status").out.count(": ready") == 8, 60, "all to be copied")
        connection.execute("UPDATE renamed SET n = 11 WHERE m = 'blue'")
        connection.execute("DELETE FROM attributes WHERE id = 2")
        published_to(s, current_lsn(connection))
        assert process.terminate() == 0, process.log()
        begun = {table: copies(s, table) for table in (*CHANGED, *AS_IT_WAS)}
        assert how == "watched" or all(begun[table] == 2 for table in CHANGED)
        assert all(begun[table] == 1 for table in AS_IT_WAS)

        # Nothing of it is copied once more by a later start.
        connection.execute("UPDATE dropped SET a = a + 1")
        s.run_to(current_lsn(connection))
        for table in (*CHANGED, *AS_IT_WAS):
            rows = connection.execute(f"SELECT * FROM {table}".encode()).fetchall()
            shown = sorted([tuple(map(str, row)) for row in rows])
            found = sorted([tuple(map(str, row)) for row in s.rebuilt(table)])
            if table != "attributes":  # no row is left there that Python shows as the text
                assert found == shown, table
            assert len(found) == len(shown), table
            assert copies(s, table) == begun[table], table


def test_what_changed_while_the_gateway_was_away_is_copied_by_its_next_run(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINED, definitions={"watch_interval_s": 0.0})
        s.run_to("0/1")
        for statements in (*CHANGED.values(), *AS_IT_WAS.values()):
            for statement in statements.split(";"):
                connection.execute(statement.encode())
        for statement in WRITES:
            connection.execute(statement.encode())
        s.run_to(current_lsn(connection))
        found = [copies(s, table) for table in (*CHANGED, *AS_IT_WAS)]
        assert found == [2] * len(CHANGED) + [1] * len(AS_IT_WAS)
        assert [row[2] for row in s.rebuilt("dropped")] == [8, 8, 30]
        assert [row[1] for row in s.rebuilt("narrowed")] == [
            "(1,2026-01-01)",
            None,
            "(3,2026-01-03)",
        ]
        assert s.rebuilt("renamed") == [("blue", 10), ("ok", 2)]


def copies(s: Scene, table: str) -> int:
    """How many have begun."""
    return [record.op for record in s.read(table)].count("t")
