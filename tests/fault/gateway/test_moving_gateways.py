"""Filters over one other table in several gateways: one dies while rows move, one keeps apart."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.support.backends.servers import Connection, Database
from tests.support.gateway.scene import Scene, assert_exactly_once, current_lsn
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, tenant int);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount int);
ALTER TABLE customers REPLICA IDENTITY FULL; ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO customers SELECT n, n % 3 FROM generate_series(1, 12) AS n;
INSERT INTO orders SELECT n, n % 12 + 1, n FROM generate_series(1, 600) AS n;
"""
ONE = "customer IN (SELECT id FROM customers WHERE tenant = 1)"
OTHERS = "customer NOT IN (SELECT id FROM customers WHERE tenant = 1) AND amount > 50"
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE orders WHERE ({where});"
    "CREATE SUBSCRIPTION {{s}} CONNECTION '' PUBLICATION p;"
)


def are_last(s: Scene, state: str) -> bool:
    """Whether the last MOVE marker says so of the rows."""
    states = [marker["move"]["state"] for marker in s.markers() if marker["kind"] == "MOVE"]
    return states[-1:] == [state]


def change(connection: Connection) -> None:
    """Orders change, their keys and customers too."""
    connection.execute(
        "UPDATE orders SET amount = amount + 1000 WHERE id % 5 = 0;"
        "UPDATE orders SET id = id + 1000 WHERE id % 50 = 7;"
        "UPDATE orders SET customer = customer % 12 + 1 WHERE id % 50 = 9;"
        "DELETE FROM orders WHERE id % 50 = 11"
    )


def test_a_leader_that_dies_while_rows_move_has_an_heir_and_other_gateways_keep_apart(
    tmp_path: Path, database: Database, kafka: str, registry: str
) -> None:
    slot, other_slot = f"gw_{database.name}", f"other_{database.name}"
    make = partial(
        Scene,
        dsn=database.dsn,
        bootstrap=kafka,
        registry=registry,
        extra={"topics": {"progress": f"{slot}.progress"}},
    )
    ours = DEFINITIONS.format(where=ONE)
    a = make(tmp_path / "a", slot=slot, definitions=ours)
    b = make(tmp_path / "b", slot=slot, definitions=ours)
    other = make(tmp_path / "other", slot=other_slot, definitions=DEFINITIONS.format(where=OTHERS))
    try:
        with database.connect() as connection, database.connect() as owner:
            connection.execute(TABLES.encode())
            leader, apart = a.project.start(), other.project.start()
            leader.wait_until_copied()
            apart.wait_until_copied()
            heir = b.project.start()
            heir.wait_until_doing("standby")
            with owner.transaction():
                owner.execute("LOCK TABLE orders")  # nobody can read the rows that move
                connection.execute("UPDATE customers SET tenant = (id + 1) % 3 WHERE id < 7")
                for s in (a, other):
                    wait_until(partial(are_last, s, "begun"), 60, "rows to move")
                leader.kill()
                assert are_last(a, "begun")
                change(owner)
            heir.wait_until_doing("streaming")
            connection.execute("UPDATE customers SET tenant = id % 3 WHERE id IN (2, 4, 9)")
            change(connection)
            for s in (a, other):
                wait_until(partial(are_last, s, "settled"), 60, "rows to be settled")
            end = current_lsn(connection)
            assert heir.terminate() == 0, heir.log()
            assert apart.terminate() == 0, apart.log()
            b.run_to(end)
            other.run_to(end)
        for s, where in ((b, ONE), (other, OTHERS)):
            expected = s.source_rows(f"SELECT * FROM orders WHERE {where}")
            assert s.rebuilt("orders") == expected, where
            assert 50 < len(expected) < 550
            assert_exactly_once(s, ["orders"])
    finally:
        for s in (a, b, other):
            s.close()
