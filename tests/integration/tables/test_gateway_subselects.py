"""Filters over other tables: a gateway whose outer tables follow the inner ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.backends.servers import Database
from tests.support.gateway.scene import Scene, assert_exactly_once, current_lsn

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
