"""Publications that are altered while nobody reads, and tell of it in the stream; and natively."""

from __future__ import annotations

import pytest

from gateway.source.provisioning.event_trigger import INSTALL
from tests.oracle.ddl.test_changing_publications import finish, published_to, started
from tests.oracle.ddl.test_leaving_tables import DEFINED, QUICK, MakeScene, lagging
from tests.oracle.ddl.test_moving_partitions import TREES
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, current_lsn
from tests.support.models.rebuild import Rebuilt
from tests.support.run.majors import EVALUATED_ON

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

TABLES = (
    "CREATE TABLE t (a int PRIMARY KEY, b int, c text);CREATE TABLE u (a int PRIMARY KEY, b int);"
)
ALTERATIONS = (
    "ALTER TABLE t ALTER b SET STATISTICS 10",  # says nothing but that the filter may be another
    "ALTER PUBLICATION p SET TABLE t WHERE (a % 2 = 1), u",
    "ALTER PUBLICATION p SET TABLE t, u WHERE (a > 20)",
    "ALTER PUBLICATION p SET (publish = 'insert, delete')",
    "ALTER PUBLICATION p SET TABLE t (a, c), u",
    "ALTER PUBLICATION p SET TABLE t, u WHERE (a > 50)",
    "ALTER PUBLICATION p SET (publish = 'insert, update, delete')",
    "ALTER PUBLICATION p DROP TABLE u",
    "ALTER PUBLICATION p SET TABLE t WHERE (a % 3 = 0)",
)


def write(connection: Connection, first: int) -> None:
    """Rows on both sides of all filters; each call has keys of its own."""
    for table in ("t", "u"):
        rows = f"SELECT n, n FROM generate_series({first}, {first + 5}) AS n"
        connection.execute(f"INSERT INTO {table} {rows}".encode())
        connection.execute(f"UPDATE {table} SET b = b + 1000 WHERE a % 4 = 1".encode())
        connection.execute(f"DELETE FROM {table} WHERE a = {first + 2}".encode())


@pytest.mark.parametrize("down", [False, True], ids=["lagging", "down"])
def test_each_alteration_counts_at_its_place_in_the_stream(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, down: bool
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLES} {INSTALL}".encode())
        connection.execute("CREATE PUBLICATION p FOR TABLE t WHERE (a > 3), u")
        native = NativeSubscription(database, make_database, TABLES, ["p"])
        s = scene(DEFINED, **QUICK)
        process = started(s)

        def alter() -> None:
            for number, alteration in enumerate(("SELECT", *ALTERATIONS)):
                connection.execute(alteration.encode())
                write(connection, 10 * number)

        if down:
            assert process.terminate() == 0, process.log()
            alter()
            process = s.project.start()
            process.wait_until_doing("streaming")
        else:
            with lagging(process):
                alter()
        write(connection, 100)
        finish(s, process, native, current_lsn(connection))

    with native.database.connect() as subscriber:
        columns = [c.name for c in subscriber.execute("SELECT * FROM t LIMIT 0").description or ()]
    assert Rebuilt().apply(s.read("t")).rows(columns) == native.rows("t")
    assert s.rebuilt("u") == native.rows("u")


def test_a_gateway_that_stops_at_each_place_goes_on_with_the_definition_of_that_place(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLES} {INSTALL}".encode())
        connection.execute("CREATE PUBLICATION p FOR TABLE t WHERE (a > 3), u")
        native = NativeSubscription(database, make_database, TABLES, ["p"])
        s = scene(DEFINED, definitions={"watch_interval_s": 0.0})
        s.run_to("0/1")
        ends = []
        for number, alteration in enumerate(
            (
                "SET TABLE t WHERE (a % 2 = 1), u",
                "SET TABLE t, u WHERE (a % 2 = 0)",
                "DROP TABLE u",
                "SET TABLE t WHERE (a % 3 = 0), u",
            )
        ):
            connection.execute(f"ALTER PUBLICATION p {alteration}".encode())
            ends.append(current_lsn(connection))
            write(connection, 10 * number)
            ends.append(current_lsn(connection))
        for end in ends:
            s.run_to(end)
        assert "publications p: an ALTER takes effect at its LSN" in s.cli("check").out
        native.wait_until_applied(ends[-1])

    assert s.rebuilt("t") == native.rows("t")
    assert s.rebuilt("u") == native.rows("u")


def test_a_table_leaves_at_its_place_with_the_column_that_its_filter_names(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLES} {INSTALL}".encode())
        connection.execute(
            "CREATE PUBLICATION p FOR TABLE t WHERE (b > 3), u WITH (publish = 'insert')"
        )
        native = NativeSubscription(database, make_database, TABLES, ["p"])
        s = scene(DEFINED, **QUICK)
        process = started(s)
        with lagging(process):
            connection.execute("INSERT INTO t VALUES (1, 1), (5, 5)")
            connection.execute("ALTER TABLE t DROP COLUMN b CASCADE")
            connection.execute("INSERT INTO t VALUES (2, 'x'), (6, 'x'); INSERT INTO u VALUES (1)")
            connection.execute("ALTER PUBLICATION p SET TABLE u WHERE (a > 1)")
            connection.execute("INSERT INTO t VALUES (7, 'x'); INSERT INTO u VALUES (0), (2)")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t") == native.rows("t")
    assert [row[0] for row in native.rows("t")] == [5]
    assert s.rebuilt("u") == native.rows("u")


def test_a_transaction_that_has_seen_older_definitions_changes_only_what_it_has_altered(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection, database.connect() as other:
        connection.execute(f"{TABLES} {INSTALL}".encode())
        connection.execute("CREATE PUBLICATION p FOR TABLE t WHERE (a > 3)")
        connection.execute("CREATE PUBLICATION q FOR TABLE u WHERE (a > 3)")
        native = NativeSubscription(database, make_database, TABLES, ["p", "q"])
        s = scene(
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p, q;",
            definitions={"watch_interval_s": 0.0},
        )
        s.run_to("0/1")
        # It is decoded after a start, and has q as it was before.
        other.execute("BEGIN; ALTER PUBLICATION p SET TABLE t WHERE (a % 2 = 0)")
        connection.execute("ALTER PUBLICATION q SET TABLE u WHERE (a % 2 = 1)")
        write(connection, 10)
        s.run_to(current_lsn(connection))
        other.execute("COMMIT")
        write(connection, 20)
        # Altered while nobody reads, and seen in the catalog too soon.
        connection.execute("ALTER PUBLICATION q SET TABLE u WHERE (a > 1000)")
        write(connection, 30)
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a % 3 = 0)")
        write(connection, 40)
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)

    assert s.rebuilt("t") == native.rows("t")
    assert s.rebuilt("u") == native.rows("u")


def test_what_was_open_at_an_alteration_is_taken_by_both_definitions(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection, database.connect() as other:
        connection.execute(f"{TABLES} {INSTALL}".encode())
        connection.execute("CREATE PUBLICATION p FOR TABLE t WHERE (a < 10), u")
        native = NativeSubscription(database, make_database, TABLES, ["p"])
        s = scene(DEFINED, definitions={"watch_interval_s": 0.0})
        s.run_to("0/1")
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES (1, 1), (11, 11)")
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a > 10), u")
        other.execute("INSERT INTO t VALUES (2, 2), (12, 12)")
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a % 2 = 1), u")
        other.execute("INSERT INTO t VALUES (3, 3), (4, 4), (13, 13), (14, 14); COMMIT")
        connection.execute("BEGIN; INSERT INTO t VALUES (5, 5), (6, 6)")
        connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (a % 2 = 0), u")
        connection.execute("INSERT INTO t VALUES (7, 7), (8, 8); COMMIT")
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)

    assert s.rebuilt("t") == native.rows("t")
    assert [row[0] for row in s.rebuilt("t")] == [1, 12, 13, 3, 5, 8]


def test_a_filter_of_the_past_that_the_server_evaluates_counts_at_its_place(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TABLES} {INSTALL}".encode())
        connection.execute("CREATE PUBLICATION p FOR TABLE t WHERE (a > 3), u")
        native = NativeSubscription(database, make_database, TABLES, ["p"])
        s = scene(DEFINED, **QUICK)
        s.run_to("0/1")
        for number, where in enumerate(["sin(a) > 0", "a % 2 = 1", "cos(a) < 0", "a % 3 = 0"]):
            connection.execute(f"ALTER PUBLICATION p SET TABLE t WHERE ({where}), u".encode())
            write(connection, 10 * number)
        process = s.project.start()
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t") == native.rows("t")


def test_a_partition_that_moves_is_published_as_it_stood_at_each_row(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    leaves = [f"CREATE TABLE {name} (a int PRIMARY KEY, b text);" for name in ("r1", "r2", "q1")]
    roots = "".join(f"CREATE TABLE {name} (a int PRIMARY KEY, b text);" for name in ("r", "q"))
    with database.connect() as connection:
        connection.execute(f"{INSTALL} {TREES}".encode())
        connection.execute("CREATE PUBLICATION roots FOR TABLE r, q"
                           " WITH (publish_via_partition_root)")  # fmt: skip
        connection.execute("CREATE PUBLICATION leaves FOR TABLE r, q")
        native = [
            NativeSubscription(database, make_database, roots, ["roots"]),
            NativeSubscription(database, make_database, "".join(leaves), ["leaves"]),
        ]
        s = scene(
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION roots;"
            " CREATE SUBSCRIPTION {s}_l CONNECTION '' PUBLICATION leaves;",
            **QUICK,
        )
        s.run_to("0/1")
        number = 200
        for place in ("q", "r", "q"):
            number += 10
            left = "r" if place == "q" else "q"
            connection.execute(f"INSERT INTO {left} VALUES ({100 + number % 97}, 'old')".encode())
            connection.execute(f"ALTER TABLE {left} DETACH PARTITION r2".encode())
            connection.execute("INSERT INTO r2 VALUES (199, 'nobody'); DELETE FROM r2 WHERE a=199")
            connection.execute(
                f"ALTER TABLE {place} ATTACH PARTITION r2 FOR VALUES FROM (100) TO (200)".encode()
            )
            connection.execute(f"UPDATE {place} SET b = b || '{place}'".encode())
        process = s.project.start()
        end = current_lsn(connection)
        published_to(s, end, f"{s.slot}_l")
        finish(s, process, native[0], end)
        native[1].wait_until_applied(end)

    for name in ("r", "q"):
        assert s.rebuilt(name) == native[0].rows(name)
    for name in ("r1", "r2", "q1"):
        assert s.rebuilt(name, f"{s.slot}_l") == native[1].rows(name)


def test_partitions_of_a_tree_that_is_attached_as_a_whole_are_known(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        connection.execute(f"{TREES}; {INSTALL}".encode())
        connection.execute(
            "CREATE PUBLICATION p FOR TABLE r WITH (publish_via_partition_root = true)"
        )
        there = f"{TREES.partition('INSERT')[0]} CREATE TABLE others PARTITION OF r DEFAULT"
        native = NativeSubscription(database, make_database, there, ["p"])
        s = scene(
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            definitions={"watch_interval_s": 0.0},
        )
        s.run_to("0/1")
        connection.execute("ALTER TABLE r ALTER b SET STATISTICS 10; INSERT INTO r VALUES (3, '3')")
        connection.execute("CREATE TABLE m (a int PRIMARY KEY, b text) PARTITION BY RANGE (a)")
        connection.execute("CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (200) TO (250)")
        connection.execute("INSERT INTO m VALUES (201, 'nobody')")
        connection.execute("ALTER TABLE r ATTACH PARTITION m FOR VALUES FROM (200) TO (300)")
        connection.execute("INSERT INTO r VALUES (202, 'both')")
        end = current_lsn(connection)
        s.run_to(end)
        native.wait_until_applied(end)

    assert s.rebuilt("r") == native.rows("r")
    assert (202, "both") in native.rows("r")
