"""Somebody else alters the gateway's own publications: no change is lost without a word."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg
import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    wait_until_confirmed,
)
from tests.support.run.majors import alternating
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
QUICK = {"definitions": {"watch_interval_s": 0.5}}
ROWS = "SELECT n, n FROM generate_series(1, 9) AS n"
TABLES = f"""
CREATE TABLE t (a int PRIMARY KEY, b int); INSERT INTO t {ROWS};
CREATE TABLE f (a int PRIMARY KEY, b int); INSERT INTO f {ROWS};
CREATE TABLE u (a int PRIMARY KEY, b int); INSERT INTO u {ROWS};
CREATE TABLE tree (a int PRIMARY KEY, b int) PARTITION BY RANGE (a);
CREATE TABLE low PARTITION OF tree FOR VALUES FROM (0) TO (5);
CREATE TABLE high PARTITION OF tree FOR VALUES FROM (5) TO (1000);
INSERT INTO tree {ROWS};
"""
DEFINITIONS = """
CREATE PUBLICATION p FOR TABLE t, f WHERE (a > 5), u;
CREATE PUBLICATION r FOR TABLE tree WITH (publish_via_partition_root = true);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p, r;
"""
CONTENTS = {
    "t": "SELECT * FROM t",
    "f": "SELECT * FROM f WHERE a > 5",
    "u": "SELECT * FROM u",
    "tree": "SELECT * FROM tree",
}
OUT = "somebody has taken it out of the gateway's publications: changes of it are missing"
OTHERWISE = "somebody has altered how the gateway's publications have it: changes of it are missing"


def change(connection: Connection) -> None:
    """Insert, update and delete rows of all tables."""
    for table in CONTENTS:
        connection.execute(
            f"INSERT INTO {table} SELECT max(a) + 1, 0 FROM {table};"
            f"UPDATE {table} SET b = b + 1 WHERE a IN (3, 7); DELETE FROM {table} WHERE a = 8;"
            f"UPDATE {table} SET a = a + 100 WHERE a = 6".encode()
        )


def is_as_the_source(s: Scene) -> bool:
    return all(s.rebuilt(table) == s.source_rows(query) for table, query in CONTENTS.items())


def states(s: Scene, table: str) -> list[tuple[str, str | None]]:
    """State and reason of each COPY marker of a table."""
    copies = [m["copy"] for m in s.markers() if m["copy"] is not None]
    return [(copy["state"], copy["reason"]) for copy in copies if copy["table"] == table]


def alter(connection: Connection, s: Scene, statements: Sequence[str]) -> None:
    for statement in statements:
        connection.execute(f"ALTER PUBLICATION {s.slot}_{statement}".encode())


ALTERED = [
    pytest.param(["leaf DROP TABLE t"], {"t": OUT}, id="a table is taken out"),
    pytest.param(["root DROP TABLE tree"], {"tree": OUT}, id="a tree is taken out"),
    pytest.param(
        ["leaf SET (publish = 'insert')"],
        {"t": OTHERWISE, "f": OTHERWISE, "u": OTHERWISE},
        id="operations are left out",
    ),
    pytest.param(
        ["leaf DROP TABLE f", "leaf ADD TABLE f WHERE (a > 50)"],
        {"f": OTHERWISE},
        id="another row filter",
    ),
    pytest.param(
        ["leaf DROP TABLE t", "leaf ADD TABLE t WHERE (a > 5)"], {"t": OTHERWISE}, id="a row filter"
    ),
    pytest.param(
        ["leaf DROP TABLE t", "leaf ADD TABLE t (a)"], {"t": OTHERWISE}, id="a column list"
    ),
    pytest.param(
        ["root SET (publish_via_partition_root = false)"],
        {"tree": OTHERWISE},
        id="partitions instead of their tree",
    ),
]


@pytest.mark.parametrize("when", ["while it runs", "while it is down"])
@pytest.mark.parametrize(("statements", "reasons"), ALTERED)
@alternating(__name__, 15, 18)
def test_a_table_that_others_take_out_is_held_and_copied_again(
    scene: MakeScene,
    database: Database,
    statements: list[str],
    reasons: dict[str, str],
    when: str,
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **QUICK)
        gateway = s.project.start()
        gateway.wait_until_copied()
        if when == "while it is down":
            assert gateway.terminate() == 0, gateway.log()

        alter(connection, s, statements)
        change(connection)
        if when == "while it is down":
            gateway = s.project.start()

        wait_until(lambda: is_as_the_source(s), 60, "the changes to be with the subscriber")
        change(connection)
        wait_until(lambda: is_as_the_source(s), 60, "further changes")
        wait_until(lambda: s.cli("status").code == 0, 60, "all to be well")
        assert s.cli("check", "--sql").out == ""
        assert gateway.terminate() == 0, gateway.log()
    for table in CONTENTS:
        copied = ["pending", "copying", "ready"]
        found = states(s, table)
        if table not in reasons:
            assert [state for state, _ in found] == copied, "it has nothing to do with it"
            continue
        assert [state for state, _ in found[-4:]] == ["held", *copied]
        assert found[-4][1] == reasons[table]
        assert reasons[table] in gateway.log()
    assert_exactly_once(s, CONTENTS)


@pytest.mark.parametrize(
    ("statements", "back", "table"),
    [
        pytest.param(["leaf DROP TABLE t"], ["leaf ADD TABLE t"], "t", id="a table"),
        pytest.param(["root DROP TABLE tree"], ["root ADD TABLE tree"], "tree", id="a tree"),
        pytest.param(
            ["root SET (publish = 'insert')"],
            ["root SET (publish = 'insert, update, delete, truncate')"],
            "tree",
            id="operations",
        ),
    ],
)
def test_what_is_taken_out_and_comes_back_between_two_looks_is_noticed(
    scene: MakeScene, database: Database, statements: list[str], back: list[str], table: str
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, definitions={"watch_interval_s": 2})
        gateway = s.project.start()
        gateway.wait_until_copied()
        # The gateway has made its first look when it has answered this one.
        assert s.cli("reload").code == 0

        alter(connection, s, statements)
        change(connection)
        alter(connection, s, back)

        wait_until(lambda: is_as_the_source(s), 60, "the changes to be with the subscriber")
        assert gateway.terminate() == 0, gateway.log()
    assert "held" in [state for state, _ in states(s, table)]
    assert_exactly_once(s, CONTENTS)


def test_what_comes_back_before_the_next_stream_begins_is_noticed(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, definitions={"watch_interval_s": 0})
        gateway = s.project.start()
        gateway.wait_until_copied()
        # The gateway has made its first look when it has answered this one.
        assert s.cli("reload").code == 0
        answer = "nothing has changed in the definitions"
        wait_until(lambda: answer in gateway.log(), 60, "the first look")

        alter(connection, s, ["leaf DROP TABLE t"])
        change(connection)
        alter(connection, s, ["leaf ADD TABLE t"])
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
            " WHERE slot_name = %s",
            [s.slot],
        )

        wait_until(lambda: ("held", OUT) in states(s, "t"), 60, "the table to be held")
        wait_until(lambda: is_as_the_source(s), 60, "the changes to be with the subscriber")
        assert "changes of a table are missing" in gateway.log()
        assert gateway.terminate() == 0, gateway.log()
    assert_exactly_once(s, CONTENTS)


def test_a_table_is_held_also_while_changed_definitions_are_refused(
    scene: MakeScene, database: Database
) -> None:
    def define(definitions: str) -> None:
        s.project.definitions = definitions.replace("{s}", s.slot)
        s.project.write()

    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **QUICK)
        gateway = s.project.start()
        gateway.wait_until_copied()
        define(DEFINITIONS.replace("FOR TABLE t", "FOR TABLE nowhere, t WHERE (nothing > 1)"))
        alter(connection, s, ["leaf DROP TABLE t"])
        change(connection)
        wait_until(lambda: ("held", OUT) in states(s, "t"), 60, "the table to be held")
        change(connection)
        wait_until_confirmed(connection, s.slot)
        assert s.rebuilt("u") == s.source_rows(CONTENTS["u"])
        refused = "changed definitions are refused, the old ones stay in force"
        assert refused in gateway.log()

        define(DEFINITIONS)
        wait_until(lambda: is_as_the_source(s), 60, "the changes to be with the subscriber")
        wait_until(lambda: s.cli("status").code == 0, 60, "all to be well")
        assert gateway.terminate() == 0, gateway.log()
    assert_exactly_once(s, CONTENTS)


@pytest.mark.parametrize("when", ["while it runs", "while it is down"])
def test_a_table_that_only_its_owner_may_add_again_waits_for_that_and_others_go_on(
    scene: MakeScene, database: Database, when: str
) -> None:
    role = f"role_{database.name}"
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION".encode())
        connection.execute(f"GRANT SELECT ON t, f, u, tree TO {role}".encode())
        try:
            dsn = psycopg.conninfo.make_conninfo(database.dsn, user=role)
            s = scene(DEFINITIONS, source={"dsn": dsn}, **QUICK)
            for statement in s.cli("check", "--sql").out.splitlines():
                connection.execute(statement.encode())
            gateway = s.project.start()
            gateway.wait_until_copied()
            if when == "while it is down":
                assert gateway.terminate() == 0, gateway.log()
            alter(connection, s, ["leaf DROP TABLE t"])
            change(connection)
            if when == "while it is down":
                gateway = s.project.start()

            waits = "public.t: held, must be owner of table public.t"
            wait_until(lambda: waits in s.cli("status").out, 60, "the table to wait for its owner")
            assert s.cli("status").code == 1
            change(connection)
            wait_until_confirmed(connection, s.slot)
            assert s.rebuilt("u") == s.source_rows(CONTENTS["u"])
            assert gateway.terminate() == 0, gateway.log()
            gateway = s.project.start()
            wait_until(lambda: gateway.is_doing("streaming"), 60, "others to go on")
            assert waits in s.cli("status").out

            statements = s.cli("check", "--sql").out.splitlines()
            assert statements == [f"ALTER PUBLICATION {s.slot}_leaf ADD TABLE ONLY public.t;"]
            connection.execute(statements[0].encode())

            wait_until(lambda: is_as_the_source(s), 60, "the changes to be with the subscriber")
            wait_until(lambda: s.cli("status").code == 0, 60, "all to be well")
            assert gateway.terminate() == 0, gateway.log()
            assert OUT in [reason for _, reason in states(s, "t")]
        finally:
            s.close()
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


@pytest.mark.parametrize("postgres_major", [18], indirect=True)
def test_what_a_look_has_found_is_not_forgotten_while_a_filtered_table_is_locked(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection, database.connect() as holder:
        connection.execute(TABLES.encode())
        connection.execute("CREATE SCHEMA more")
        s = scene(
            "CREATE PUBLICATION p FOR TABLE f WHERE (a > 5);"
            "CREATE PUBLICATION q FOR TABLES IN SCHEMA more;"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p, q;",
            filters={"pushdown": True},
            **QUICK,
        )
        gateway = s.project.start()
        gateway.wait_until_copied()
        with holder.transaction():
            holder.execute("LOCK TABLE f")
            connection.execute("CREATE TABLE more.n (a int PRIMARY KEY)")
            wait_until(lambda: "reload postponed" in gateway.log(), 60, "the lock to be noticed")

        wait_until(lambda: ("ready", None) in states(s, "n"), 60, "the new table to be copied")
        assert gateway.terminate() == 0, gateway.log()


MISSING = "the server decodes without a publication"


@pytest.mark.parametrize(
    "statement",
    ["DROP PUBLICATION {}_leaf", "ALTER PUBLICATION {}_leaf RENAME TO x"],
    ids=["dropped", "renamed"],
)
@pytest.mark.parametrize("when", ["while it runs", "while it is down"])
@alternating(__name__, 15, 18)
def test_a_publication_that_is_not_there_ends_the_gateway_if_it_misses_a_change(
    scene: MakeScene, database: Database, statement: str, when: str
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, **QUICK)
        gateway = s.project.start()
        gateway.wait_until_copied()
        if when == "while it is down":
            assert gateway.terminate() == 0, gateway.log()
        connection.execute(statement.format(s.slot).encode())
        change(connection)
        if when == "while it is down":
            gateway = s.project.start()

        assert gateway.wait() == 1
        assert MISSING in gateway.log()
        assert "drop the slot and repeat the initial copy" in gateway.log()


ORDERS = """
CREATE TABLE customers (a int PRIMARY KEY, b int); INSERT INTO customers SELECT n, n % 2
    FROM generate_series(1, 9) AS n;
CREATE TABLE orders (a int PRIMARY KEY, c int); INSERT INTO orders SELECT n, n % 10
    FROM generate_series(1, 30) AS n;
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
"""
INNER = (
    "somebody has altered how the gateway's publications have a table that its filter reads: "
    "changes of that one are missing"
)


@pytest.mark.parametrize("when", ["while it runs", "while it is down"])
def test_a_table_is_copied_again_if_one_that_its_filter_reads_is_taken_out(
    scene: MakeScene, database: Database, when: str
) -> None:
    chosen = "c IN (SELECT a FROM customers WHERE b = 1)"
    query = f"SELECT * FROM orders WHERE {chosen}"
    with database.connect() as connection:
        connection.execute(ORDERS.encode())
        s = scene(
            f"CREATE PUBLICATION p FOR TABLE orders WHERE ({chosen});"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            **QUICK,
        )
        gateway = s.project.start()
        gateway.wait_until_copied()
        if when == "while it is down":
            assert gateway.terminate() == 0, gateway.log()

        alter(connection, s, ["leaf DROP TABLE customers"])
        connection.execute("UPDATE customers SET b = 1 - b WHERE a < 6")
        if when == "while it is down":
            gateway = s.project.start()

        wait_until(lambda: s.rebuilt("orders") == s.source_rows(query), 60, "the changes")
        connection.execute("UPDATE customers SET b = 1 - b WHERE a > 3")
        wait_until(lambda: s.rebuilt("orders") == s.source_rows(query), 60, "further changes")
        assert gateway.terminate() == 0, gateway.log()
    assert ("held", INNER) in states(s, "orders")
    assert_exactly_once(s, ["orders"])


def test_a_table_that_shares_a_set_with_one_that_is_taken_out_is_not_copied_again(
    scene: MakeScene, database: Database
) -> None:
    chosen = "c IN (SELECT a FROM customers WHERE b = 1)"
    with database.connect() as connection:
        connection.execute(ORDERS.encode())
        connection.execute(
            "CREATE TABLE offers (a int PRIMARY KEY, c int); ALTER TABLE offers REPLICA IDENTITY"
            " FULL; INSERT INTO offers SELECT a, c FROM orders"
        )
        s = scene(
            f"CREATE PUBLICATION p FOR TABLE orders WHERE ({chosen}), offers WHERE ({chosen});"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;",
            **QUICK,
        )
        gateway = s.project.start()
        gateway.wait_until_copied()

        alter(connection, s, ["leaf DROP TABLE orders"])
        connection.execute("UPDATE orders SET c = c + 1; UPDATE customers SET b = 1 - b")
        wait_until(
            lambda: all(
                s.rebuilt(table) == s.source_rows(f"SELECT * FROM {table} WHERE {chosen}")
                for table in ("orders", "offers")
            ),
            60,
            "the changes",
        )
        assert gateway.terminate() == 0, gateway.log()
    assert ("held", OUT) in states(s, "orders")
    assert [state for state, _ in states(s, "offers")] == ["pending", "copying", "ready"]
    assert_exactly_once(s, ["orders", "offers"])
