"""Tables whose rows ALTER TABLE gives other values, of which the stream has no change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from gateway.source.provisioning.event_trigger import INSTALL
from tests.oracle.ddl.test_changing_publications import finish, published_to, started
from tests.oracle.ddl.test_leaving_tables import DEFINED, QUICK, lagging
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, Scene, current_lsn
from tests.support.run.majors import EVALUATED_ON
from tests.support.run.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

MakeScene = Callable[..., Scene]
REWRITTEN = ("calculated", "widened", "computed", "tree")
AS_IT_WAS = ("stored",)
TABLES = "".join(
    f"CREATE TABLE {name} (a int PRIMARY KEY, b int);"
    for name in ("calculated", "widened", "computed", "stored")
)
ROWS = "".join(
    f"INSERT INTO {name} SELECT n, n FROM generate_series(1, 50) AS n;"
    for name in (*REWRITTEN, *AS_IT_WAS)
)
TREE = (
    "CREATE TABLE tree (a int PRIMARY KEY, b int) PARTITION BY RANGE (a);"
    "CREATE TABLE low PARTITION OF tree FOR VALUES FROM (0) TO (30);"
    "CREATE TABLE high PARTITION OF tree FOR VALUES FROM (30) TO (1000);"
)
ALTERATIONS = (
    "ALTER TABLE calculated ALTER b TYPE int USING b + 1000",
    "ALTER TABLE widened ALTER b TYPE bigint USING b * 10000000000",
    "CREATE SEQUENCE s; ALTER TABLE computed ADD c bigint DEFAULT nextval('s')",
    "ALTER TABLE tree ALTER b TYPE int USING -b",
)
STORED = (
    "VACUUM FULL stored",
    "CLUSTER stored USING stored_pkey",
    "CREATE ACCESS METHOD another TYPE TABLE HANDLER heap_tableam_handler",
    "ALTER TABLE stored SET ACCESS METHOD another",
    "ALTER TABLE stored ALTER b SET DEFAULT 7",
)


def write(connection: Connection, first: int) -> None:
    for table in (*REWRITTEN, *AS_IT_WAS):
        connection.execute(f"INSERT INTO {table} (a, b) VALUES ({first}, 1)".encode())
        connection.execute(f"UPDATE {table} SET b = b + 1 WHERE a % 10 = 1".encode())
        connection.execute(f"DELETE FROM {table} WHERE a = {first - 95}".encode())


@pytest.mark.parametrize("behind", [False, True], ids=["keeping up", "behind"])
def test_a_rewritten_table_is_copied_anew_and_one_that_was_only_moved_is_not(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, behind: bool
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLES} {TREE} {INSTALL}".encode())
        connection.execute(
            "CREATE PUBLICATION p FOR TABLE calculated, widened, computed, tree, stored"
            " WITH (publish_via_partition_root)"
        )
        connection.execute(ROWS.encode())
        tables = f"{TABLES} CREATE TABLE tree (a int PRIMARY KEY, b int);"
        native = NativeSubscription(database, make_database, tables, ["p"])
        s = scene(DEFINED, **QUICK)
        process = started(s)
        write(connection, 100)
        native.wait_until_applied(current_lsn(connection))
        with lagging(process) if behind else nullcontext():
            for alteration in ALTERATIONS:
                with native.database.connect() as subscriber:
                    subscriber.execute(alteration.encode())
                connection.execute(alteration.encode())
            for statement in STORED:
                connection.execute(statement.encode())
            write(connection, 101)
        published_to(s, current_lsn(connection))
        wait_until(lambda: "pending" not in s.cli("status").out, 60, "all to be copied")
        wait_until(lambda: all(copies(s, t) == 2 for t in REWRITTEN), 60, "second copies")
        wait_until(lambda: s.cli("status").out.count(": ready") == 5, 60, "all to be copied")
        write(connection, 102)
        finish(s, process, native, current_lsn(connection))

    for table in (*REWRITTEN, *AS_IT_WAS):
        assert s.rebuilt(table) == native.rows(table), table
    assert [copies(s, table) for table in (*REWRITTEN, *AS_IT_WAS)] == [2, 2, 2, 2, 1]


def copies(s: Scene, table: str) -> int:
    """How many have begun."""
    return [record.op for record in s.read(table)].count("t")


def test_a_table_that_is_rewritten_while_the_gateway_is_away_is_copied_by_its_next_run(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLES} {INSTALL}".encode())
        connection.execute("INSERT INTO calculated SELECT n, n FROM generate_series(1, 50) AS n")
        connection.execute("ALTER TABLE calculated REPLICA IDENTITY FULL")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE calculated WHERE (b > 1020), stored;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
        )
        s.run_to("0/1")
        assert s.rebuilt("calculated") == []
        connection.execute(
            "BEGIN; UPDATE calculated SET b = 2000 WHERE a = 1;"
            "ALTER TABLE calculated ALTER b TYPE int USING b + 1000;"
            "DELETE FROM calculated WHERE a = 50; COMMIT"
        )
        s.run_to(current_lsn(connection))

        expected = s.source_rows("SELECT * FROM calculated WHERE b > 1020")
    assert s.rebuilt("calculated") == expected
    assert len(expected) == 30
    assert copies(s, "stored") == 1
