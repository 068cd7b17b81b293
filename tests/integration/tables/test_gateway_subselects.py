"""Filters over other tables: a gateway whose outer tables follow the inner ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    wait_until_slot_is_free,
)
from tests.support.run.majors import alternating
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TABLES = """
CREATE TABLE cities (id int PRIMARY KEY, country text);
CREATE TABLE customers (id int PRIMARY KEY, city int, tenant int);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int);
ALTER TABLE cities REPLICA IDENTITY FULL;
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO cities VALUES (1, 'FR'), (2, 'US'), (3, NULL);
INSERT INTO customers SELECT n, n % 3 + 1, n % 5 FROM generate_series(1, 20) AS n;
INSERT INTO orders SELECT n, n % 25, n FROM generate_series(1, 300) AS n;
"""
TENANT = "customer IN (SELECT id FROM customers WHERE tenant = 1)"
FRENCH = (
    "customer IN (SELECT id FROM customers WHERE city IN"
    " (SELECT id FROM cities WHERE country = 'FR'))"
)
DEFINITIONS = (
    f"CREATE PUBLICATION p_tenant FOR TABLE orders WHERE ({TENANT});"
    f"CREATE PUBLICATION p_french FOR TABLE orders WHERE ({FRENCH} AND amount > 10);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p_tenant;"
    "CREATE SUBSCRIPTION {s}_french CONNECTION '' PUBLICATION p_french;"
)


def assert_as_the_source(s: Scene) -> None:
    assert s.rebuilt("orders") == s.source_rows(f"SELECT * FROM orders WHERE {TENANT}")
    french = s.source_rows(f"SELECT * FROM orders WHERE {FRENCH} AND amount > 10")
    assert s.rebuilt("orders", f"{s.slot}_french") == french


def test_rows_are_those_of_the_sets_from_the_first_start_on(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS)
        s.run_to(current_lsn(connection))
        assert_as_the_source(s)

        connection.execute("INSERT INTO orders VALUES (1000, 1, 5), (1001, 6, 50), (1002, 24, 1)")
        connection.execute("UPDATE orders SET customer = 11 WHERE id % 7 = 0")
        connection.execute("DELETE FROM orders WHERE id % 11 = 0")
        s.run_to(current_lsn(connection))
        assert_as_the_source(s)
    assert_exactly_once(s, ["orders"])


def test_rows_move_when_other_tables_say_so(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS)
        s.run_to(current_lsn(connection))

        for statement in (
            "UPDATE customers SET tenant = 1 WHERE id IN (3, 4, 5)",
            "UPDATE customers SET tenant = 2 WHERE id = 6",
            "INSERT INTO customers VALUES (23, 1, 1)",
            "DELETE FROM customers WHERE id = 11",
            "UPDATE cities SET country = 'FR' WHERE id = 2",
            "UPDATE cities SET country = 'US' WHERE id = 1",
        ):
            connection.execute(statement)
        s.run_to(current_lsn(connection))
        assert_as_the_source(s)
    assert_exactly_once(s, ["orders"])


KINDS = {
    "not_in": "customer NOT IN (SELECT city FROM customers WHERE tenant = 1)",
    "exists": (
        "EXISTS (SELECT FROM customers AS c WHERE c.id = orders.customer AND c.tenant > 2)"
        " OR amount < 5"
    ),
    "not_exists": (
        "NOT EXISTS (SELECT FROM customers AS c WHERE c.id = orders.customer AND NOT EXISTS"
        " (SELECT FROM cities WHERE cities.id = c.city AND country IS NOT NULL))"
    ),
}
KIND_DEFINITIONS = "".join(
    f"CREATE PUBLICATION p_{name} FOR TABLE orders WHERE ({where});"
    f"CREATE SUBSCRIPTION {{s}}_{name} CONNECTION '' PUBLICATION p_{name};"
    for name, where in KINDS.items()
)


def assert_kinds(s: Scene) -> None:
    for name, where in KINDS.items():
        expected = s.source_rows(f"SELECT * FROM orders WHERE {where}")
        assert s.rebuilt("orders", f"{s.slot}_{name}") == expected, name


def test_nulls_truncates_and_kills_leave_the_tables_of_the_source(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(KIND_DEFINITIONS, copy={"rows_per_second": 200})
        gateway = s.project.start()
        gateway.wait_until_copied(60)
        assert_kinds(s)
        for statements in (
            # NULL in a NOT IN copies the table again; the others move.
            "UPDATE customers SET city = NULL WHERE id = 1",
            "UPDATE customers SET tenant = 1, city = 7 WHERE id IN (5, 6)",
            "DELETE FROM customers WHERE city IS NULL",
            "UPDATE cities SET country = NULL; UPDATE orders SET customer = NULL WHERE id < 9",
            "TRUNCATE cities; INSERT INTO customers VALUES (24, 24, 4), (0, NULL, 3)",
            "TRUNCATE customers; INSERT INTO customers VALUES (2, 2, 1), (7, 3, 3)",
            "INSERT INTO cities VALUES (3, 'DE'); INSERT INTO orders VALUES (5000, 7, 1)",
        ):
            connection.execute(statements.encode())
            gateway.kill()
            gateway = s.project.start()
        end = current_lsn(connection)
        gateway.kill()
        wait_until_slot_is_free(connection, s.slot)
        s.run_to(end)
    assert_kinds(s)


BILLS = """
CREATE TABLE bills (id int PRIMARY KEY, customer int);
ALTER TABLE bills REPLICA IDENTITY FULL;
INSERT INTO bills SELECT n, n FROM generate_series(1, 20) AS n;
"""
FEW = "amount IN (SELECT id FROM cities WHERE country = 'FR')"


def test_a_locked_table_keeps_no_other_from_moving(scene: MakeScene, database: Database) -> None:
    def bills() -> bool:
        wanted = s.source_rows(f"SELECT * FROM bills WHERE {TENANT}")
        return s.rebuilt("bills", f"{s.slot}_bills") == wanted

    with database.connect() as connection, database.connect() as owner:
        connection.execute((TABLES + BILLS).encode())
        s = scene(
            f"CREATE PUBLICATION p FOR TABLE orders WHERE ({TENANT});"
            f"CREATE PUBLICATION q FOR TABLE orders WHERE ({FEW});"
            f"CREATE PUBLICATION r FOR TABLE bills WHERE ({TENANT});"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
            "CREATE SUBSCRIPTION {s}_few CONNECTION '' PUBLICATION q;"
            "CREATE SUBSCRIPTION {s}_bills CONNECTION '' PUBLICATION r;"
        )
        gateway = s.project.start()
        gateway.wait_until_copied(60)
        connection.execute("UPDATE customers SET tenant = 1 WHERE id = 2")
        wait_until(bills, 60, "rows to move: no older transaction is waited for from then on")
        with owner.transaction():
            owner.execute("LOCK TABLE orders")
            # Two questions about orders, by each of its columns, and as many threads.
            connection.execute(
                "UPDATE customers SET tenant = 1 WHERE id IN (3, 4);"
                "UPDATE cities SET country = 'FR' WHERE id > 1"
            )
            connection.execute("UPDATE customers SET tenant = 1 WHERE id = 5")
            wait_until(bills, 60, "bills to move while orders are locked")
            pid = f"pid {owner.info.backend_pid}"

            def are_shown() -> bool:
                # The readers wait for the lock again and again, with a pause in between.
                shown = s.cli("status").out
                return "public.orders: ready, rows moving" in shown and pid in shown

            wait_until(are_shown, 60, "status to say that rows move, and whom that waits for")
        gateway.wait_until_copied(60)
        wait_until(
            lambda: s.rebuilt("orders") == s.source_rows(f"SELECT * FROM orders WHERE {TENANT}"),
            60,
            "orders to move",
        )

        # An emptied inner table copies what it filters; for all others the stream goes on.
        reads = b"SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
        [(walsender,)] = connection.execute(reads, [s.slot]).fetchall()
        for number in range(3):
            connection.execute("TRUNCATE customers")
            connection.execute("INSERT INTO customers VALUES (%s, 1, 1)", [number])
            copies = [record.op for record in s.read("bills", f"{s.slot}_bills")].count("t")
            wait_until(bills, 60, "bills to be copied again")
            connection.execute("UPDATE bills SET customer = %s WHERE id = 1", [number])
            wait_until(bills, 60, "bills to go on")
        assert copies > 1, "it is copied"
        assert connection.execute(reads, [s.slot]).fetchall() == [(walsender,)]
        gateway.wait_until_copied(60)
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
    few = s.source_rows(f"SELECT * FROM orders WHERE {FEW}")
    assert s.rebuilt("orders", f"{s.slot}_few") == few


OTHERS = "customer IN (SELECT id FROM customers WHERE tenant IN (3, 4))"


def test_reloads_and_ddl_of_the_inner_table_end_in_the_tables_of_the_source(
    scene: MakeScene, database: Database
) -> None:
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS)
        gateway = s.project.start()
        gateway.wait_until_copied(60)
        s.project.definitions = (
            f"CREATE PUBLICATION p FOR TABLE orders WHERE ({OTHERS});"
            f"CREATE PUBLICATION q FOR TABLE orders WHERE ({TENANT});"
            f"CREATE SUBSCRIPTION {s.slot} CONNECTION '' PUBLICATION p;"
            f"CREATE SUBSCRIPTION {s.slot}_q CONNECTION '' PUBLICATION q;"
        )
        s.project.write()
        assert s.cli("reload").code == 0
        connection.execute("UPDATE customers SET tenant = 3 WHERE id = 1")
        connection.execute("ALTER TABLE customers ALTER COLUMN tenant TYPE bigint USING tenant + 1")
        connection.execute("INSERT INTO customers VALUES (100, 1, 4)")
        connection.execute("INSERT INTO orders VALUES (5000, 100, 1)")
        gateway.wait_until_copied(60)

        connection.execute("ALTER TABLE customers RENAME TO clients")
        connection.execute("UPDATE clients SET tenant = 4 WHERE id = 2")
        held = "public.orders: held"
        wait_until(lambda: held in s.cli("status").out, 60, "orders to be held")
        connection.execute("ALTER TABLE clients RENAME TO customers")
        connection.execute("UPDATE customers SET tenant = 1 WHERE id = 3")
        wait_until(lambda: held not in s.cli("status").out, 60, "orders to be copied again")
        gateway.wait_until_copied(60)
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
    assert s.rebuilt("orders") == s.source_rows(f"SELECT * FROM orders WHERE {OTHERS}")
    expected = s.source_rows(f"SELECT * FROM orders WHERE {TENANT}")
    assert s.rebuilt("orders", f"{s.slot}_q") == expected


TREES = """
CREATE TABLE customers (id int, tenant int, area text, PRIMARY KEY (id, area))
    PARTITION BY LIST (area);
CREATE TABLE eu PARTITION OF customers FOR VALUES IN ('eu');
CREATE TABLE us PARTITION OF customers FOR VALUES IN ('us');
ALTER TABLE eu REPLICA IDENTITY FULL;
ALTER TABLE us REPLICA IDENTITY FULL;
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF orders FOR VALUES FROM (0) TO (100);
CREATE TABLE high (amount int, gone text, customer int, id int NOT NULL);
ALTER TABLE high DROP gone;
ALTER TABLE orders ATTACH PARTITION high FOR VALUES FROM (100) TO (200);
ALTER TABLE orders REPLICA IDENTITY FULL;
ALTER TABLE low REPLICA IDENTITY FULL;
ALTER TABLE high REPLICA IDENTITY FULL;
INSERT INTO customers SELECT n, n % 3, CASE n % 2 WHEN 0 THEN 'eu' ELSE 'us' END
    FROM generate_series(1, 20) AS n;
INSERT INTO orders SELECT n, n % 25, n FROM generate_series(1, 199) AS n;
"""
UNDER_ROOT = "customer IN (SELECT id FROM eu WHERE tenant = 1) OR amount < 5"
OF_LEAF = "customer NOT IN (SELECT id FROM us WHERE tenant = 1)"
TREE_DEFINITIONS = (
    f"CREATE PUBLICATION p FOR TABLE orders WHERE ({UNDER_ROOT}) WITH (publish_via_partition_root);"
    f"CREATE PUBLICATION p_leaf FOR TABLE low WHERE ({OF_LEAF});"
    "CREATE PUBLICATION p_all FOR TABLE customers WITH (publish_via_partition_root);"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_leaf CONNECTION '' PUBLICATION p_leaf;"
    "CREATE SUBSCRIPTION {s}_all CONNECTION '' PUBLICATION p_all;"
)
STEPS = (
    # Rows that move, and rows of both tables that go into another partition.
    "UPDATE customers SET tenant = 1 WHERE id IN (2, 3, 5);"
    "UPDATE customers SET area = 'us' WHERE id = 4; UPDATE customers SET area = 'eu' WHERE id = 7;"
    "UPDATE orders SET id = 0 WHERE id = 150; DELETE FROM orders WHERE id % 11 = 0;"
    "UPDATE orders SET customer = 4, amount = 1 WHERE id % 13 = 0",
    # A partition that comes; one that goes, and is still a table of a sub-select.
    "CREATE TABLE later PARTITION OF orders FOR VALUES FROM (200) TO (300);"
    "ALTER TABLE later REPLICA IDENTITY FULL;"
    "INSERT INTO orders VALUES (201, 2, 9), (202, 8, 9), (203, 20, 1);"
    "ALTER TABLE customers DETACH PARTITION eu;"
    "UPDATE eu SET tenant = 1 WHERE id = 8; UPDATE eu SET tenant = 2 WHERE id = 2;"
    "UPDATE orders SET customer = 8 WHERE id = 201",
    # TRUNCATE of a whole tree, and of the inner partition.
    "TRUNCATE orders; TRUNCATE us; INSERT INTO us VALUES (1, 1, 'us');"
    "INSERT INTO orders VALUES (1, 1, 3), (2, 8, 7), (150, 8, 1), (250, 9, 9)",
)


def assert_trees(s: Scene) -> None:
    assert s.rebuilt("orders") == s.source_rows(f"SELECT * FROM orders WHERE {UNDER_ROOT}")
    leaf = s.source_rows(f"SELECT * FROM low WHERE {OF_LEAF}")
    assert s.rebuilt("low", f"{s.slot}_leaf") == leaf


@alternating(__name__, 16, 18)
def test_partitions_are_followed(scene: MakeScene, database: Database) -> None:
    with database.connect() as connection:
        connection.execute(TREES.encode())
        s = scene(TREE_DEFINITIONS, definitions={"watch_interval_s": 0.2})
        gateway = s.project.start()
        gateway.wait_until_copied()
        assert_trees(s)
        for step in STEPS:
            for statement in step.split(";"):
                connection.execute(statement.encode())
            gateway.wait_until_copied()
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
        assert_trees(s)
        assert_exactly_once(s, ["orders"])
        assert_exactly_once(s, ["low"], f"{s.slot}_leaf")

        # Of its old rows the stream would have the key alone.
        gateway = s.project.start()
        gateway.wait_until_copied()
        connection.execute("CREATE TABLE bare PARTITION OF orders FOR VALUES FROM (300) TO (400)")
        connection.execute("INSERT INTO orders VALUES (301, 8, 9)")
        connection.execute("UPDATE orders SET customer = 9 WHERE id = 301")
        why = "column amount is not part of the replica identity of partition public.bare"
        wait_until(lambda: why in s.cli("status").out, 60, "orders to be held")
        connection.execute("ALTER TABLE bare REPLICA IDENTITY FULL")
        wait_until(lambda: "held" not in s.cli("status").out, 60, "orders to be copied again")
        gateway.wait_until_copied()
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
        assert_trees(s)


def test_a_prepared_alteration_of_an_inner_table_holds_nothing_until_it_is_committed(
    scene: MakeScene, database: Database
) -> None:
    gid, held = f"alter-{database.name}", "public.orders: held"

    def seen(kind: str) -> int:
        return [marker["kind"] for marker in s.markers()].count(kind)

    def has_prepared(times: int) -> bool:
        return seen("PREPARE") == times

    def are_of_tenant(where: str = TENANT) -> bool:
        return s.rebuilt("orders") == s.source_rows(f"SELECT * FROM orders WHERE {where}")

    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(
            f"CREATE PUBLICATION p FOR TABLE orders WHERE ({TENANT});"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p WITH (two_phase = true);"
        )
        gateway = s.project.start()
        gateway.wait_until_copied()
        copied = seen("COPY")
        for number, end in enumerate(("ROLLBACK", "COMMIT"), 1):
            (ids,) = s.source_rows("SELECT array_agg(id) FROM customers WHERE tenant = 1")
            known = f"customer = ANY ('{{{', '.join(map(str, ids[0]))}}}')"
            connection.execute(
                "BEGIN; ALTER TABLE customers REPLICA IDENTITY DEFAULT;"
                f"UPDATE customers SET tenant = 3 - tenant; PREPARE TRANSACTION '{gid}'".encode()
            )
            wait_until(partial(has_prepared, number), 60, "the PREPARE to be seen")
            connection.execute("UPDATE orders SET customer = 1 WHERE id % 25 = 24")
            wait_until(partial(are_of_tenant, known), 60, "orders to go on")
            connection.execute(f"{end} PREPARED '{gid}'".encode())
            if end == "ROLLBACK":
                connection.execute("UPDATE customers SET tenant = 1 WHERE id IN (3, 8)")
                wait_until(are_of_tenant, 60, "rows to move")
                assert seen("COPY") == copied, "orders were neither held nor copied again"
        wait_until(lambda: held in s.cli("status").out, 60, "orders to be held")
        connection.execute("ALTER TABLE customers REPLICA IDENTITY FULL")
        connection.execute("UPDATE customers SET tenant = 1 WHERE id = 4")
        wait_until(lambda: held not in s.cli("status").out, 60, "orders to be copied again")
        gateway.wait_until_copied()
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
        assert are_of_tenant()


def test_an_inner_table_that_is_held_in_its_own_subscription_still_selects_rows(
    scene: MakeScene, database: Database
) -> None:
    def follows() -> bool:
        return s.rebuilt("orders") == s.source_rows(f"SELECT * FROM orders WHERE {TENANT}")

    with database.connect() as connection:
        connection.execute(TABLES.encode())
        s = scene(
            f"CREATE PUBLICATION p FOR TABLE orders WHERE ({TENANT});"
            "CREATE PUBLICATION q FOR TABLE customers WHERE (city < 3);"
            "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
            "CREATE SUBSCRIPTION {s}_inner CONNECTION '' PUBLICATION q;",
            definitions={"watch_interval_s": 0.2},
        )
        gateway = s.project.start()
        gateway.wait_until_copied()
        inner = "public.customers: held"
        connection.execute("ALTER TABLE customers DROP COLUMN city")
        connection.execute("UPDATE customers SET tenant = 1 WHERE id IN (3, 8)")
        wait_until(lambda: inner in s.cli("status").out, 60, "customers to be held")
        connection.execute("UPDATE customers SET tenant = 2 WHERE id = 6")
        connection.execute("UPDATE orders SET customer = 3 WHERE id % 25 = 24")
        wait_until(follows, 60, "orders to follow customers that are held")
        gateway.kill()
        connection.execute("UPDATE customers SET tenant = 1 WHERE id = 9")
        gateway = s.project.start()
        wait_until(follows, 60, "orders to follow them after a start")
        shown = s.cli("status").out
        assert inner in shown and "public.orders: held" not in shown, shown

        connection.execute("ALTER TABLE customers ADD COLUMN city int NOT NULL DEFAULT 1")
        connection.execute("UPDATE customers SET city = 5, tenant = 1 WHERE id % 4 = 0")
        wait_until(lambda: "held" not in s.cli("status").out, 60, "customers to be copied again")
        gateway.wait_until_copied()
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
        assert follows()
        few = s.source_rows("SELECT * FROM customers WHERE city < 3")
        assert s.rebuilt("customers", f"{s.slot}_inner") == few
        assert_exactly_once(s, ["orders"])
        assert_exactly_once(s, ["customers"], f"{s.slot}_inner")
