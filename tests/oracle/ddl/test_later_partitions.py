"""Partitions that come into a tree of which not every partition can publish updates, and natively.

A partition without a replica identity keeps the tree from being read as a whole. Between CREATE
TABLE and the gateway's next look at the catalog, a new partition is in none of its publications by
itself.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gateway.source.provisioning.event_trigger import INSTALL
from tests.oracle.ddl.test_changing_publications import (
    finish,
    published_to,
    started,
)
from tests.oracle.ddl.test_detached_partitions import each, subscriber
from tests.support.backends.servers import Database, DatabaseFactory
from tests.support.gateway.native import NativeSubscription
from tests.support.gateway.scene import Scene, current_lsn
from tests.support.run.majors import EVALUATED_ON
from tests.support.run.waiting import wait_until

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.kafka,
    pytest.mark.parametrize("postgres_major", EVALUATED_ON, indirect=True),
]

MakeScene = Callable[..., Scene]
SUBSCRIBE = "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
PUBLISH = "CREATE PUBLICATION p FOR TABLE tree WITH (publish_via_partition_root)"
KEYED = """
    CREATE TABLE tree (a int PRIMARY KEY, b text) PARTITION BY RANGE (a);
    CREATE TABLE leaf PARTITION OF tree FOR VALUES FROM (0) TO (100);
    CREATE TABLE bare PARTITION OF tree FOR VALUES FROM (100) TO (200);
    ALTER TABLE bare REPLICA IDENTITY NOTHING;
    INSERT INTO tree VALUES (1, 'one'), (2, 'two'), (101, 'hundred')"""
KEYLESS = """
    CREATE TABLE tree (a int, b text) PARTITION BY RANGE (a);
    ALTER TABLE tree REPLICA IDENTITY FULL;
    CREATE TABLE leaf PARTITION OF tree FOR VALUES FROM (0) TO (100);
    ALTER TABLE leaf REPLICA IDENTITY FULL;
    CREATE TABLE bare PARTITION OF tree FOR VALUES FROM (100) TO (200);
    INSERT INTO tree VALUES (1, 'one'), (2, 'two'), (101, 'hundred')"""
LATER = "CREATE TABLE later PARTITION OF tree FOR VALUES FROM (200) TO (300)"
INSERTS = "INSERT INTO tree VALUES (3, 'three'), (103, 'third'), (201, 'first'), (202, 'second')"
CHANGES = "UPDATE tree SET b = b || '!' WHERE a IN (1, 201); DELETE FROM tree WHERE a IN (2, 202)"
AFTER = "INSERT INTO tree VALUES (204, 'fourth'); UPDATE tree SET b = b || '?' WHERE a IN (3, 201)"


def insert_only(interval_s: float = 3600.0) -> dict[str, dict[str, object]]:
    return {"definitions": {"missing_identity": "insert_only", "watch_interval_s": interval_s}}


def looked(scene: Scene) -> None:
    """Let the gateway look at the catalog."""
    ended = scene.cli("reload")
    assert ended.code == 0, ended.err


def copied_again(scene: Scene, table: str, times: int = 2) -> None:
    """Wait until a table has been copied so often."""

    def ready() -> bool:
        copies = [m["copy"] for m in scene.markers() if m["copy"] is not None]
        states = [copy["state"] for copy in copies if copy["table"] == table]
        return states.count("ready") >= times and states[-1] == "ready"

    wait_until(ready, 60, f"{table} to be copied again")


@pytest.mark.parametrize("then", [(), ("ALTER TABLE tree DETACH PARTITION later",)],
                         ids=["stays", "detached"])  # fmt: skip
@pytest.mark.parametrize("tables", [KEYED, KEYLESS], ids=["keyed", "keyless"])
def test_rows_of_a_new_partition_arrive_before_any_look_at_the_catalog(
    scene: MakeScene,
    database: Database,
    make_database: DatabaseFactory,
    tables: str,
    then: tuple[str, ...],
) -> None:
    key = "" if tables is KEYLESS else " PRIMARY KEY"
    with database.connect() as connection:
        each(connection, tables, PUBLISH)
        native = NativeSubscription(
            database, make_database, f"CREATE TABLE tree (a int{key}, b text)", ["p"]
        )
        s = scene(SUBSCRIBE, **insert_only())
        process = started(s)
        each(connection, LATER, INSERTS, *then)
        each(connection, "UPDATE tree SET b = b || '!' WHERE a = 1; DELETE FROM tree WHERE a = 2")
        finish(s, process, native, current_lsn(connection))

    assert (201, "first") in native.rows("tree")
    assert s.rebuilt("tree") == native.rows("tree")


@pytest.mark.parametrize("how", ["running", "stop", "told", "down", "interrupted"])
def test_updates_and_deletes_of_a_new_partition_before_the_next_look_are_not_lost(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, how: str
) -> None:
    with database.connect() as connection:
        each(connection, KEYED, PUBLISH, *([INSTALL] if how == "told" else []))
        native = NativeSubscription(database, make_database, subscriber("tree"), ["p"])
        settings = insert_only()
        settings["definitions"]["on_table_error"] = "stop" if how == "stop" else "hold"
        s = scene(SUBSCRIBE, **settings)
        process = started(s)
        if how in ("down", "interrupted"):
            assert process.terminate() == 0, process.log()
        each(connection, LATER, INSERTS, CHANGES)
        if how == "interrupted":  # after its look, before that counts
            each(connection, f'ALTER PUBLICATION "{s.slot}_leaf" ADD TABLE later')
        if how in ("down", "interrupted"):
            process = s.project.start()
        else:
            published_to(s, current_lsn(connection))
            looked(s)
        copied_again(s, "tree")
        each(connection, AFTER)
        finish(s, process, native, current_lsn(connection))

    assert {(201, "first!?"), (204, "fourth")} <= set(native.rows("tree"))
    assert s.rebuilt("tree") == native.rows("tree")


@pytest.mark.parametrize("identity", ["NOTHING", "DEFAULT"])
def test_rows_of_an_attached_partition_come_only_with_a_copy(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, identity: str
) -> None:
    with database.connect() as connection:
        each(connection, KEYED, PUBLISH)
        native = NativeSubscription(database, make_database, subscriber("tree"), ["p"])
        s = scene(SUBSCRIBE, **insert_only())
        process = started(s)
        each(
            connection,
            "CREATE TABLE later (a int PRIMARY KEY, b text)",
            f"ALTER TABLE later REPLICA IDENTITY {identity}",
            "INSERT INTO later VALUES (203, 'brought')",
            "ALTER TABLE tree ATTACH PARTITION later FOR VALUES FROM (200) TO (300)",
            INSERTS,
        )
        looked(s)
        if identity == "DEFAULT":
            copied_again(s, "tree")
        each(connection, "INSERT INTO tree VALUES (204, 'fourth'); DELETE FROM tree WHERE a = 1")
        finish(s, process, native, current_lsn(connection))
        source = connection.execute("SELECT a, b FROM tree").fetchall()

    assert (203, "brought") not in native.rows("tree")
    expected = source if identity == "DEFAULT" else native.rows("tree")
    assert sorted(s.rebuilt("tree")) == sorted(expected)


WHOLE = "ALTER TABLE bare REPLICA IDENTITY DEFAULT"


def test_updates_are_not_lost_when_a_look_ends_after_its_publications_are_narrower(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    """The tree was read whole, and the state of its copy says no more than that."""
    with database.connect() as connection:
        each(connection, KEYED, WHOLE, PUBLISH)
        native = NativeSubscription(database, make_database, subscriber("tree"), ["p"])
        s = scene(SUBSCRIBE, **insert_only())
        process = started(s)
        assert process.terminate() == 0, process.log()
        each(
            connection,
            WHOLE.replace("DEFAULT", "NOTHING"),
            f'ALTER PUBLICATION "{s.slot}_root" DROP TABLE tree',
            f'ALTER PUBLICATION "{s.slot}_root_insert" ADD TABLE tree',
            f'ALTER PUBLICATION "{s.slot}_leaf" ADD TABLE leaf',
            LATER,
            INSERTS,
            CHANGES,
        )
        process = s.project.start()
        copied_again(s, "tree")
        each(connection, AFTER)
        finish(s, process, native, current_lsn(connection))

    assert (201, "first!?") in native.rows("tree")
    assert s.rebuilt("tree") == native.rows("tree")


@pytest.mark.parametrize("point", ["sink.before_commit", "sink.committed"])
def test_updates_are_not_lost_when_a_start_ends_after_its_publications_are_narrower(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, point: str
) -> None:
    with database.connect() as connection:
        each(connection, KEYED, WHOLE, PUBLISH)
        native = NativeSubscription(database, make_database, subscriber("tree"), ["p"])
        s = scene(SUBSCRIBE, **insert_only())
        process = started(s)
        assert process.terminate() == 0, process.log()
        each(connection, WHOLE.replace("DEFAULT", "NOTHING"), "INSERT INTO tree VALUES (107, 'a')")
        s.project.start(environment={"PGSLUICE_FAILPOINT": point}).wait()
        each(connection, WHOLE, "DELETE FROM tree WHERE a = 101", CHANGES.replace("201", "107"))
        process = started(s)
        each(connection, "UPDATE tree SET b = b || '?' WHERE a < 100")
        finish(s, process, native, current_lsn(connection))

    assert native.rows("tree") == [(1, "one!?"), (107, "a!")]
    assert s.rebuilt("tree") == native.rows("tree")


GAINS = "ALTER TABLE bare REPLICA IDENTITY DEFAULT"
LOSES = "ALTER TABLE leaf REPLICA IDENTITY NOTHING"


@pytest.mark.parametrize("told", [False, True], ids=["running", "told"])
def test_updates_and_deletes_of_a_partition_that_gets_its_identity_are_not_lost(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, *, told: bool
) -> None:
    with database.connect() as connection:
        each(connection, KEYED, PUBLISH, *([INSTALL] if told else []))
        native = NativeSubscription(database, make_database, subscriber("tree"), ["p"])
        s = scene(SUBSCRIBE, **insert_only())
        process = started(s)
        each(
            connection,
            INSERTS.replace("201", "110").replace("202", "111"),
            LOSES,
            GAINS,
            "UPDATE tree SET b = b || '!' WHERE a = 101; DELETE FROM tree WHERE a IN (103, 110)",
        )
        looked(s)
        copied_again(s, "tree")
        each(
            connection,
            LOSES.replace("NOTHING", "DEFAULT"),
            "UPDATE tree SET b = b || '?' WHERE a IN (1, 101); DELETE FROM tree WHERE a = 2",
        )
        looked(s)
        copied_again(s, "tree", 3)
        each(connection, "UPDATE tree SET b = b || '.'; INSERT INTO bare VALUES (112, 'last')")
        finish(s, process, native, current_lsn(connection))

    assert (101, "hundred!?.") in native.rows("tree")
    assert s.rebuilt("tree") == native.rows("tree")


def test_updates_and_deletes_of_a_table_that_gets_its_identity_are_not_lost(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    table = "CREATE TABLE t (a int, b text)"
    with database.connect() as connection:
        each(connection, table, "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
        each(connection, "CREATE PUBLICATION p FOR TABLE t")
        native = NativeSubscription(database, make_database, table, ["p"])
        s = scene(SUBSCRIBE, **insert_only())
        process = started(s)
        each(connection, "INSERT INTO t VALUES (3, 'three')", "ALTER TABLE t REPLICA IDENTITY FULL")
        each(connection, "UPDATE t SET b = b || '!' WHERE a = 1; DELETE FROM t WHERE a = 2")
        looked(s)
        copied_again(s, "t")
        each(connection, "UPDATE t SET b = b || '?'")
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("t") == native.rows("t") == [(1, "one!?"), (3, "three?")]


def test_a_new_partition_of_a_subtree_is_read_under_the_root(
    scene: MakeScene, database: Database, make_database: DatabaseFactory
) -> None:
    with database.connect() as connection:
        each(
            connection,
            KEYED,
            "CREATE TABLE middle PARTITION OF tree FOR VALUES FROM (200) TO (400)"
            " PARTITION BY RANGE (a)",
            "CREATE TABLE low PARTITION OF middle FOR VALUES FROM (200) TO (300)",
            PUBLISH,
        )
        native = NativeSubscription(database, make_database, subscriber("tree"), ["p"])
        s = scene(SUBSCRIBE, **insert_only(0.5))
        process = started(s)
        each(
            connection,
            "CREATE TABLE high PARTITION OF middle FOR VALUES FROM (300) TO (400)",
            "INSERT INTO tree VALUES (3, 'three'), (201, 'low'), (301, 'high'), (302, 'higher')",
            "UPDATE tree SET b = b || '!' WHERE a IN (201, 301); DELETE FROM tree WHERE a = 302",
        )
        copied_again(s, "tree")
        each(connection, "UPDATE tree SET b = b || '?' WHERE a IN (3, 301)")
        each(connection, "TRUNCATE middle", "INSERT INTO tree VALUES (303, 'new')")
        finish(s, process, native, current_lsn(connection))

    assert (301, "high!?") in native.rows("tree")
    assert s.rebuilt("tree") == native.rows("tree")


@pytest.mark.parametrize("is_down", [False, True], ids=["running", "down"])
def test_a_partition_that_is_named_beside_its_tree_leaves_it_as_natively(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, *, is_down: bool
) -> None:
    with database.connect() as connection:
        each(connection, KEYED, PUBLISH)
        native = NativeSubscription(database, make_database, subscriber("tree"), ["p"])
        s = scene(SUBSCRIBE, **insert_only())
        process = started(s)
        if is_down:
            assert process.terminate() == 0, process.log()
        each(
            connection,
            "UPDATE tree SET b = b || '!' WHERE a = 1",
            "ALTER TABLE tree DETACH PARTITION leaf",
            "INSERT INTO leaf VALUES (4, 'four'); UPDATE leaf SET b = b || '?'",
            "DELETE FROM leaf WHERE a = 2; INSERT INTO tree VALUES (104, 'fourth')",
        )
        if is_down:
            process = s.project.start()
        finish(s, process, native, current_lsn(connection))

    assert s.rebuilt("tree") == native.rows("tree")


@pytest.mark.parametrize("tables", [KEYED, KEYLESS.replace("ALTER TABLE tree REPLICA", "--")],
                         ids=["two levels", "a root without a key"])  # fmt: skip
def test_rows_of_a_new_partition_of_a_tree_that_is_read_by_leaf_arrive(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, tables: str
) -> None:
    key = " PRIMARY KEY" if tables is KEYED else ""
    taken = {"p": "tree", "q": "leaf"} if tables is KEYED else {"p": "tree"}
    with database.connect() as connection:
        each(connection, tables, PUBLISH, "CREATE PUBLICATION q FOR TABLE leaf")
        native = {
            name: NativeSubscription(
                database, make_database, f"CREATE TABLE {table} (a int{key}, b text)", [name]
            )
            for name, table in taken.items()
        }
        s = scene(
            "".join(
                f"CREATE SUBSCRIPTION {{s}}_{name} CONNECTION '' PUBLICATION {name};"
                for name in taken
            ),
            **insert_only(),
        )
        process = started(s)
        each(connection, LATER, INSERTS)
        end = current_lsn(connection)
        for name in taken:
            published_to(s, end, f"{s.slot}_{name}")
            native[name].wait_until_applied(end)
        assert process.terminate() == 0, process.log()

    assert (201, "first") in native["p"].rows("tree")
    assert {name: s.rebuilt(table, f"{s.slot}_{name}") for name, table in taken.items()} == {
        name: native[name].rows(table) for name, table in taken.items()
    }


@pytest.mark.parametrize("subscribed", [["p, q"], ["p", "q"]], ids=["one", "two"])
def test_a_tree_of_which_only_one_partition_publishes_updates_arrives_as_natively(
    scene: MakeScene, database: Database, make_database: DatabaseFactory, subscribed: list[str]
) -> None:
    with database.connect() as connection:
        each(
            connection,
            KEYED,
            "ALTER TABLE bare REPLICA IDENTITY DEFAULT",
            f"{PUBLISH[:-1]}, publish = 'insert')",
            "CREATE PUBLICATION q FOR TABLE leaf",
        )
        native = [
            NativeSubscription(
                database,
                make_database,
                subscriber("leaf" if names == "q" else "tree"),
                names.split(", "),
            )
            for names in subscribed
        ]
        s = scene(
            "".join(
                f"CREATE SUBSCRIPTION {{s}}_{n} CONNECTION '' PUBLICATION {names};"
                for n, names in enumerate(subscribed)
            ),
            definitions={"watch_interval_s": 3600.0},
        )
        process = started(s)
        each(connection, LATER, INSERTS, CHANGES)
        each(connection, "UPDATE tree SET b = b || '?'; DELETE FROM tree WHERE a IN (3, 103)")
        end = current_lsn(connection)
        for n, one in enumerate(native):
            published_to(s, end, f"{s.slot}_{n}")
            one.wait_until_applied(end)
        assert process.terminate() == 0, process.log()

    assert (201, "first") in native[0].rows("tree")
    for n, (names, one) in enumerate(zip(subscribed, native, strict=True)):
        table = "leaf" if names == "q" else "tree"
        assert s.rebuilt(table, f"{s.slot}_{n}") == one.rows(table)


def test_updates_that_one_subscription_cannot_have_are_not_sent_to_it_for_another(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        each(connection, KEYED, "ALTER TABLE bare REPLICA IDENTITY DEFAULT", PUBLISH)
        s = scene(
            "CREATE PUBLICATION q FOR TABLE tree WHERE (b <> 'none')"
            " WITH (publish_via_partition_root);"
            "CREATE SUBSCRIPTION {s}_whole CONNECTION '' PUBLICATION p;"
            "CREATE SUBSCRIPTION {s}_few CONNECTION '' PUBLICATION q;",
            **insert_only(),
        )
        process = started(s)
        each(connection, LATER, INSERTS, CHANGES)
        end = current_lsn(connection)
        for name in ("whole", "few"):
            published_to(s, end, f"{s.slot}_{name}")
        assert process.terminate() == 0, process.log()

    ops = {n: {r.op for r in s.read("tree", f"{s.slot}_{n}")} for n in ("whole", "few")}
    assert ops == {"whole": {"t", "r", "c", "u", "d"}, "few": {"t", "r", "c"}}
