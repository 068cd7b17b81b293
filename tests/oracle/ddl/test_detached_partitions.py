"""Partitions that stay published when they are detached, and natively.

No look at the catalog falls between a DETACH and what is written after it: what arrives is decided
by what was in the gateway's own publications before.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.oracle.ddl.test_changing_publications import (
    copied,
    finish,
    published_to,
    refresh,
    started,
)
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Connection, Scene, current_lsn, value_of
from tests.support.run.majors import EVALUATED_ON
from tests.support.run.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

MakeScene = Callable[..., Scene]
UNSEEN = {"definitions": {"watch_interval_s": 3600.0}}
TREE = """
    CREATE TABLE tree (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
    CREATE TABLE leaf PARTITION OF tree FOR VALUES FROM (0) TO (100);
    CREATE TABLE other PARTITION OF tree FOR VALUES FROM (100) TO (200);
    INSERT INTO tree VALUES (1, 'one'), (2, 'two'), (101, 'hundred');"""
DETACH = "ALTER TABLE tree DETACH PARTITION leaf"
ATTACH = "ALTER TABLE tree ATTACH PARTITION leaf FOR VALUES FROM (0) TO (100)"
WRITE = (
    "INSERT INTO leaf VALUES (3, 'three'); UPDATE leaf SET b = b || '!' WHERE a = 1;"
    " DELETE FROM leaf WHERE a = 2; INSERT INTO tree VALUES (103, 'third')"
)
BY_THEMSELVES = ["ALL TABLES", "TABLES IN SCHEMA public", "TABLE tree, leaf"]


def subscriber(*names: str) -> str:
    return "".join(f"CREATE TABLE {name} (a int PRIMARY KEY, b text);" for name in names)


def each(connection: Connection, *statements: str) -> None:
    for statement in statements:
        connection.execute(statement.encode())


def assert_as_natively(scene: Scene, native: NativeSubscription, *names: str) -> None:
    assert {name: scene.rebuilt(name) for name in names} == {
        name: native.rows(name) for name in names
    }


@pytest.mark.parametrize("then", [(), (ATTACH,), ("DROP TABLE leaf",)],
                         ids=["detached", "attached again", "dropped"])  # fmt: skip
@pytest.mark.parametrize("kind", BY_THEMSELVES)
def test_rows_of_a_detached_partition_arrive_as_natively(
    scene: MakeScene,
    database: Database,
    make_database: DatabaseFactory,
    kind: str,
    then: tuple[str, ...],
) -> None:
    with database.connect() as connection:
        each(connection, TREE, f"CREATE PUBLICATION p FOR {kind}")
        native = NativeSubscription(database, make_database, subscriber("leaf", "other"), ["p"])
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;", **UNSEEN)
        process = started(s)
        each(connection, DETACH, WRITE, *then, "INSERT INTO tree VALUES (104, 'fourth')")
        finish(s, process, native, current_lsn(connection))

    assert (3, "three") in native.rows("leaf")
    assert_as_natively(s, native, "leaf", "other")


def test_a_partition_that_the_file_names_arrives_when_it_is_detached_concurrently(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    published = "CREATE PUBLICATION p FOR TABLE tree, leaf;"
    with database.connect() as connection:
        each(connection, TREE, published)
        native = NativeSubscription(database, make_database, subscriber("leaf", "other"), ["p"])
        s = scene(f"{published} CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p;", **UNSEEN)
        process = started(s)
        each(connection, f"{DETACH} CONCURRENTLY", WRITE)
        finish(s, process, native, current_lsn(connection))

    assert_as_natively(s, native, "leaf", "other")


def test_parts_of_a_detached_subtree_arrive_as_natively(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    names = ("low", "high", "other")
    with database.connect() as connection:
        each(
            connection,
            """CREATE TABLE tree (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
            CREATE TABLE middle PARTITION OF tree FOR VALUES FROM (0) TO (100)
                PARTITION BY RANGE (a);
            CREATE TABLE low PARTITION OF middle FOR VALUES FROM (0) TO (50);
            CREATE TABLE high PARTITION OF middle FOR VALUES FROM (50) TO (100);
            CREATE TABLE other PARTITION OF tree FOR VALUES FROM (100) TO (200);
            INSERT INTO tree VALUES (1, 'one'), (51, 'fifty'), (101, 'hundred')""",
            "CREATE PUBLICATION p FOR TABLE tree, middle, low",
        )
        native = NativeSubscription(database, make_database, subscriber(*names), ["p"])
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;", **UNSEEN)
        process = started(s)
        each(
            connection,
            "ALTER TABLE tree DETACH PARTITION middle",
            "INSERT INTO middle VALUES (2, 'two'), (52, 'second'); DELETE FROM middle WHERE a = 1",
            "ALTER TABLE middle DETACH PARTITION low; ALTER TABLE middle DETACH PARTITION high",
            "INSERT INTO low VALUES (3, 'three'); UPDATE low SET b = b || '!'",
            "ALTER TABLE middle ATTACH PARTITION low FOR VALUES FROM (0) TO (50)",
            "ALTER TABLE middle ATTACH PARTITION high FOR VALUES FROM (50) TO (100)",
            "ALTER TABLE tree ATTACH PARTITION middle FOR VALUES FROM (0) TO (100)",
            "INSERT INTO tree VALUES (4, 'four'), (54, 'fourth'), (104, 'last')",
        )
        finish(s, process, native, current_lsn(connection))

    assert_as_natively(s, native, *names)


def test_a_subtree_that_another_subscription_has_as_one_table_stays_whole(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    taken = {"roots": "tree", "subtrees": "middle"}
    with database.connect() as connection:
        each(
            connection,
            """CREATE TABLE tree (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
            CREATE TABLE middle PARTITION OF tree FOR VALUES FROM (0) TO (100)
                PARTITION BY RANGE (a);
            CREATE TABLE low PARTITION OF middle FOR VALUES FROM (0) TO (50);
            INSERT INTO tree VALUES (1, 'one'), (2, 'two')""",
            *(
                f"CREATE PUBLICATION {name} FOR TABLE {table} WITH (publish_via_partition_root)"
                for name, table in taken.items()
            ),
        )
        native = {
            name: NativeSubscription(database, make_database, subscriber(table), [name])
            for name, table in taken.items()
        }
        s = scene(
            "CREATE SUBSCRIPTION {s}_roots CONNECTION '' PUBLICATION roots;"
            " CREATE SUBSCRIPTION {s}_subtrees CONNECTION '' PUBLICATION subtrees;",
            **UNSEEN,
        )
        process = started(s)
        each(
            connection,
            "ALTER TABLE tree DETACH PARTITION middle",
            "CREATE TABLE high PARTITION OF middle FOR VALUES FROM (50) TO (100)",
            "INSERT INTO middle VALUES (3, 'three'), (53, 'third'); DELETE FROM middle WHERE a = 1",
        )
        end = current_lsn(connection)
        for name in taken:
            published_to(s, end, f"{s.slot}_{name}")
            native[name].wait_until_applied(end)
        assert process.terminate() == 0, process.log()

    assert {name: s.rebuilt(table, f"{s.slot}_{name}") for name, table in taken.items()} == {
        name: native[name].rows(table) for name, table in taken.items()
    }


@pytest.mark.parametrize("tables", ["leaf", "tree, leaf"],
                         ids=["in a publication of its own", "beside its tree"])  # fmt: skip
def test_a_detached_partition_has_the_filter_of_its_own_membership(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, tables: str
) -> None:
    rows = (5, 15, 25, 35)
    with database.connect() as connection:
        each(
            connection,
            TREE,
            "CREATE PUBLICATION p FOR TABLE tree",
            f"CREATE PUBLICATION q FOR TABLE {tables} WHERE (a > 10)",
        )
        native = NativeSubscription(
            database, make_database, subscriber("leaf", "other"), ["p", "q"]
        )
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p, q;", **UNSEEN)
        process = started(s)
        for n, move in enumerate((DETACH, ATTACH, DETACH)):
            each(
                connection,
                move,
                *(f"INSERT INTO leaf VALUES ({row + n}, 'new')" for row in rows),
                f"UPDATE leaf SET a = a + 50 WHERE a = {5 + n};"
                f"UPDATE leaf SET b = b || '!' WHERE a > 10; DELETE FROM leaf WHERE a = {15 + n}",
            )
            published_to(s, current_lsn(connection))
        finish(s, process, native, current_lsn(connection))

    assert_as_natively(s, native, "leaf", "other")


def test_a_partition_that_came_later_arrives_when_it_is_detached(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        each(connection, TREE, "CREATE PUBLICATION p FOR ALL TABLES")
        native = NativeSubscription(database, make_database, subscriber("leaf", "other"), ["p"])
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;", **UNSEEN)
        process = started(s)
        each(
            connection,
            "CREATE TABLE later PARTITION OF tree FOR VALUES FROM (200) TO (300)",
            "CREATE TABLE joined (a int PRIMARY KEY, b text)",
            "INSERT INTO joined VALUES (301, 'first')",
            "ALTER TABLE tree ATTACH PARTITION joined FOR VALUES FROM (300) TO (400)",
        )
        reloaded = s.cli("reload")
        assert reloaded.code == 0, reloaded.err
        copied(s, "later")
        copied(s, "joined")
        refresh(native, subscriber("later", "joined"))
        each(
            connection,
            "ALTER TABLE tree DETACH PARTITION later; ALTER TABLE tree DETACH PARTITION joined",
            "INSERT INTO later VALUES (202, 'two'); INSERT INTO joined VALUES (302, 'second')",
            "ALTER TABLE tree ATTACH PARTITION later FOR VALUES FROM (200) TO (300)",
        )
        finish(s, process, native, current_lsn(connection))

    assert_as_natively(s, native, "leaf", "later", "joined")


def test_a_detached_partition_of_a_tree_that_is_one_table_leaves_it_as_natively(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        each(
            connection,
            TREE,
            "CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root)",
        )
        native = NativeSubscription(database, make_database, subscriber("tree"), ["p"])
        s = scene("CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;", **UNSEEN)
        process = started(s)
        each(connection, DETACH, WRITE)
        reloaded = s.cli("reload")
        assert reloaded.code == 0, reloaded.err
        copied(s, "leaf")
        refresh(native, subscriber("leaf"))
        each(connection, "INSERT INTO leaf VALUES (4, 'four'); DELETE FROM leaf WHERE a = 3")
        finish(s, process, native, current_lsn(connection))

    assert_as_natively(s, native, "tree", "leaf")


def test_a_partition_of_another_owner_arrives_once_the_owner_has_run_the_checks_sql(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    role = f"role_{database.name}"
    with database.connect() as connection:
        each(
            connection,
            TREE,
            "CREATE PUBLICATION p FOR ALL TABLES",
            f"CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON leaf TO {role};"
            f"GRANT CREATE, TEMPORARY ON DATABASE {database.name} TO {role};"
            f"ALTER TABLE tree OWNER TO {role}; ALTER TABLE other OWNER TO {role}",
        )
        try:
            native = NativeSubscription(database, make_database, subscriber("leaf", "other"), ["p"])
            dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
            s = scene(
                "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
                source={"dsn": dsn},
                **UNSEEN,
            )
            process = started(s)
            process.wait_for("the gateway's publications lack partitions")
            checked = s.cli("check")
            assert checked.code == 0, checked.out
            assert "cannot add 1 of the partitions that stay published" in checked.out
            assert "an owner of both the partitions and the publications" in checked.out
            statements = s.cli("check", "--sql").out.splitlines()
            assert statements
            each(connection, *statements)
            assert s.cli("check", "--sql").out == ""
            assert "partitions that stay published" not in s.cli("check").out
            each(connection, DETACH, WRITE, ATTACH)
            finish(s, process, native, current_lsn(connection))
        finally:
            each(connection, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")

    assert_as_natively(s, native, "leaf", "other")


def test_a_partition_that_was_locked_at_the_start_arrives_after_that(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    is_member = "SELECT EXISTS (SELECT FROM pg_publication_rel WHERE prrelid = 'leaf'::regclass)"
    with database.connect() as connection:
        each(connection, TREE, "CREATE PUBLICATION p FOR ALL TABLES")
        native = NativeSubscription(database, make_database, subscriber("leaf", "other"), ["p"])
        s = scene(
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            definitions={"watch_interval_s": 0.5},
        )
        with database.connect() as other, other.transaction():
            other.execute("LOCK TABLE leaf IN SHARE UPDATE EXCLUSIVE MODE")
            process = started(s)
            process.wait_for("they are locked: the gateway tries again")
        wait_until(lambda: value_of(connection, is_member), 60, "leaf to be added")
        each(connection, DETACH, WRITE, ATTACH)
        finish(s, process, native, current_lsn(connection))

    assert_as_natively(s, native, "leaf", "other")
