"""Changed definitions take effect at one LSN, while the gateway runs and when it starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from threading import Event

import pytest

from gateway.config import load_settings
from gateway.core.lsn import ZERO_LSN, parse_lsn
from gateway.core.watermark import Watermark
from gateway.observe import Counters
from gateway.runtime.planning.setup import set_up
from gateway.runtime.reload.held_retries import HeldLooks
from gateway.runtime.reload.reloader import Reloader
from gateway.sink.registry.registry import Registry
from gateway.source.provisioning.lost_members import MembersWatch
from tests.support.backends.servers import Database
from tests.support.gateway.scene import (
    Connection,
    Scene,
    assert_exactly_once,
    current_lsn,
    running,
    wait_for_copy_marker,
    wait_for_reload,
)
from tests.support.run.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.kafka]

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, region text NOT NULL, total int, note text);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE customers (id int PRIMARY KEY, name text);
INSERT INTO orders SELECT n, (ARRAY['EU', 'US', 'APAC'])[n % 3 + 1], n, 'x'
FROM generate_series(1, 300) AS n;
INSERT INTO customers SELECT n, 'c' || n FROM generate_series(1, 50) AS n;
"""
EUROPE = """
CREATE PUBLICATION eu FOR TABLE orders WHERE (region = 'EU');
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION eu;
"""
OVERSEAS = """
CREATE PUBLICATION eu FOR TABLE orders WHERE (region <> 'EU' OR total < 50), TABLE customers;
CREATE PUBLICATION large FOR TABLE orders WHERE (total > 200);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION eu;
CREATE SUBSCRIPTION {s}_large CONNECTION '' PUBLICATION large;
"""


def define(scene: Scene, definitions: str) -> None:
    """Change the file under a gateway that may be running."""
    scene.project.definitions = definitions.replace("{s}", scene.slot)
    scene.project.write()


def write_on(connection: Connection) -> Callable[[Event], None]:
    """Change orders as long as told to: rows enter, leave and move between the filters."""

    def work(stop: Event) -> None:
        number = 1000
        while not stop.wait(0.005):
            number += 1
            with connection.transaction():
                connection.execute(
                    "INSERT INTO orders VALUES (%s, (ARRAY['EU', 'US'])[%s %% 2 + 1], %s, 'y')",
                    (number, number, number % 400),
                )
                connection.execute(
                    "UPDATE orders SET total = (total + 37) %% 400, note = 'z' WHERE id %% 97 = %s",
                    (number % 97,),
                )
                connection.execute("DELETE FROM orders WHERE id = %s", (number - 40,))

    return work


def assert_complete(scene: Scene, expected: dict[tuple[str, str], str]) -> None:
    """Each (subscription, table) as its topic has it is what the query says of the source."""
    for (subscription, table), query in expected.items():
        assert scene.rebuilt(table, subscription) == scene.source_rows(query), (subscription, table)


def kinds(scene: Scene, subscription: str | None = None) -> list[str]:
    return [marker["kind"] for marker in scene.markers(subscription)]


def test_reload_brings_every_table_to_its_new_definition_under_load(
    scene: Callable[..., Scene],
) -> None:
    s = scene(EUROPE)
    with s.connect() as connection, s.connect() as writer:
        connection.execute(TABLES.encode())
        process = s.project.start()
        process.wait_until_copied()
        with running(write_on(writer)):
            define(s, OVERSEAS)
            ended = s.cli("reload")
        assert ended.code == 0, ended.err
        end = current_lsn(connection)
        assert process.terminate() == 0, process.log()
        s.run_to(end)

    assert_complete(
        s,
        {
            (s.slot, "orders"): "SELECT * FROM orders WHERE region <> 'EU' OR total < 50",
            (s.slot, "customers"): "SELECT * FROM customers",
            (f"{s.slot}_large", "orders"): "SELECT * FROM orders WHERE total > 200",
        },
    )
    assert_exactly_once(s, ["orders", "customers"])
    assert_exactly_once(s, ["orders"], f"{s.slot}_large")
    assert [m["kind"] for m in s.markers() if m["kind"] == "RELOAD"] == ["RELOAD"]


def test_reload_by_sighup_records_the_new_definitions_and_their_lsn(
    scene: Callable[..., Scene],
) -> None:
    s = scene(EUROPE)
    with s.connect() as connection:
        connection.execute(TABLES.encode())
        process = s.project.start()
        process.wait_until_copied()
        before = parse_lsn(current_lsn(connection))
        define(s, EUROPE.replace("region = 'EU'", "region = 'US'"))

        os.kill(process.pid, signal.SIGHUP)

        wait_for_reload(s)
        connection.execute("INSERT INTO orders VALUES (1001, 'EU', 1, 'n'), (1002, 'US', 1, 'n')")
        end = current_lsn(connection)
        assert process.terminate() == 0, process.log()
        s.run_to(end)

    (reload,) = [m for m in s.markers() if m["kind"] == "RELOAD"]
    assert before <= reload["end_lsn"] <= parse_lsn(end)
    assert reload["definitions"] != ""
    assert_complete(s, {(s.slot, "orders"): "SELECT * FROM orders WHERE region = 'US'"})


def test_definitions_that_are_refused_leave_the_old_ones_in_force(
    scene: Callable[..., Scene],
) -> None:
    s = scene(EUROPE)
    with s.connect() as connection:
        connection.execute(TABLES.encode())
        process = s.project.start()
        process.wait_until_copied()
        define(s, EUROPE.replace("region = 'EU'", "regoin = 'EU'"))

        os.kill(process.pid, signal.SIGHUP)
        refused = "changed definitions are refused since"
        wait_until(lambda: refused in s.cli("status").out, 60, "them to be refused")
        ended = s.cli("reload")

        connection.execute("INSERT INTO orders VALUES (1001, 'EU', 1, 'n'), (1002, 'US', 1, 'n')")
        define(s, EUROPE)
        end = current_lsn(connection)
        assert process.terminate() == 0, process.log()
        s.run_to(end)

    assert ended.code == 1
    assert 'column "regoin" does not exist' in ended.err
    assert "RELOAD" not in kinds(s)
    assert_complete(s, {(s.slot, "orders"): "SELECT * FROM orders WHERE region = 'EU'"})


def test_reload_without_a_running_gateway_says_what_to_do(scene: Callable[..., Scene]) -> None:
    s = scene(EUROPE)
    with s.connect() as connection:
        connection.execute(TABLES.encode())
        s.run_to("0/1")
        define(s, OVERSEAS)

        ended = s.cli("reload")

    assert ended.code == 1
    # It has waited for one that might have been starting, and has said so.
    assert "waiting for the gateway to put the definitions into force" in ended.err
    assert "`pgsluice run` applies changed definitions when it starts" in ended.err


def test_definitions_that_changed_while_nobody_ran_take_over_at_the_start(
    scene: Callable[..., Scene],
) -> None:
    s = scene(EUROPE)
    with s.connect() as connection:
        connection.execute(TABLES.encode())
        s.run_to(current_lsn(connection))
        connection.execute("DELETE FROM orders WHERE id < 20")
        connection.execute("INSERT INTO customers VALUES (100, 'late')")
        define(s, OVERSEAS)

        process = s.project.start()
        wait_for_reload(s)
        connection.execute(
            "INSERT INTO orders VALUES (1001, 'US', 300, 'n'), (1002, 'EU', 99, 'n')"
        )
        end = current_lsn(connection)
        assert process.terminate() == 0, process.log()
        s.run_to(end)

    assert_complete(
        s,
        {
            (s.slot, "orders"): "SELECT * FROM orders WHERE region <> 'EU' OR total < 50",
            (s.slot, "customers"): "SELECT * FROM customers",
            (f"{s.slot}_large", "orders"): "SELECT * FROM orders WHERE total > 200",
        },
    )


def test_a_gateway_that_dies_while_tables_are_copied_goes_on_at_the_next_start(
    scene: Callable[..., Scene],
) -> None:
    s = scene(EUROPE, copy={"chunk_rows": 20, "rows_per_second": 100})
    with s.connect() as connection:
        connection.execute(TABLES.encode())
        process = s.project.start()
        process.wait_until_copied()
        define(s, OVERSEAS)
        os.kill(process.pid, signal.SIGHUP)
        wait_for_reload(s)
        wait_for_copy_marker(s, "customers", "copying")
        process.kill()
        connection.execute("UPDATE orders SET total = 10 WHERE id % 7 = 0")
        process = s.project.start()
        process.wait_until_copied()
        end = current_lsn(connection)
        assert process.terminate() == 0, process.log()
        s.run_to(end)

    assert_complete(
        s,
        {
            (s.slot, "orders"): "SELECT * FROM orders WHERE region <> 'EU' OR total < 50",
            (s.slot, "customers"): "SELECT * FROM customers",
            (f"{s.slot}_large", "orders"): "SELECT * FROM orders WHERE total > 200",
        },
    )


TREE = """
CREATE TABLE tree (a int PRIMARY KEY, b int) PARTITION BY RANGE (a);
CREATE TABLE low PARTITION OF tree FOR VALUES FROM (0) TO (1000);
CREATE TABLE high PARTITION OF tree FOR VALUES FROM (1000) TO (MAXVALUE);
INSERT INTO tree SELECT n * 10, n FROM generate_series(0, 200) AS n;
"""
BY_ROOT = """
CREATE PUBLICATION roots FOR TABLE tree WITH (publish_via_partition_root);
CREATE SUBSCRIPTION {s} CONNECTION '' PUBLICATION roots;
"""
MIXED = f"""{BY_ROOT}
CREATE PUBLICATION leaves FOR TABLE tree, low WHERE (a > 500);
CREATE SUBSCRIPTION {{s}}_l CONNECTION '' PUBLICATION leaves;
"""


def test_a_tree_that_is_read_by_leaf_and_by_root_in_turn_loses_nothing(
    scene: Callable[..., Scene],
) -> None:
    s = scene(BY_ROOT)

    def write(connection: Connection) -> Callable[[Event], None]:
        def work(stop: Event) -> None:
            number = 0
            while not stop.wait(0.01):  # a loaded machine keeps up with it, too
                number += 1
                connection.execute(
                    "INSERT INTO tree VALUES (%s, 0), (%s, 0) ON CONFLICT DO NOTHING",
                    (number * 10 % 1000 + 1 + number // 100, 3000 + number),
                )
                connection.execute(
                    "UPDATE tree SET b = b + 1 WHERE a %% 97 = %s AND a < 2000", (number % 97,)
                )
                connection.execute("UPDATE tree SET a = a + 1000000 WHERE a = %s", (2980 + number,))
                connection.execute("DELETE FROM tree WHERE a = %s", (number * 10 % 2000,))

        return work

    with s.connect() as connection, s.connect() as writer:
        connection.execute(TREE.encode())
        process = s.project.start()
        process.wait_until_copied()
        with running(write(writer)):
            for definitions in (MIXED, BY_ROOT, MIXED):
                define(s, definitions)
                ended = s.cli("reload")
                assert ended.code == 0, ended.err
        end = current_lsn(connection)
        assert process.terminate() == 0, process.log()
        s.run_to(end)

    assert_complete(
        s,
        {
            (s.slot, "tree"): "SELECT * FROM tree",
            (f"{s.slot}_l", "low"): "SELECT * FROM low WHERE a > 500",
            (f"{s.slot}_l", "high"): "SELECT * FROM high",
        },
    )


def test_a_watch_that_fails_for_no_known_reason_ends_the_loop_with_that(
    scene: Callable[..., Scene], database: Database
) -> None:
    def broken() -> bool:
        raise ZeroDivisionError("asked")

    with database.connect() as connection:
        connection.execute(TABLES)
        settings = load_settings(scene(EUROPE).project.write(), {})
        with Registry(settings.registry) as registry:
            setup = set_up(settings, connection, registry)
        reloader = Reloader(
            settings,
            Watermark(ZERO_LSN, 1, setup.definitions.fingerprint, ()),
            setup,
            counters=Counters(),
            stream_plan=lambda: None,
            copies=tuple,
            requested=broken,
            held_looks=HeldLooks(0.0),
            members=MembersWatch(settings.source.slot),
        )

    def end() -> None:
        wait_until(reloader.holds, 60, "the watch to fail")

    with reloader, pytest.raises(ZeroDivisionError, match="asked"):
        end()
