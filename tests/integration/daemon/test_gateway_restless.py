"""Tables of sub-selects that never rest: the reads of all other tables go on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import Event

import pytest

from tests.integration.daemon.test_gateway_inner_trees import TABLES
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    wait_for_copy_marker,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

MakeScene = Callable[..., Scene]
LARGE = """
CREATE TABLE flags (id int);
ALTER TABLE flags REPLICA IDENTITY FULL;
INSERT INTO flags VALUES (0), (1);
CREATE TABLE large (a int PRIMARY KEY, flag int);
ALTER TABLE large REPLICA IDENTITY FULL;
INSERT INTO large SELECT n, n % 5 FROM generate_series(1, 20000) AS n;
ANALYZE large;
"""
FLAGGED = "flag IN (SELECT id FROM flags)"
IN_TREE = "customer IN (SELECT id FROM customers WHERE tenant = 1)"
DEFINITIONS = (
    "CREATE PUBLICATION p FOR TABLE large;"
    f"CREATE PUBLICATION p_flags FOR TABLE large WHERE ({FLAGGED});"
    f"CREATE PUBLICATION p_tree FOR TABLE orders WHERE ({IN_TREE});"
    "CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION p;"
    "CREATE SUBSCRIPTION {s}_flags CONNECTION '' PUBLICATION p_flags;"
    "CREATE SUBSCRIPTION {s}_tree CONNECTION '' PUBLICATION p_tree;"
)
READERS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'pgsluice copy%'"
)


def test_a_table_that_never_rests_interrupts_no_other_read(
    scene: MakeScene, database: Database
) -> None:
    def readers() -> set[int]:
        return {pid for (pid,) in connection.execute(READERS).fetchall()}

    def begun(subscription: str) -> int:
        return sum(record.op == "t" for record in s.read("large", subscription))

    def alter(number: int) -> None:
        before = begun(f"{s.slot}_flags")
        connection.execute("TRUNCATE flags")
        connection.execute("INSERT INTO flags VALUES (%s), (4)", [number])
        wait_until(lambda: begun(f"{s.slot}_flags") > before, 60, "it to be copied again")
        connection.execute("TRUNCATE us")
        connection.execute("INSERT INTO us VALUES (%s, 1, 'us')", [number])
        wait_until(lambda: is_right("_tree", "orders", IN_TREE), 60, "the tree to be read")

    def is_right(name: str, table: str, where: str = "true") -> bool:
        wanted = s.source_rows(f"SELECT * FROM {table} WHERE {where}")
        return s.rebuilt(table, f"{s.slot}{name}") == wanted

    def move_keys(stop: Event) -> None:
        """Give rows that are not copied yet the keys of those that are, and the other way round."""
        with database.connect() as writer:
            for number in count(1):
                if stop.wait(0.005) or number > 300:
                    return
                moved = "UPDATE large SET a = %s WHERE a = %s"
                writer.execute(moved, [-number, 20_001 - number])
                writer.execute(moved, [20_000 + number, number])

    with database.connect() as connection:
        connection.execute((TABLES + LARGE).encode())
        s = scene(
            DEFINITIONS,
            copy={"rows_per_second": 100, "parallel": 2},
            definitions={"watch_interval_s": 0.2},
        )
        gateway = s.project.start()
        wait_for_copy_marker(s, "orders", "ready", f"{s.slot}_tree")
        # That of the other tables ends: the table is too small for two.
        wait_until(lambda: len(readers()) == 1, 60, "one reader, of the large table")
        [reader] = readers()
        with running(move_keys):
            for number in range(3):
                alter(number)

        assert reader in readers(), gateway.log()
        assert begun(s.slot) == 1
        states = [m["copy"]["state"] for m in s.markers() if m["kind"] == "COPY"]
        assert states == ["pending", "copying"], "the large table is still being copied"
        connection.execute("DELETE FROM large WHERE a > 300 AND a < 20000")
        gateway.wait_until_copied(120)
        assert begun(s.slot) == 1
        assert gateway.terminate() == 0, gateway.log()
        s.run_to(current_lsn(connection))
        assert is_right("", "large")
        assert is_right("_flags", "large", FLAGGED)
        assert is_right("_tree", "orders", IN_TREE)
        states = [m["copy"]["state"] for m in s.markers(f"{s.slot}_flags") if m["kind"] == "COPY"]
        assert states == ["pending", "copying"] * 4 + ["ready"]
    assert_exactly_once(s, ["large"])
    assert_exactly_once(s, ["large"], f"{s.slot}_flags")
