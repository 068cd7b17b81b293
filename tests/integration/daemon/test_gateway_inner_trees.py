"""Filters over partitioned tables: partitions come and go, and no row has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import Event

import pytest

from gateway.source.provisioning.event_trigger import INSTALL
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    value_of,
)
from tests.support.models.cuts import cuts
from tests.support.run.majors import alternating
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
TABLES = """
CREATE TABLE customers (id int, tenant int, area text, PRIMARY KEY (id, area))
    PARTITION BY LIST (area);
CREATE TABLE us PARTITION OF customers FOR VALUES IN ('us');
CREATE TABLE eu PARTITION OF customers FOR VALUES IN ('eu') PARTITION BY RANGE (id);
CREATE TABLE eu_low PARTITION OF eu FOR VALUES FROM (0) TO (10);
CREATE TABLE eu_high (area text NOT NULL, gone text, tenant int, id int NOT NULL);
ALTER TABLE eu_high DROP gone;
ALTER TABLE eu ATTACH PARTITION eu_high FOR VALUES FROM (10) TO (100);
CREATE TABLE asia (tenant int, area text NOT NULL, id int NOT NULL);
ALTER TABLE us REPLICA IDENTITY FULL;
ALTER TABLE eu_low REPLICA IDENTITY FULL;
ALTER TABLE eu_high REPLICA IDENTITY FULL;
ALTER TABLE asia REPLICA IDENTITY FULL;
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int);
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO customers SELECT n, n % 3, CASE n % 2 WHEN 0 THEN 'eu' ELSE 'us' END
    FROM generate_series(1, 20) AS n;
INSERT INTO asia SELECT n % 2, 'asia', n FROM generate_series(30, 39) AS n;
INSERT INTO orders SELECT n, n % 45, n FROM generate_series(1, 300) AS n;
"""
FILTERS = {
    "": "customer IN (SELECT id FROM customers WHERE tenant = 1)",
    "_not": "customer NOT IN (SELECT id FROM customers WHERE tenant = 1)",
    "_eu": "EXISTS (SELECT FROM eu WHERE eu.id = orders.customer AND tenant = 1) OR amount < 5",
}
DEFINITIONS = "".join(
    f"CREATE PUBLICATION p{name} FOR TABLE orders WHERE ({where});"
    f"CREATE SUBSCRIPTION {{s}}{name} CONNECTION '' PUBLICATION p{name};"
    for name, where in FILTERS.items()
)
STEPS = (
    # Rows that change, and that go into other partitions.
    "UPDATE customers SET tenant = 1 WHERE id IN (2, 3, 12);"
    "UPDATE customers SET area = 'us' WHERE id IN (4, 14);"
    "UPDATE customers SET area = 'eu' WHERE id = 7",
    # One that is attached with its rows, of which none changes, then some do.
    "ALTER TABLE customers ATTACH PARTITION asia FOR VALUES IN ('asia')",
    "UPDATE customers SET tenant = 1 WHERE id IN (30, 32); DELETE FROM customers WHERE id = 31",
    # One that is emptied alone; a tree below the tree.
    "INSERT INTO customers VALUES (40, 1, 'us'); TRUNCATE us; INSERT INTO us VALUES (1, 1, 'us')",
    "TRUNCATE eu; INSERT INTO customers VALUES (10, 1, 'eu'), (2, 1, 'eu'), (8, 2, 'eu')",
    # One that is detached, changed, and attached again; one that is new; one that is dropped.
    "ALTER TABLE customers DETACH PARTITION asia",
    "UPDATE asia SET tenant = 1; ALTER TABLE customers ATTACH PARTITION asia FOR VALUES IN"
    " ('asia'); UPDATE customers SET tenant = 2 WHERE id = 33",
    "CREATE TABLE africa PARTITION OF customers FOR VALUES IN ('africa');"
    "ALTER TABLE africa REPLICA IDENTITY FULL; INSERT INTO customers VALUES (41, 1, 'africa')",
    "DROP TABLE us; ALTER TABLE customers ALTER tenant TYPE int USING 3 - tenant;"
    "UPDATE customers SET tenant = 1 WHERE id = 8",
    "TRUNCATE customers; INSERT INTO customers VALUES (5, 1, 'eu'), (41, 1, 'africa')",
)


def is_as_the_source(s: Scene, filters: Mapping[str, str] = FILTERS) -> bool:
    return all(
        s.rebuilt("orders", f"{s.slot}{name}")
        == s.source_rows(f"SELECT * FROM orders WHERE {where}")
        for name, where in filters.items()
    )


def is_settled(s: Scene, filters: Iterable[str] = FILTERS) -> bool:
    return all(
        (found := list(cuts(s.markers(f"{s.slot}{name}"), [], "", "orders"))) and found[-1].complete
        for name in filters
    )


@pytest.mark.parametrize("noticed", ["by_the_catalog", "by_event_triggers"])
@alternating(__name__, 15, 18)
def test_partitions_come_and_go(scene: MakeScene, database: Database, noticed: str) -> None:
    interval = 0.2
    with database.connect() as connection:
        connection.execute(TABLES.encode())
        if noticed == "by_event_triggers":
            connection.execute(INSTALL.encode())
            interval = 3600
        s = scene(DEFINITIONS, definitions={"watch_interval_s": interval})
        gateway = s.project.start()
        gateway.wait_until_copied()
        assert is_as_the_source(s)
        for number, step in enumerate(STEPS):
            for statement in step.split(";"):
                connection.execute(statement.encode())
            if number == 4:
                gateway.kill()  # a set that is stale is so after a start
                gateway = s.project.start()
            wait_until(lambda: is_as_the_source(s), 60, f"step {number}")
        wait_until(lambda: is_settled(s), 60, "moves to be settled")

        connection.execute(b"CREATE TABLE oceania PARTITION OF customers FOR VALUES IN ('oceania')")
        connection.execute(b"INSERT INTO customers VALUES (42, 2, 'oceania')")
        why = "column tenant is not part of the replica identity"
        wait_until(lambda: why in s.cli("status").out, 60, "orders to be held")
        connection.execute(b"ALTER TABLE oceania REPLICA IDENTITY FULL")
        connection.execute(b"UPDATE customers SET tenant = 1 WHERE id = 42")
        assert s.cli("reload").code == 0
        wait_until(lambda: "held" not in s.cli("status").out, 60, "orders to be copied again")
        gateway.wait_until_copied()
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
        assert is_as_the_source(s)
    for name in FILTERS:
        assert_exactly_once(s, ["orders"], f"{s.slot}{name}")


def is_copied(s: Scene) -> bool:
    return all(
        any(m["kind"] == "COPY" and m["copy"]["state"] == "ready" for m in s.markers(s.slot + name))
        for name in FILTERS
    )


def test_partitions_that_never_rest_keep_no_copy_from_ending(
    scene: MakeScene, database: Database
) -> None:
    def come_and_go(stop: Event) -> None:
        with database.connect() as owner:
            while not stop.is_set():
                owner.execute(b"ALTER TABLE customers ATTACH PARTITION asia FOR VALUES IN ('asia')")
                owner.execute(b"ALTER TABLE customers DETACH PARTITION asia")

    with database.connect() as connection:
        connection.execute(TABLES.encode())
    # Each look at the catalog finds another tree.
    s = scene(DEFINITIONS, definitions={"watch_interval_s": 0.1})
    with running(come_and_go):
        gateway = s.project.start()
        wait_until(lambda: is_copied(s), 60, "orders to be copied")
    # A table is read once more after a minute at the longest. Until the next look at the catalog,
    # moves are settled by the partitions of before.
    wait_until(lambda: is_settled(s) and is_as_the_source(s), 120, "moves to be settled")
    assert gateway.terminate() == 0, gateway.log()
    for name in FILTERS:
        assert_exactly_once(s, ["orders"], f"{s.slot}{name}")


@pytest.mark.parametrize(("partition", "leaf"), [("us", "us"), ("eu", "eu_low")])
def test_rows_leave_with_the_first_transaction_of_detach_concurrently(
    scene: MakeScene, database: Database, partition: str, leaf: str
) -> None:
    def detach(_: Event) -> None:
        with database.connect() as owner:
            owner.execute(f"ALTER TABLE customers DETACH PARTITION {partition} CONCURRENTLY")

    def is_pending() -> bool:
        query = "SELECT count(*) = 1 FROM pg_inherits WHERE inhdetachpending"
        return value_of(connection, query) is True

    with database.connect() as connection, database.connect() as reading:
        connection.execute(TABLES.encode())
        s = scene(DEFINITIONS, definitions={"watch_interval_s": 0.2})
        gateway = s.project.start()
        gateway.wait_until_copied()
        reading.execute(b"BEGIN; SELECT FROM customers")
        with running(detach):
            wait_until(is_pending, 60, "the first transaction")
            wait_until(lambda: is_as_the_source(s), 60, "rows to leave")
            connection.execute(f"UPDATE {leaf} SET tenant = 3 - tenant".encode())
            connection.execute(b"UPDATE customers SET tenant = 1")
            wait_until(lambda: is_settled(s) and is_as_the_source(s), 60, "changes between both")
            assert is_pending()
            reading.execute(b"COMMIT")
        connection.execute(f"UPDATE {leaf} SET tenant = tenant + 1".encode())
        connection.execute(b"UPDATE customers SET tenant = 3 - tenant WHERE id > 7")
        wait_until(lambda: is_settled(s) and is_as_the_source(s), 60, "changes after it")
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
        assert is_as_the_source(s)
    for name in FILTERS:
        assert_exactly_once(s, ["orders"], f"{s.slot}{name}")
